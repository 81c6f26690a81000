"""Relations between a subject and an object that a text mentions."""

import keras
import numpy as np

from keras_spanbert.data.semeval2010 import RELATIONS
from keras_spanbert.metrics.relation import relation, semeval2010_task8
from keras_spanbert.models.classifier import (
    ClassifierTask,
    checked_dropout,
    checked_names,
    classifier,
    is_examples,
    pooler,
    probabilities,
)
from keras_spanbert.tasks.relation_extraction.preprocessor import (
    SETTINGS,
    SpanBertRelationExtractorPreprocessor,
)
from keras_spanbert.tasks.relation_extraction.sentences import sentences, sentences_of_texts
from keras_spanbert.tasks.relation_extraction.serving import relations_of_texts, signature


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertRelationExtractor(ClassifierTask):
    """Finds the relation of a subject to an object, both given as spans of a text.

    BERT's pooler over `[CLS]`, dropout, and a dense layer. Compiled by default with
    AdamW (learning rate 2e-5), cross-entropy and accuracy.

    `fit`, `evaluate` and `predict` take `x`, examples as
    `keras_spanbert.data.tacred.read` and `semeval2010.read` give them, with their
    relations; or a dict of columns, `{"text", "subject", "object"}` and in modes
    that take them `"subject_type"` and `"object_type"`, with `y`, relations or
    their numbers; or the arrays that `preprocess` gives; or batches of any of
    these: see `fit`. Columns are what `extract` takes. Where the mode takes types,
    `fit` on all rows at once has the preprocessor `adapt` to them first; for
    batches do so yourself.

    Args:
        backbone: `SpanBertBackbone`.
        relations: list of C strings. The first one is no relation, which scores
            leave out: see `keras_spanbert.data.tacred.relation_names`.
        preprocessor: `SpanBertRelationExtractorPreprocessor`. Defaults to `None`.
        dropout: float. Rate before the last layer. Defaults to `0.1`.

    Raises:
        ValueError: where `relations` are no names, each there once, or `dropout`
            is no rate.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[N, L]` to logits
        `[N, C]`.

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
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.2;
        [Zhang et al. 2017](https://aclanthology.org/D17-1004/).
    """

    preprocessor_cls = SpanBertRelationExtractorPreprocessor
    huggingface_class = "BertForSequenceClassification"
    names_argument = "relations"
    label_key = "relation"
    scores = {
        "macro_f1": "official macro F1",
        "precision": "precision",
        "recall": "recall",
        "f1": "F1",
    }
    best_score = "f1"

    def __init__(self, backbone, relations, preprocessor=None, dropout: float = 0.1, **kwargs):
        relations = checked_names(relations=relations)
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.pooler = pooler(backbone)
        self.output_dropout = checked_dropout(backbone, dropout)
        self.classifier = classifier(backbone, len(relations))

        # === Functional Model ===
        pooled = self.pooler(backbone(backbone.input)[:, 0, :])
        logits = self.classifier(self.output_dropout(pooled))
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)

        # === Config ===
        self.relations = relations
        self.dropout = dropout
        if self.is_semeval2010:
            self.best_score = "macro_f1"

    @property
    def is_semeval2010(self) -> bool:
        """Whether the relations are those of SemEval-2010 Task 8."""
        return self.relations[0] == RELATIONS[0] and set(self.relations) <= set(RELATIONS)

    @classmethod
    def is_in(cls, checkpoint) -> bool:
        # A classifier of texts has the same tensors.
        own = SETTINGS in (checkpoint.config.get("task_specific_params") or {})
        return own and super().is_in(checkpoint)

    def checkpoint_settings(self) -> dict:
        settings = super().checkpoint_settings()
        if self.preprocessor is None:
            return settings
        own = {"mode": self.preprocessor.mode, "symbols": self.preprocessor.symbols}
        return {**settings, "task_specific_params": {SETTINGS: own}}

    def preprocess_rows(
        self, x, y, sample_weight, batch_size, shuffle, is_training, needs_labels=True
    ) -> tuple:
        if is_training and self.preprocessor is not None and self.preprocessor.uses_types:
            self.preprocessor.adapt(x)
        return super().preprocess_rows(
            x, y, sample_weight, batch_size, shuffle, is_training, needs_labels
        )

    def serving_function(self):
        """The function from texts with spans to relations to serve, and its arguments."""
        self.check_preprocessor()
        return relations_of_texts(self), signature(self.preprocessor)

    # === Answers ===
    def extract(
        self,
        texts,
        subjects=None,
        objects=None,
        subject_types=None,
        object_types=None,
        batch_size: int = 32,
    ) -> list[dict] | dict:
        """The relations of subjects to objects.

        Args:
            texts: string, or list, tuple, array or tensor of N strings; or a list
                of texts as lists of words; or examples, alone.
            subjects: `(start, end)`, or N of them: the subject is
                `text[start:end]`, in characters, or in words of a text in words.
            objects: likewise. Both may overlap or be the same: each has its
                symbols, and where mode `"ner_text"` lists the words of both, one
                that is in both is the subject's alone.
            subject_types: string, or N strings, such as `"PERSON"`, as of the
                training data. Defaults to `None`, none: for mode `"text"`.
            object_types: likewise.
            batch_size: int, rows at once. Defaults to `32`.

        Returns:
            For each text `{"relation", "score"}`, the likeliest relation and its
            probability. One text gives one of them.

        Raises:
            ValueError: where the model has no preprocessor, an argument is of
                another form or length, a span is not in its text, or a type is
                missing or not known.

        Example:
        ```python
        extractor.extract(
            ["Ann runs Acme."], [(0, 3)], [(9, 13)], ["PERSON"], ["ORGANIZATION"]
        )[0]["relation"]
        ```
        """
        if isinstance(texts, str):
            given = (texts, subjects, objects, subject_types, object_types)
            columns = [None if value is None else [value] for value in given]
            return self.extract(*columns, batch_size=batch_size)[0]
        columns = subjects, objects, subject_types, object_types
        if is_examples(texts) and all(column is None for column in columns):
            given = sentences(texts)
        else:
            given = sentences_of_texts(texts, *columns)
        self.check_preprocessor()
        logits = self.logits_of_rows(self.preprocessor.rows_of(given), batch_size)
        best = np.argmax(logits, axis=1).tolist()
        return [
            {"relation": self.relations[i], "score": row[i]}
            for i, row in zip(best, probabilities(logits).tolist())
        ]

    def evaluate_relations(self, examples: list[dict], batch_size: int = 32) -> dict:
        """Scores the relations of examples.

        Args:
            examples: list of dicts, as `keras_spanbert.data.tacred.read` gives
                them, with relations.
            batch_size: int, rows at once. Defaults to `32`.

        Returns:
            Dict in percent: `precision`, `recall` and `f1`, TACRED's micro scores,
            which leave out the model's first relation; where the relations are
            SemEval-2010 Task 8's also what `keras_spanbert.metrics.semeval2010_task8`
            gives, of which `macro_f1` is the official score. `total` is the number
            of examples.

        Raises:
            ValueError: where an example has no relation, or one that the model
                does not know; see also `extract`.

        Example:
        ```python
        extractor.evaluate_relations(keras_spanbert.data.tacred.read("dev.json"))["f1"]
        ```
        """
        if not is_examples(examples):
            raise ValueError(
                "`examples` must be what `keras_spanbert.data.tacred.read` gives. Received: "
                f"{examples!r:.80}"
            )
        names = self.relations
        labels = [names[i] for i in self.label_ids([e.get("relation") for e in examples])]
        predictions = [x["relation"] for x in self.extract(examples, batch_size=batch_size)]
        scores = relation(labels, predictions, no_relation=names[0])
        if self.is_semeval2010:
            scores = {**semeval2010_task8(labels, predictions), **scores}
        return {**scores, "total": len(examples)}

    def get_config(self):
        own = {"relations": list(self.relations), "dropout": self.dropout}
        return {**super().get_config(), **own}
