"""Classifies words: named entities, parts of speech."""

import keras
import numpy as np

from keras_spanbert.checks import accepts_datasets, check_counts, check_in
from keras_spanbert.data.batches import SEQUENCES, predict_by_length
from keras_spanbert.data.conll import to_iob2
from keras_spanbert.metrics.entities import entities as entity_scores
from keras_spanbert.models.backbone import dense_layer
from keras_spanbert.models.classifier import CLASSIFIER, ClassifierTask, dropout_layer
from keras_spanbert.serving.saved_model import strings
from keras_spanbert.tasks.token_classification import decoding
from keras_spanbert.tasks.token_classification.preprocessor import (
    SpanBertTokenClassifierPreprocessor,
    as_texts,
    read_labels,
    spans_to_labels,
)
from keras_spanbert.text.labels import check_names
from keras_spanbert.text.strings import is_examples


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTokenClassifier(ClassifierTask):
    """Labels words, and finds entities among them.

    A softmax over each word's first token predicts its label. By default the model is
    compiled with AdamW (learning rate 2e-5), the mean cross-entropy over words, and
    their accuracy. A word's other tokens, special tokens and padding do not count.

    Labels mark entities if each is `"O"`, or `B-` or `I-` and a type (also `E-` or `L-`, and `S-`
    or `U-`). Predicted labels then always form whole entities: an `I-` only follows a `B-` or `I-`
    of its type. Other labels, such as parts of speech, are predicted for each word.

    `fit`, `evaluate` and `predict` take `x`, lists of words, with `y`, lists of labels (names or
    numbers); or strings, with `y`, lists of entities as `tag` returns them,
    `{"start", "end", "label"}` in characters; or a list of examples with `words` and `tags`, from
    `keras_spanbert.data.conll.read`, or with `text` and `entities`; or the arrays of `preprocess`;
    or batches of any of these: see `fit`. A batch of texts becomes the batch of their windows.

    Args:
        backbone: `SpanBertBackbone`.
        labels: list of C strings, the names of the labels.
        preprocessor: `SpanBertTokenClassifierPreprocessor`. Defaults to `None`.
        dropout: float. Rate before the last layer. Defaults to `0.1`.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[B, L]` to logits `[B, L, C]`.

    Example:
    ```python
    examples = keras_spanbert.data.conll.read("wnut17train.conll")
    tagger = keras_spanbert.SpanBertTokenClassifier.from_preset(
        "spanbert_hf_base.tar.gz", labels=keras_spanbert.data.conll.tag_names(examples)
    )
    tagger.fit(examples, batch_size=16, epochs=3)
    tagger.tag(["Bob lives in Oslo."])[0]  # [{"text": "Bob", "label": "person", ...}, ...]
    ```

    Reference:
        [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 5.3.
    """

    preprocessor_cls = SpanBertTokenClassifierPreprocessor
    tensor_groups = (CLASSIFIER,)
    huggingface_class = "BertForTokenClassification"
    names_argument = "labels"
    has_class_weights = False
    weights_mark_targets = divides_by_rows = True
    config_names = ("labels", "dropout")
    scores = {"precision": "precision", "recall": "recall", "f1": "F1", "accuracy": "accuracy"}

    def __init__(self, backbone, labels, preprocessor=None, dropout: float = 0.1, **kwargs):
        self.labels = labels = check_names("labels", labels)  # The preprocessor gets them.
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.output_dropout = dropout_layer(backbone, dropout)
        self.classifier = dense_layer(backbone, len(labels), "classifier")

        # === Functional Model ===
        logits = self.classifier(self.output_dropout(backbone(backbone.input)))
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)

        # === Config ===
        self.dropout = dropout
        self.best_score = "f1" if self.is_of_entities else "accuracy"

    @property
    def is_of_entities(self) -> bool:
        """Whether the labels mark entities: see the class."""
        return decoding.is_of_entities(self.labels)

    @property
    def kinds(self) -> list[str]:
        """The types of entities, or the labels if they do not mark entities."""
        return decoding.scheme(self.labels).kinds if self.is_of_entities else list(self.labels)

    def serving_function(self) -> tuple:
        """Returns the function from strings to entities for a SavedModel, and its input specs."""
        self.check_preprocessor()
        return decoding.entity_serving_function(self), strings("text")

    @accepts_datasets
    def tag(self, texts, batch_size: int = 32) -> list:
        """Finds entities in texts of any length.

        If the labels do not mark entities, returns labelled words: see the class.
        The tokenizer splits strings into words at blanks and around each
        punctuation character. Texts can also be lists of words.

        Args:
            texts: string, or list, tuple, array or tensor of strings, or list of lists of words.
            batch_size: int. Number of windows per batch. Defaults to `32`.

        Returns:
            For each text a list of `{"text", "label", "start", "end", "score"}` in
            order: the exact slice `text[start:end]`, the type of entity, and the mean probability
            of its words' labels. A single string gives one list. If the labels do not mark
            entities, the list has each word whose label is not `"O"`. For lists of words, `start`
            and `end` count words, and `text` is `words[start:end]` with blanks between them.

        Raises:
            ValueError: if the model has no preprocessor, `texts` contain something
                else, or `batch_size` is not an integer of at least 1.

        Example:
        ```python
        tagger.tag("Bob lives in Oslo.")[0]["label"]  # "person"
        ```
        """
        if isinstance(texts, str):
            return self.tag([texts], batch_size)[0]
        texts = as_texts(texts)
        words, scores, labels, rules = self._decode(texts, batch_size)
        found = decoding.entities(np, scores, labels, words.num_words, rules)
        start = np.cumsum(words.num_words) - words.num_words
        answers = [[] for _ in texts]
        for text, first, last, kind, score in zip(*(array.tolist() for array in found)):
            if words.bounds is None:
                begin, end = first - int(start[text]), last + 1 - int(start[text])
                slice_of_text = " ".join(texts[text][begin:end])
            else:
                begin, end = int(words.bounds[first, 0]), int(words.bounds[last, 1])
                slice_of_text = texts[text][begin:end]
            answers[text].append(
                {
                    "text": slice_of_text,
                    "label": rules.kinds[kind],
                    "start": begin,
                    "end": end,
                    "score": score,
                }
            )
        return answers

    @accepts_datasets
    def predict_tags(self, words, batch_size: int = 32) -> list[list[str]]:
        """Predicts the label of each word.

        Args:
            words: list of lists of words, or of examples with `words`.
            batch_size: int. Number of windows per batch. Defaults to `32`.

        Returns:
            For each text a list of names, one per word. A word without tokens, such
            as a zero-width space, is `"O"`.

        Raises:
            ValueError: see `tag`.

        Example:
        ```python
        tagger.predict_tags([["Bob", "lives", "in", "Oslo"]])  # [["B-person", "O", "O", ...]]
        ```
        """
        texts = as_texts(words)
        are_lists = not any(isinstance(text, str) for text in texts)
        check_in("words", words, are_lists, "a list of lists of words. Use `tag` for strings")
        tags, _ = self._tags(texts, batch_size)
        return tags

    def _tags(self, texts, batch_size):
        """Returns the names of words' labels, one list per text, and the words."""
        words, _, labels, rules = self._decode(texts, batch_size)
        return _names_by_text(rules.names, labels, words), words

    @accepts_datasets
    def evaluate_entities(self, examples, strict: bool = False, batch_size: int = 32) -> dict:
        """Scores the predicted entities of a data set.

        Args:
            examples: list of dicts with `words` and `tags`, from `keras_spanbert.data.conll.read`,
                or with `text` and `entities`, as `fit` takes them.
            strict: bool. See `keras_spanbert.metrics.entities`. It makes no difference for tags in
                IOB2, as the model predicts whole entities. Defaults to `False`.
            batch_size: int. Number of windows per batch. Defaults to `32`.

        Returns:
            Dict of `precision`, `recall`, `f1` and `by_type`, see
            `keras_spanbert.metrics.entities`, and `accuracy` of words, all in percent. Labels that
            do not mark entities have only `accuracy`. `total` is the number of examples.

        Raises:
            ValueError: if `examples` are something else, or have labels that the
                model does not have. See also `tag`.

        Example:
        ```python
        scores = tagger.evaluate_entities(keras_spanbert.data.conll.read("emerging.dev.conll"))
        ```
        """
        rule = (
            "a list of dicts with `words` and `tags`, as from `keras_spanbert.data.conll.read`, or "
            "with `text` and `entities`"
        )
        are_labelled = is_examples(examples) and None not in read_labels(examples)
        check_in("examples", examples, are_labelled, rule)
        texts, gold = as_texts(examples), read_labels(examples)
        if isinstance(texts[0], str):
            predicted, words = self._tags(texts, batch_size)
            places = [example.get("place") for example in examples]
            labels = spans_to_labels(words, texts, gold, list(self.labels), places)
            gold = _names_by_text(self.labels, labels, words)
        else:
            gold = [list(tags) for tags in gold]
            self._check_gold(texts, gold)
            predicted, _ = self._tags(texts, batch_size)
        scores = {}
        if self.is_of_entities:
            scores = entity_scores(gold, predicted, strict)
            # The model may have other prefixes than the file.
            gold, predicted = ([*map(to_iob2, tags)] for tags in (gold, predicted))
        pairs = [pair for row in zip(gold, predicted) for pair in zip(*row)]
        right = sum(tag == found for tag, found in pairs)
        accuracy = 100.0 * right / max(len(pairs), 1)
        return {**scores, "accuracy": accuracy, "total": len(examples)}

    def _check_gold(self, texts, gold):
        of_entities = self.is_of_entities
        known = [*self.kinds, "O"] if of_entities else self.labels
        for i, (words, tags) in enumerate(zip(texts, gold)):
            if len(words) != len(tags):
                raise ValueError(
                    f"`examples` must have a tag for each word. Received: {len(tags)} for "
                    f"{len(words)} words in examples[{i}]"
                )
            for tag in tags:
                has_prefix = of_entities and isinstance(tag, str) and tag != "O"
                if (tag.partition("-")[2] if has_prefix else tag) not in known:
                    raise ValueError(
                        f"A tag must be one of the model's {len(self.labels)}: "
                        f"{', '.join(self.labels[:20])}. Received: {tag!r:.80} in examples[{i}]"
                    )

    def _decode(self, texts, batch_size):
        """Returns the words of texts, the log-probabilities of labels `[S, C]`, and the best."""
        check_counts(batch_size=batch_size)
        self.check_preprocessor()
        self.warn_if_untrained()
        words = self.preprocessor.words(texts)
        windows = self.preprocessor.windows_of(words)
        inputs = {name: windows[name] for name in SEQUENCES}
        rules = decoding.scheme(self.labels)
        # A word without tokens is outside of entities.
        scores = np.full([words.num_words.sum(), len(rules.names)], -np.inf)
        scores[:, rules.outside] = 0.0
        for rows, logits in predict_by_length(self, inputs, batch_size):
            is_label = windows["is_label"][rows, : logits.shape[1]]
            found = decoding.log_probabilities(np, logits[is_label], rules)
            scores[windows["word"][rows, : logits.shape[1]][is_label]] = found
        return words, scores, decoding.best_labels(np, scores, words.num_words, rules), rules


def _names_by_text(names, labels, words):
    """Returns the names of labels, one list per text."""
    found = iter(labels.tolist())
    return [[names[next(found)] for _ in range(count)] for count in words.num_words]
