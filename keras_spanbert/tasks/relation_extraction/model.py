"""Relation extraction: the model and its serving function."""

import keras
import numpy as np

from keras_spanbert.checks import accepts_datasets
from keras_spanbert.data.semeval2010 import RELATIONS
from keras_spanbert.distribution import to_numpy
from keras_spanbert.metrics.relation import relation, semeval2010_task8
from keras_spanbert.models.backbone import dense_layer, pooler
from keras_spanbert.models.classifier import ClassifierTask, dropout_layer, probabilities
from keras_spanbert.optional import tf
from keras_spanbert.serving.saved_model import strings, trim_padding
from keras_spanbert.tasks.relation_extraction.preprocessor import (
    SETTINGS,
    SpanBertRelationExtractorPreprocessor,
)
from keras_spanbert.tasks.relation_extraction.rows import SPANS, TYPES
from keras_spanbert.text.labels import check_names
from keras_spanbert.text.strings import check_examples, is_examples
from keras_spanbert.wording import LOG

# The number of unused tokens in BERT's cased vocabulary.
_COUNT = 101


def with_unused_tokens(task):
    """Returns a task with unused tokens at the end of its vocabulary, with new embeddings.

    The task's preprocessor gets the new tokenizer.
    """
    preprocessor, backbone = task.preprocessor, task.backbone
    tokenizer = preprocessor.tokenizer
    vocabulary = [*tokenizer.get_vocabulary(), *(f"[unused{i + 1}]" for i in range(_COUNT))]
    preprocessor.tokenizer = type(tokenizer).from_config(
        {**tokenizer.get_config(), "vocabulary": vocabulary}
    )
    size = max(len(vocabulary), backbone.vocabulary_size)
    other = type(backbone).from_config({**backbone.get_config(), "vocabulary_size": size})
    for new, old in zip(other.weights, backbone.weights, strict=True):
        value = to_numpy(new).copy()
        value[: old.shape[0]] = to_numpy(old)
        new.assign(value)
    LOG.warning(
        "The vocabulary has no [unused1], [unused2], ... for the symbols of subject and object: %d "
        "such tokens were added, with new embeddings",
        _COUNT,
    )
    return task.rebuilt(backbone=other)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertRelationExtractor(ClassifierTask):
    """Finds the relation of a subject to an object, which are given as spans of a text.

    The head is BERT's pooler over `[CLS]`, dropout, and a dense layer. By default the
    model is compiled with AdamW (learning rate 2e-5), cross-entropy and accuracy.

    `fit`, `evaluate` and `predict` take labelled examples from `keras_spanbert.data.tacred.read` or
    `semeval2010.read`; or `x`, a dict of columns in the format of the arguments of `extract`,
    `"text"`, `"subject"`, `"object"` and, in modes with types, `"subject_type"` and
    `"object_type"`, with `y`, relations or their numbers; or arrays from `preprocess`; or batches
    of any of these: see `fit`. In modes with types, `fit` on all rows first calls the
    preprocessor's `adapt`. Call it yourself before you train on batches.

    Args:
        backbone: `SpanBertBackbone`.
        relations: list of C strings. The first means no relation, which scores
            leave out: see `keras_spanbert.data.tacred.relation_names`.
        preprocessor: `SpanBertRelationExtractorPreprocessor`. Defaults to `None`.
        dropout: float. Rate before the last layer. Defaults to `0.1`.

    Raises:
        ValueError: if `relations` are not unique strings, or `dropout` is not in [0, 1).

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[N, L]` to logits `[N, C]`.

    Example:
    ```python
    examples = keras_spanbert.data.tacred.read("train.json")
    extractor = keras_spanbert.SpanBertRelationExtractor.from_preset(
        "spanbert_hf_base.tar.gz",
        relations=keras_spanbert.data.tacred.relation_names(examples),
    )
    extractor.fit(examples, epochs=10)
    extractor.extract("Ann runs Acme.", (0, 3), (9, 13), "PERSON", "ORGANIZATION")
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.2, and
        [Zhang et al. 2017](https://aclanthology.org/D17-1004/).
    """

    preprocessor_cls = SpanBertRelationExtractorPreprocessor
    huggingface_class = "BertForSequenceClassification"
    names_argument = "relations"
    config_names = ("relations", "dropout")
    scores = {
        "macro_f1": "official macro F1",
        "precision": "precision",
        "recall": "recall",
        "f1": "F1",
    }
    best_score = "f1"

    def __init__(self, backbone, relations, preprocessor=None, dropout: float = 0.1, **kwargs):
        # The preprocessor gets them.
        self.relations = relations = check_names("relations", relations)
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.pooler = pooler(backbone)
        self.output_dropout = dropout_layer(backbone, dropout)
        self.classifier = dense_layer(backbone, len(relations), "classifier")

        # === Functional Model ===
        pooled = self.pooler(backbone(backbone.input)[:, 0, :])
        logits = self.classifier(self.output_dropout(pooled))
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)

        # === Config ===
        self.dropout = dropout
        if self.is_semeval2010:
            self.best_score = "macro_f1"

    @classmethod
    def from_preset(cls, preset: str, load_weights: bool | None = None, **kwargs):
        """Loads a preset or another library's checkpoint: see `SpanBertBackbone.from_preset`.

        If the vocabulary has no `[unused1]`, `[unused2]`, ... for the symbols of subject
        and object, 101 such tokens are added, with new embeddings.
        """
        task = super().from_preset(preset, load_weights, **kwargs)
        has_tokens = task.preprocessor is None or not task.preprocessor.lacks_tokens
        return task if has_tokens else with_unused_tokens(task)

    @property
    def is_semeval2010(self) -> bool:
        """Whether the relations are those of SemEval-2010 Task 8."""
        return self.relations[0] == RELATIONS[0] and set(self.relations) <= set(RELATIONS)

    @classmethod
    def is_in(cls, checkpoint) -> bool:
        # A classifier of texts has the same tensors.
        own = SETTINGS in (checkpoint.settings.get("task_specific_params") or {})
        return own and super().is_in(checkpoint)

    def checkpoint_settings(self) -> dict:
        settings = super().checkpoint_settings()
        if self.preprocessor is None:
            return settings
        own = {"mode": self.preprocessor.mode, "symbols": self.preprocessor.symbols}
        return {**settings, "task_specific_params": {SETTINGS: own}}

    def preprocess_rows(self, x, y, sample_weight, batch_size, shuffle, mode: str) -> tuple:
        if mode == "fit" and self.preprocessor is not None and self.preprocessor.uses_types:
            self.preprocessor.adapt(x)
        return super().preprocess_rows(x, y, sample_weight, batch_size, shuffle, mode)

    def serving_function(self):
        """Returns the function from texts with spans to relations, and its input specs."""
        self.check_preprocessor()
        names = tf.constant(self.relations)

        def serve(text, subject_start, subject_end, object_start, object_end, *types):
            x = {
                "text": text,
                "subject": tf.stack([subject_start, subject_end], axis=1),
                "object": tf.stack([object_start, object_end], axis=1),
                **dict(zip(TYPES, types)),
            }
            logits = self(trim_padding(self.preprocessor.rows(x)), training=False)
            scores = tf.nn.softmax(tf.cast(logits, tf.float32))
            return {
                "relation": tf.gather(names, tf.argmax(scores, axis=1)),
                "score": tf.reduce_max(scores, axis=1),
                "scores": scores,
            }

        spans = [
            tf.TensorSpec([None], tf.int32, name=f"{name}_{end}")
            for name in SPANS
            for end in ["start", "end"]
        ]
        types = strings(*TYPES) if self.preprocessor.uses_types else []
        return serve, [*strings("text"), *spans, *types]

    # === Answers ===
    @accepts_datasets
    def extract(
        self,
        texts,
        subjects=None,
        objects=None,
        subject_types=None,
        object_types=None,
        batch_size: int = 32,
    ) -> list[dict] | dict:
        """Predicts the relations of subjects to objects.

        Args:
            texts: string, or list, tuple, array or tensor of N strings, or list of
                texts as lists of words, or examples without the other arguments.
            subjects: `(start, end)`, or N pairs. The subject is `text[start:end]`, in
                characters, or in words if the text is in words.
            objects: `(start, end)`, or N pairs, for the object. The spans may overlap or be equal,
                and both have their symbols. Mode `"ner_text"` lists a shared word only for the
                subject.
            subject_types: string, or N strings, such as `"PERSON"`, from the
                training data. Defaults to `None`, for mode `"text"`.
            object_types: string, or N strings, for the object. Defaults to `None`.
            batch_size: int. Number of rows per batch. Defaults to `32`.

        Returns:
            For each text `{"relation", "score"}`, the likeliest relation and its
            probability. A single text gives one dict.

        Raises:
            ValueError: if the model has no preprocessor, an argument has another form or length, a
                span is not in its text, or a type is missing or unknown.

        Example:
        ```python
        extractor.extract(
            ["Ann runs Acme."], [(0, 3)], [(9, 13)], ["PERSON"], ["ORGANIZATION"]
        )[0]["relation"]
        ```
        """
        columns = [texts, subjects, objects, subject_types, object_types]
        if isinstance(texts, str):
            columns = [None if column is None else [column] for column in columns]
            return self.extract(*columns, batch_size=batch_size)[0]
        x = texts
        if not is_examples(texts) or any(column is not None for column in columns[1:]):
            x = dict(zip(["text", *SPANS, *TYPES], columns))
        logits = self.logits_of(x, batch_size)
        best = np.argmax(logits, axis=1).tolist()
        return [
            {"relation": self.relations[i], "score": row[i]}
            for i, row in zip(best, probabilities(logits).tolist())
        ]

    @accepts_datasets
    def evaluate_relations(self, examples: list[dict], batch_size: int = 32) -> dict:
        """Scores the relations of examples.

        Args:
            examples: list of dicts from `keras_spanbert.data.tacred.read`, with relations.
            batch_size: int. Number of rows per batch. Defaults to `32`.

        Returns:
            Dict in percent: `precision`, `recall` and `f1`, TACRED's micro scores, which leave out
            the model's first relation. For the relations of SemEval-2010 Task 8 also the results of
            `keras_spanbert.metrics.semeval2010_task8`, with the official score `macro_f1`. `total`
            is the number of examples.

        Raises:
            ValueError: if an example has no relation, or one that the model
                does not know. See also `extract`.

        Example:
        ```python
        extractor.evaluate_relations(keras_spanbert.data.tacred.read("dev.json"))["f1"]
        ```
        """
        check_examples(examples)
        names = self.relations
        labels = [names[i] for i in self.label_ids([e.get("relation") for e in examples])]
        predictions = [x["relation"] for x in self.extract(examples, batch_size=batch_size)]
        scores = relation(labels, predictions, no_relation=names[0])
        if self.is_semeval2010:
            scores = {**semeval2010_task8(labels, predictions), **scores}
        return {**scores, "total": len(examples)}
