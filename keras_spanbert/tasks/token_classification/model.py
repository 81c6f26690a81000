"""Classification of words: named entities, parts of speech."""

import keras
import numpy as np

from keras_spanbert.metrics.entities import entities as entity_scores
from keras_spanbert.models.arguments import check_counts
from keras_spanbert.models.classifier import (
    CLASSIFIER,
    ClassifierTask,
    checked_dropout,
    checked_names,
    classifier,
    is_examples,
    label_id,
)
from keras_spanbert.models.length_batches import predict_by_length
from keras_spanbert.serving.signature import strings
from keras_spanbert.tasks.token_classification.decoding import (
    best_labels,
    entities,
    is_of_entities,
    log_probabilities,
    scheme,
)
from keras_spanbert.tasks.token_classification.preprocessor import (
    SpanBertTokenClassifierPreprocessor,
    as_texts,
)
from keras_spanbert.tasks.token_classification.serving import entities_of_texts
from keras_spanbert.tasks.token_classification.spans import labels_of_spans
from keras_spanbert.tasks.token_classification.words import Words

_INPUTS = ("token_ids", "segment_ids", "padding_mask")


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTokenClassifier(ClassifierTask):
    """Labels words, and finds entities among them.

    A softmax over each word's first token. Compiled by default with AdamW
    (learning rate 2e-5), the mean cross-entropy over words, and their accuracy:
    a word's other tokens, special tokens and padding count for nothing.

    Labels are of entities where each is `"O"`, or `B-` or `I-` and a type (`E-` and
    `S-` too): the labels that the model gives then always make whole entities, as
    an `I-` stands behind a `B-` or `I-` of its type alone. All other labels, as
    parts of speech, stand for a word each.

    `fit`, `evaluate` and `predict` take `x`, a list of lists of words, with `y`, a
    list of lists of labels (names or numbers); or strings, with `y`, a list of lists
    of entities, `{"start", "end", "label"}` in characters, as `tag` gives them; or a
    list of examples that have `words` and `tags`, as `keras_spanbert.data.conll.read`
    gives them, or `text` and `entities`; or the arrays of `preprocess`; or batches of
    these: see `fit`. A batch of texts becomes the batch of their windows.

    Args:
        backbone: `SpanBertBackbone`.
        labels: list of C strings, each label's name.
        preprocessor: `SpanBertTokenClassifierPreprocessor`. Defaults to `None`.
        dropout: float, before the last layer. Defaults to `0.1`.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[B, L]` to logits
        `[B, L, C]`.

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
    checkpoint_parts = (CLASSIFIER,)
    huggingface_class = "BertForTokenClassification"
    names_argument = "labels"
    label_key = "tags"
    scores = {"precision": "precision", "recall": "recall", "f1": "F1", "accuracy": "accuracy"}

    def __init__(self, backbone, labels, preprocessor=None, dropout: float = 0.1, **kwargs):
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        labels = checked_names(labels=labels)
        self.output_dropout = checked_dropout(backbone, dropout)
        self.classifier = classifier(backbone, len(labels))

        # === Functional Model ===
        logits = self.classifier(self.output_dropout(backbone(backbone.input)))
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)

        # === Config ===
        self.labels = labels
        self.dropout = dropout
        self.best_score = "f1" if is_of_entities(labels) else "accuracy"

    @property
    def is_of_entities(self) -> bool:
        """Whether the labels are of entities: see the class."""
        return is_of_entities(self.labels)

    @property
    def kinds(self) -> list[str]:
        """The types of entities, or the labels where they are of none."""
        return scheme(self.labels).kinds if self.is_of_entities else list(self.labels)

    def preprocess(self, x, y=None, sample_weight=None) -> tuple:
        """Words as the arrays of their windows.

        Args:
            x: see the class.
            y: labels. Defaults to `None`: those that the examples of `x` have, or
                none.
            sample_weight: list or array of weights, one a text. Defaults to `None`.

        Returns:
            `(x, y, sample_weight)`: the model's inputs; with labels, these and
            their weights, `[W, L]`, 0 where no word's label stands.

        Raises:
            ValueError: where `x` or `y` are something else, a label is none of the
                model's, words and labels are not as many, or entities cut or share words.
        """
        self.check_preprocessor()
        places = None
        if y is None and is_examples(x) and any(row is not None for row in _labels_of_examples(x)):
            y, places = _labels_of_examples(x), [example.get("place") for example in x]
        texts = as_texts(x)
        if y is None:
            return self.preprocessor.call(texts), None, None
        words = self.preprocessor.words(texts)
        labels = self.word_labels(texts, y, words, places)
        windows = self.preprocessor.windows_of(words)
        example = windows["example_index"]
        is_label = windows["is_label"]
        starts = np.cumsum(words.num_words) - words.num_words
        place = np.where(is_label, starts[example][:, None] + windows["word_index"], 0)
        weights = is_label.astype("float32")
        if sample_weight is not None:
            sample_weight = np.asarray(sample_weight, "float32")
            if sample_weight.shape != (len(texts),):
                raise ValueError(
                    "`sample_weight` must have a number for each text. Received: shape "
                    f"{sample_weight.shape} for {len(texts)} texts"
                )
            weights *= sample_weight[example][:, None]
        inputs = {name: windows[name] for name in _INPUTS}
        labels = np.append(labels, np.int32(0))  # There may be none.
        return inputs, np.where(is_label, labels[place], np.int32(0)), weights

    def word_labels(self, texts: list, labels, words: Words, places=None) -> np.ndarray:
        """The numbers of all words' labels, one text after another: int32 `[S]`.

        Args:
            texts: list of lists of words, or of strings.
            labels: list, array or ragged tensor of as many lists of labels, names or
                numbers; of strings a list of lists of entities.
            words, places: see `labels_of_spans`.

        Raises:
            ValueError: where they are not as many, or one is none of the model's.
        """
        if texts and isinstance(texts[0], str):
            if not isinstance(labels, (list, tuple)):
                raise ValueError(
                    "`y` must be a list of lists of entities, where `x` are strings. Received: "
                    f"{labels!r:.80}, of type {type(labels).__name__}"
                )
            return labels_of_spans(words, texts, labels, list(self.labels), places)
        rows = labels.to_list() if hasattr(labels, "to_list") else labels
        rows = np.asarray(rows).tolist() if hasattr(rows, "__array__") else rows
        if not isinstance(rows, (list, tuple)) or len(rows) != len(texts):
            raise ValueError(
                f"`y` must be a list of labels for each of the {len(texts)} lists of words. "
                f"Received: {labels!r:.80}, of type {type(labels).__name__}"
            )
        numbers_of = {name: i for i, name in enumerate(self.labels)}
        found = []
        for i, (words, row) in enumerate(zip(texts, rows)):
            row = np.asarray(row).tolist() if hasattr(row, "__array__") else row
            if not isinstance(row, (list, tuple)) or len(row) != len(words):
                raise ValueError(
                    f"`y` must have a label for each word. Received: {row!r:.80} for {len(words)} "
                    f"words in text {i}"
                )
            for j, (word, label) in enumerate(zip(words, row)):
                is_padding = word == "" and label in ("", b"")
                place = f"word {j} of text {i}"
                found.append(
                    0 if is_padding else label_id(label, numbers_of, len(self.labels), place)
                )
        return np.array(found, np.int32)

    def serving_function(self) -> tuple:
        """The function from strings to entities that a SavedModel serves, and its argument."""
        self.check_preprocessor()
        return entities_of_texts(self), strings("text")

    def tag(self, texts, batch_size: int = 32) -> list:
        """Finds entities in texts of any length.

        Labels are of entities, or of words: see the class. Words are those of the
        tokenizer, split at blanks and around each punctuation character; texts that
        are given as lists have words of their own.

        Args:
            texts: string, or list, tuple, array or tensor of strings; or list of
                lists of words.
            batch_size: int, windows at once. Defaults to `32`.

        Returns:
            For each text, one list for a single string, a list of `{"text",
            "label", "start", "end", "score"}` in order: the exact slice
            `text[start:end]`, the type of entity, and the mean probability of its
            words' labels. Of labels that are of no entities, each word has its own,
            but for `"O"`. Of lists of words, `start` and `end` count words, and
            `text` is `words[start:end]` with blanks between them.

        Raises:
            ValueError: where the model has no preprocessor, `texts` hold something
                else, or `batch_size` is no integer of at least 1.

        Example:
        ```python
        tagger.tag("Bob lives in Oslo.")[0]["label"]  # "person"
        ```
        """
        if isinstance(texts, str):
            return self.tag([texts], batch_size)[0]
        texts = as_texts(texts)
        words, scores, rules = self._scores(texts, batch_size)
        labels = best_labels(np, scores, words.num_words, rules)
        found = entities(np, scores, labels, words.num_words, rules)
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

    def predict_tags(self, words, batch_size: int = 32) -> list[list[str]]:
        """The label of each word.

        Args:
            words: list of lists of words, or of examples that have `words`.
            batch_size: int, windows at once. Defaults to `32`.

        Returns:
            For each text a list of names, one a word; a word without tokens, as a
            zero-width space, is `"O"`.

        Raises:
            ValueError: see `tag`.

        Example:
        ```python
        tagger.predict_tags([["Bob", "lives", "in", "Oslo"]])  # [["B-person", "O", "O", ...]]
        ```
        """
        texts = as_texts(words)
        if any(isinstance(text, str) for text in texts):
            raise ValueError(
                f"`words` must be a list of lists of words: `tag` takes strings. Received: "
                f"{words!r:.80}"
            )
        tags, _ = self._tags(texts, batch_size)
        return tags

    def _tags(self, texts, batch_size):
        """The names of words' labels, a list a text, and the words."""
        words, scores, rules = self._scores(texts, batch_size)
        labels = best_labels(np, scores, words.num_words, rules)
        return _by_text([rules.names[label] for label in labels.tolist()], words), words

    def evaluate_entities(self, examples, strict: bool = False, batch_size: int = 32) -> dict:
        """Scores the entities that are found in the sentences of a data set.

        Args:
            examples: list of dicts of `words` and `tags`, as
                `keras_spanbert.data.conll.read` gives them; or of `text` and
                `entities`, as `fit` takes them.
            strict: bool. See `keras_spanbert.metrics.entities`: of tags in IOB2 it
                makes no difference, as those of the model are whole entities.
                Defaults to `False`.
            batch_size: int, windows at once. Defaults to `32`.

        Returns:
            Dict of `precision`, `recall`, `f1` and `by_type`: see
            `keras_spanbert.metrics.entities`; and `accuracy`, of words. All are in
            percent. Labels that are of no entities have the accuracy alone. `total`
            is the number of examples.

        Raises:
            ValueError: where `examples` are something else, or have labels that the
                model does not have; see `tag`.

        Example:
        ```python
        scores = tagger.evaluate_entities(keras_spanbert.data.conll.read("emerging.dev.conll"))
        ```
        """
        if not is_examples(examples) or None in _labels_of_examples(examples):
            raise ValueError(
                "`examples` must be a list of dicts of `words` and `tags`, as "
                "`keras_spanbert.data.conll.read` gives them, or of `text` and `entities`. "
                f"Received: {examples!r:.80}"
            )
        texts, gold = as_texts(examples), _labels_of_examples(examples)
        if isinstance(texts[0], str):
            predicted, words = self._tags(texts, batch_size)
            places = [example.get("place") for example in examples]
            labels = labels_of_spans(words, texts, gold, list(self.labels), places)
            gold = _by_text([self.labels[label] for label in labels], words)
        else:
            gold = [list(tags) for tags in gold]
            self._check_gold(texts, gold)
            predicted, _ = self._tags(texts, batch_size)
        pairs = [pair for row in zip(gold, predicted) for pair in zip(*row)]
        right = sum(tag == found for tag, found in pairs)
        accuracy = 100.0 * right / max(len(pairs), 1)
        scores = {"accuracy": accuracy, "total": len(examples)}
        if not self.is_of_entities:
            return scores
        return {**entity_scores(gold, predicted, strict), **scores}

    def _check_gold(self, texts, gold):
        known = {*self.kinds, "O"} if self.is_of_entities else set(self.labels)
        for i, (words, tags) in enumerate(zip(texts, gold)):
            if len(words) != len(tags):
                raise ValueError(
                    f"`examples` must have a tag for each word. Received: {len(tags)} for "
                    f"{len(words)} words in examples[{i}]"
                )
            for tag in tags:
                is_tag = isinstance(tag, str)
                of_known = tag
                if is_tag and self.is_of_entities and tag != "O":
                    of_known = tag.partition("-")[2]
                if not is_tag or of_known not in known:
                    raise ValueError(
                        f"A tag must be one of the model's {len(self.labels)}: "
                        f"{', '.join(self.labels[:20])}. Received: {tag!r:.80} in examples[{i}]"
                    )

    def _scores(self, texts, batch_size):
        """The words of texts, and the logarithms of their labels' probabilities `[S, C]`."""
        check_counts(batch_size=batch_size)
        self.check_preprocessor()
        self.warn_if_untrained()
        words = self.preprocessor.words(texts)
        windows = self.preprocessor.windows_of(words)
        inputs = {name: windows[name] for name in _INPUTS}
        start = np.cumsum(words.num_words) - words.num_words
        word = start[windows["example_index"]][:, None] + windows["word_index"]
        rules = scheme(self.labels)
        # A word without tokens is outside.
        scores = np.full([words.num_words.sum(), len(rules.names)], -np.inf)
        scores[:, rules.outside] = 0.0
        for rows, logits in predict_by_length(self, inputs, batch_size):
            is_label = windows["is_label"][rows, : logits.shape[1]]
            found = log_probabilities(np, logits[is_label], rules)
            scores[word[rows, : logits.shape[1]][is_label]] = found
        return words, scores, rules

    def get_config(self):
        config = super().get_config()
        config.update({"labels": list(self.labels), "dropout": self.dropout})
        return config


def _labels_of_examples(examples):
    """The tags of words, or the entities of texts, `None` where an example has none."""
    return [example.get("tags" if "words" in example else "entities") for example in examples]


def _by_text(names, words):
    names = iter(names)
    return [[next(names) for _ in range(count)] for count in words.num_words]
