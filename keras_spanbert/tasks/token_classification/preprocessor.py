"""Converts words or texts to windows for `SpanBertTokenClassifier`.

Legend: N = texts, T = tokens of all texts, S = words of all texts, L = tokens per window.
"""

import collections
import functools

import keras
import numpy as np

from keras_spanbert.checks import (
    accepts_datasets,
    check_counts,
    check_in,
    check_kind,
    check_length,
    is_integer,
    to_python,
)
from keras_spanbert.data.batches import SEQUENCES
from keras_spanbert.layers.array_functions import append_end, int32, is_symbolic, namespace, take
from keras_spanbert.models.preprocessor import LabelledPreprocessor, as_weights, label_dtype
from keras_spanbert.optional import tf
from keras_spanbert.tasks.token_classification.decoding import is_of_entities
from keras_spanbert.text.labels import as_labels
from keras_spanbert.text.strings import is_examples
from keras_spanbert.text.tokens import (
    DocSpans,
    Part,
    doc_spans,
    expand,
    in_chunks,
    is_max_context,
    token_rows,
    tokenize_repeated,
    tokenize_texts,
)

# The weight of labels that the user gave weight 0. A weight of 0 means that there is no label.
LEAST_WEIGHT = np.float32(1e-30)

Words = collections.namedtuple(
    "Words",
    [
        "ids",  # [T + 1], with one more element for an index that is not used
        "word",  # [T + 1], each token's word, counted over all texts
        "is_first",  # bool [T + 1], whether it is the word's first token
        "starts",  # [N], index of each text's first token
        "sizes",  # [N], number of tokens of each text
        "num_words",  # [N]
        "bounds",  # [S, 2], start and end of each word in its text; `None` for lists of words
    ],
)


def _cumulative_counts(xp, counts):
    """Returns 0 and the cumulative sums."""
    return xp.concatenate([np.zeros(1, np.int32), xp.cumsum(counts, dtype=np.int32)], axis=0)


def spans_to_labels(
    words: Words, texts: list[str], spans, labels: list[str], places: list | None = None
) -> np.ndarray:
    """Returns the numbers of all words' labels, one text after another: int32 `[S]`.

    `spans` has a list of `{"start", "end", "label"}` for each text, `labels` are the model's, and
    `places` describe the texts in messages, by default by number. Raises `ValueError` if a span is
    not in its text, does not consist of whole words, shares a word, or its label is unknown.
    """
    if len(spans) != len(texts):
        raise ValueError(
            f"`y` must have a list of entities for each text. Received: {len(spans)} for "
            f"{len(texts)} texts"
        )
    outside = labels.index("O") if "O" in labels else -1
    found = np.full(len(words.bounds), outside, np.int32)
    ends = np.cumsum(words.num_words)
    for i, (text, of_text) in enumerate(zip(texts, spans)):
        place = places and places[i] or f"text {i}"
        here = slice(ends[i] - words.num_words[i], ends[i])
        bounds, is_taken = words.bounds[here], np.zeros(words.num_words[i], bool)
        if not isinstance(of_text, (list, tuple)):
            raise ValueError(
                "The entities of a text must be a list of {'start', 'end', 'label'}. Received: "
                f"{of_text!r:.80} for {place}"
            )
        for span in of_text:
            first, last = _find_words(span, text, bounds, is_taken, place)
            is_taken[first:last] = True
            names = _names(span["label"], last - first, labels)
            if not {*names} <= {*labels}:
                raise ValueError(
                    f"An entity's label must be a type of the model's labels, "
                    f"{', '.join(labels[:20])}. Received: {span['label']!r:.80} in {place}"
                )
            found[here][first:last] = [labels.index(name) for name in names]
        if outside < 0 and not is_taken.all():
            raise ValueError(
                f"Each word must have a label: the model has no 'O'. Received: none for a word of "
                f"{place}"
            )
    return found


def _find_words(span, text, bounds, is_taken, place):
    """Returns the first word of an entity, and the one after its last. Checks the entity."""
    received = f"{span!r:.80}"

    def check(is_right, rule):
        if not is_right:
            raise ValueError(f"An entity must {rule}. Received: {received} in {place}")

    values = span if isinstance(span, dict) else {}
    start, end = values.get("start"), values.get("end")
    are_right = is_integer(start) and is_integer(end) and isinstance(values.get("label"), str)
    check(are_right, "be {'start', 'end', 'label'}, two integers and a string")
    is_inside = 0 <= start < end <= len(text)
    check(is_inside, f"be in its text, of {len(text)} characters")
    first = int(np.searchsorted(bounds[:, 1], start, side="right"))
    last = int(np.searchsorted(bounds[:, 0], end, side="left"))
    received += f", {text[start:end]!r:.80}"
    check(first < last, "contain a word")
    check(not is_taken[first:last].any(), "have no word of another one")
    begin, stop = bounds[first, 0], bounds[last - 1, 1]
    received += f" of {text[begin:stop]!r:.80}"
    check(start <= begin and stop <= end, "begin and end where words do")
    return first, last


def _names(label, count, labels):
    """Returns the labels of the words of an entity."""
    if not is_of_entities(labels):
        return [label] * count
    known = set(labels)

    def of(prefixes):
        """Returns the first of these labels that the model has, or the last."""
        names = [f"{prefix}-{label}" for prefix in prefixes]
        return next((name for name in names if name in known), names[-1])

    begin = of("BI")
    if count == 1:
        return [of("SU" + begin[0])]
    return [begin, *[of("IB")] * (count - 2), of("ELI")]


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTokenClassifierPreprocessor(LabelledPreprocessor):
    """Converts words or texts to windows and places their labels.

    A window is `[CLS] part of the text [SEP]` with segment 0. A long text has several
    windows, whose parts start `doc_stride` tokens apart. The label of a word is at its
    first token, in the one window that shows that token with the most context. Each
    word is therefore counted exactly once.

    A text is a list of words, each tokenized separately, or a string, which the
    tokenizer splits into words at blanks and around each punctuation character.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a window, at least 3. Defaults to `512`.
        doc_stride: int. Number of tokens from the start of a part to that of the next.
            Defaults to `None`: 128, but at most half of a window's capacity.
        label_names: list of C strings, for labels by name and entities. A `SpanBertTokenClassifier`
            sets it. Defaults to `None`: labels are numbers.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: if a window may have fewer tokens than the stride, so that some
            tokens would be in no window.

    Call arguments:
        x: N lists of words, or a dict of `"words"` with these; or strings `[N]`; or a
            list of examples with `words` and `tags`, from
            `keras_spanbert.data.conll.read`, or with `text` and `entities`.
        y: N lists of labels, names or numbers, one per word. For strings, N lists of
            entities, `{"start", "end", "label"}`, in characters, which are not
            possible in a `tf.data` pipeline. Defaults to `None`, no labels.
        sample_weight: numbers `[N]`. Defaults to `None`.

    Returns:
        `x` or `(x, y, sample_weight)`. `x` is a dict of `token_ids`, `segment_ids`
        and `padding_mask`, int32 `[W, L]`. `y` is int32 and `sample_weight` float32
        `[W, L]`, 0 for tokens without a word's label. The labels of a text of weight 0
        have weight 1e-30 instead: they have no effect, but count in the mean of losses.

    Examples:
    ```python
    preprocessor = keras_spanbert.SpanBertTokenClassifierPreprocessor(
        tokenizer, sequence_length=128, label_names=["O", "B-place"]
    )
    preprocessor.inputs([["Bob", "lives", "in", "Oslo"]])["word_index"][0, :6]  # -1, 0, 1, 2, 3, -1
    x, y, sample_weight = preprocessor({"words": [["In", "Oslo"]]}, [["O", "B-place"]])

    # Batches of a `tf.data.Dataset`, on every backend. Words and labels are ragged or padded
    # with "".
    x = {"words": tf.ragged.constant([["In", "Oslo"], ["Oslo"]])}
    y = tf.ragged.constant([["O", "B-place"], ["B-place"]])
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(2).map(preprocessor)
    ```
    """

    config_names = ("sequence_length", "doc_stride")

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 512,
        doc_stride: int | None = None,
        label_names: list[str] | None = None,
        **kwargs,
    ):
        super().__init__(label_names, **kwargs)
        self.sequence_length = check_length(sequence_length)
        if doc_stride is None:
            doc_stride = self.arguments_for_length(self.sequence_length)["doc_stride"]
        check_counts(doc_stride=doc_stride)
        most = self.sequence_length - 2
        rule = f"at most `sequence_length` less 2 special tokens, {most}"
        check_in("doc_stride", doc_stride, doc_stride <= most, rule)
        self.tokenizer = tokenizer
        self.doc_stride = int(doc_stride)

    @classmethod
    def arguments_for_length(cls, sequence_length: int) -> dict:
        """Returns the stride of question answering, reduced for short windows."""
        return {"doc_stride": min(128, max(1, (sequence_length - 2) // 2))}

    def rows(self, x) -> dict:
        windows = self.windows_of(self.words(as_texts(x)))
        return {name: windows[name] for name in SEQUENCES}

    def convert(self, x, y, sample_weight):
        places = None
        if y is None and is_examples(x):
            y, places = read_labels(x), [example.get("place") for example in x]
            y = None if all(labels is None for labels in y) else y
        if y is None:
            return self.rows(x)
        texts = as_texts(x)
        words = self.words(texts)
        labels = self.word_labels(texts, y, words, places)
        windows = self.windows_of(words)
        is_label = windows["is_label"]
        y = np.zeros(is_label.shape, labels.dtype if labels.size else np.int32)
        y[is_label] = labels[windows["word"][is_label]]
        weights = is_label.astype(np.float32)
        if sample_weight is not None:
            sample_weight = np.maximum(as_weights(sample_weight, texts, "text"), LEAST_WEIGHT)
            weights *= sample_weight[windows["example_index"]][:, None]
        return {name: windows[name] for name in SEQUENCES}, y, weights

    def signature(self, x, y, sample_weight):
        inputs, shape = self.sequence_specs(None), [None, self.sequence_length]
        if y is None:
            return inputs
        labels = tf.TensorSpec(shape, label_dtype(y))
        return inputs, labels, tf.TensorSpec(shape, "float32")

    @accepts_datasets
    def inputs(self, words) -> dict:
        """Makes one row for each list of words. Rows that are too long are cut.

        Args:
            words: list of N lists of strings.

        Returns:
            Dict of int32 arrays `[N, L]`: `token_ids`, `segment_ids` (all 0), `padding_mask`, and
            `word_index`, the number of each token's word, -1 for special tokens and padding.

        Raises:
            ValueError: if `words` are something else.
        """
        texts = as_texts(words)
        are_lists = not any(isinstance(text, str) for text in texts)
        check_in("words", words, are_lists, "a list of lists of strings")
        all_words = self.words(texts)
        room = self.sequence_length - 2
        self.log_cut(all_words.sizes > room)
        all_words = all_words._replace(sizes=np.minimum(all_words.sizes, room))
        windows = _number_words(self.windows_of(all_words), all_words)
        return {name: windows[name] for name in [*SEQUENCES, "word_index"]}

    @accepts_datasets
    def windows(self, texts) -> dict:
        """Cuts texts into windows.

        Args:
            texts: list of lists of words, or of strings.

        Returns:
            Dict of int32 arrays: `token_ids`, `segment_ids`, `padding_mask`,
            `word_index` `[W, L]`, see `inputs`; `example_index` `[W]`, the
            window's text; and bool `is_label` `[W, L]`, the tokens that have words'
            labels. A word without tokens, such as a zero-width space, has none.

        Raises:
            ValueError: if `texts` are something else.
        """
        words = self.words(as_texts(texts))
        return _number_words(self.windows_of(words), words)

    def words(self, texts) -> Words:
        """Returns the words of texts with their tokens. Texts are of one kind: see `as_texts`."""
        if is_symbolic(texts) or (texts and isinstance(texts[0], str)):
            return self._words_of_strings(texts)
        num_words = np.array([len(words) for words in texts], np.int32)
        tokens = tokenize_repeated(self.tokenizer, [word for words in texts for word in words])
        word, token = expand(np, tokens.starts, tokens.sizes)
        up_to = _cumulative_counts(np, tokens.sizes)  # Number of tokens up to each word.
        ends = np.cumsum(num_words, dtype=np.int32)
        starts = up_to[ends - num_words]
        return Words(
            np.append(tokens.ids[token], np.int32(0)),
            np.append(word, np.int32(0)),
            np.append(token == tokens.starts[word], False),
            starts,
            up_to[ends] - starts,
            num_words,
            None,
        )

    def _words_of_strings(self, texts):
        xp = namespace(texts)
        tokens = tokenize_texts(self.tokenizer, texts, with_offsets=True)
        is_first = ~take(xp, self.is_continuation, tokens.ids[:-1])
        # A word ends where its last token does.
        is_last = append_end(xp, is_first, True)[1:]
        firsts, lasts = (xp.nonzero(x)[0] for x in (is_first, is_last))
        up_to = _cumulative_counts(xp, int32(xp, is_first))  # Number of words up to each token.
        bounds = [take(xp, tokens.offsets[:, 0], firsts), take(xp, tokens.offsets[:, 1], lasts)]
        return Words(
            tokens.ids,
            append_end(xp, up_to[1:] - 1, np.int32(0)),
            append_end(xp, is_first, False),
            tokens.starts,
            tokens.sizes,
            take(xp, up_to, tokens.starts + tokens.sizes) - take(xp, up_to, tokens.starts),
            xp.stack(bounds, axis=1),
        )

    def word_labels(self, texts, labels, words: Words, places=None):
        """Returns the numbers of all words' labels, one text after another: int32 `[S]`.

        `labels` has a list for each of `texts`, which `as_texts` returned: of names, of numbers, or
        of entities. Raises `ValueError` if a word has no label or an unknown one.
        """
        if texts and isinstance(texts[0], str):
            rule = "a list of lists of entities if `x` are strings"
            check_kind("y", labels, isinstance(labels, (list, tuple)), rule)
            names = check_in(
                "label_names", self.label_names, self.label_names, "a list for entities"
            )
            return spans_to_labels(words, texts, labels, list(names), places)
        rows = to_python(labels)
        rule = f"a list of labels for each of the {len(texts)} lists of words"
        check_kind("y", labels, isinstance(rows, list) and len(rows) == len(texts), rule)
        found, places = [], []
        for i, (words, row) in enumerate(zip(texts, rows)):
            if not isinstance(row, list) or len(row) != len(words):
                raise ValueError(
                    f"`y` must have a label for each word. Received: {row!r:.80} for {len(words)} "
                    f"words in text {i}"
                )
            # An empty word is padding without tokens, so its label does not matter.
            any_label = self.label_names[0] if self.label_names else 0
            found += [label if word else any_label for word, label in zip(words, row)]
            places += [f"word {j} of text {i}" for j in range(len(words))]
        return as_labels(found, self.label_names, places.__getitem__)

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """Whether each token of the vocabulary continues a word: bool `[V]`."""
        suffix, vocabulary = self.tokenizer.suffix_indicator, self.tokenizer.get_vocabulary()
        return np.array([x.startswith(suffix) for x in vocabulary], bool)

    def windows_of(self, words: Words) -> dict:
        """Returns `windows`, but with `word`, counted over all texts, instead of `word_index`."""
        xp = namespace(words.ids)
        length, stride = self.sequence_length, self.doc_stride
        spans = doc_spans(xp, xp.ones_like(words.sizes), words.sizes, length, stride)

        def lay_out(rows):
            some = DocSpans(*(x[rows] for x in spans))
            starts = take(xp, words.starts, some.example) + some.first
            parts = [Part(words.ids, starts, some.count)]
            laid_out, [(is_inside, token)] = token_rows(xp, parts, length, self.tokenizer)
            is_shown = is_max_context(xp, some, length, stride)
            return {
                **laid_out,
                "word": xp.where(is_inside, take(xp, words.word, token), np.int32(-1)),
                "is_label": is_inside & take(xp, words.is_first, token) & is_shown,
            }

        return {**in_chunks(xp, spans.example, lay_out), "example_index": spans.example}


def _number_words(windows, words):
    """Returns windows with the number of each word in its text, `word_index`."""
    word = windows.pop("word")
    first = np.cumsum(words.num_words, dtype=np.int32) - words.num_words
    index = word - first[windows["example_index"]][:, None]
    return {**windows, "word_index": np.where(word >= 0, index, np.int32(-1))}


def read_labels(examples) -> list:
    """Returns the tags of words, or the entities of texts, or `None` for unlabelled examples."""
    return [example.get("tags" if "words" in example else "entities") for example in examples]


def as_texts(texts):
    """Converts texts in any container to a list of strings or of lists of words."""
    are_words = isinstance(texts, dict) and "words" in texts
    if are_words:
        texts = texts["words"]
    found = to_python(texts)
    if isinstance(found, list):
        found = [x.get("words", x.get("text")) if isinstance(x, dict) else x for x in found]
        if all(isinstance(x, list) and all(isinstance(w, str) for w in x) for x in found):
            return found
        if not are_words and all(isinstance(x, str) for x in found):
            return found
    return check_kind("texts", texts, False, "a list of strings, or of lists of words")
