"""From sentences with a subject and an object to rows for `SpanBertRelationExtractor`."""

import logging

import keras
import numpy as np

from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.models.token_lists import TokenLists, in_threads
from keras_spanbert.tasks.relation_extraction.rows import MODES, Markers, Words, relation_rows
from keras_spanbert.tasks.relation_extraction.sentences import BRACKETS, sentences

TRUNCATIONS = ("window", "released")
# The settings of a Hugging Face folder that have the arguments, under `task_specific_params`.
SETTINGS = "relation_extraction"
MARKERS = ("SUBJ_START", "SUBJ_END", "OBJ_START", "OBJ_END")
_ROLES = ("SUBJ", "OBJ")
_MOST_SYMBOLS = 101  # As many as the cased vocabulary of BERT has.
_ROWS_AT_ONCE = 1024  # A bound on memory.


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertRelationExtractorPreprocessor(SpanBertPreprocessor):
    """Makes rows of sentences with a subject and an object, as the released SpanBERT does.

    A row is `[CLS] sentence [SEP]`, segment 0 throughout, where symbols stand
    for the spans or about them:

    | mode | sentence | after it |
    | --- | --- | --- |
    | `"ner"` | a symbol for its type in place of each span | |
    | `"text"` | symbols at the start and the end of each span | |
    | `"text_ner"` | as `"text"` | type `[SEP]` type `[SEP]` |
    | `"ner_text"` | as `"ner"` | subject's words `[SEP]` object's `[SEP]` |

    Symbols are tokens that the vocabulary has in store, `[unused1]`,
    `[unused2]`, ...: of the four about spans, then of types in the order in
    which `adapt` sees them. A vocabulary without such gives up its last tokens.
    All modes but `"text"` take types.

    Words such as `-LRB-` become the brackets they stand for. A word of an
    example that spells a special token, such as `[MASK]`, becomes that token;
    in a text it is text.

    A row that is too long is cut after `sequence_length` tokens, and has no
    last `[SEP]` then. Where a part of a span, or what follows the sentence,
    would be lost, `truncation="window"` keeps both spans, all between them if
    there is room, and what is nearest to either; the middle between spans far
    apart is left out, then that of long spans. `"released"` loses them, as does
    `inputs` always.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a row. Defaults to `128`.
        mode: string, see above. Defaults to `"ner"`.
        symbols: dict of names, `"SUBJ_START"` or `"OBJ=CITY"` for two, to tokens
            of the vocabulary, as `adapt` gives them. Defaults to `None`.
        truncation: `"window"` or `"released"`, for `call` and hence the model's
            `fit`, `extract` and export. Defaults to `"window"`.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: where an argument is none of these.

    Example:
    ```python
    examples = keras_spanbert.data.tacred.read("train.json")
    preprocessor = keras_spanbert.SpanBertRelationExtractorPreprocessor(tokenizer)
    preprocessor.adapt(examples)
    preprocessor.symbols["SUBJ=PERSON"]  # "[unused5]"
    inputs = preprocessor.inputs(examples)
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.2 and
        appendix B; rows are those of the released script.
    """

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 128,
        mode: str = "ner",
        symbols: dict[str, str] | None = None,
        truncation: str = "window",
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, value, known in [("mode", mode, MODES), ("truncation", truncation, TRUNCATIONS)]:
            if value not in known:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(known)}. Received: {name}={value!r}"
                )
        if int(sequence_length) != sequence_length or sequence_length < 3:
            raise ValueError(
                "`sequence_length` must be at least 3: [CLS], a token, [SEP]. Received: "
                f"sequence_length={sequence_length}"
            )
        if symbols is not None and not isinstance(symbols, dict):
            raise ValueError(
                "`symbols` must be a dict of names to tokens, or None. Received: "
                f"symbols={symbols!r:.80}"
            )
        self.tokenizer = tokenizer
        self.sequence_length = int(sequence_length)
        self.mode = mode
        self.truncation = truncation
        # The vocabulary may not be there yet: Keras loads it after what stands in its files.
        self._given_symbols = symbols and dict(symbols)
        self._ids_of_symbols = None
        self.built = True

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        given = (settings.get("task_specific_params") or {}).get(SETTINGS) or {}
        names = [name for name in ("mode", "symbols") if name in given]
        length = min(128, settings["max_position_embeddings"])
        return {"sequence_length": length, **{name: given[name] for name in names}}

    @property
    def uses_types(self) -> bool:
        """Whether rows of this mode show the types of subject and object."""
        return self.mode != "text"

    @property
    def symbols(self) -> dict[str, str]:
        """The token of each symbol, by its name."""
        vocabulary = self.tokenizer.get_vocabulary()
        return {name: vocabulary[i] for name, i in self.symbol_ids().items()}

    def symbol_ids(self) -> dict[str, int]:
        """The token id of each symbol, by its name."""
        if self._ids_of_symbols is None:
            given = self._given_symbols
            ids = {} if given is None else self._checked(given)
            self._ids_of_symbols = ids if given else self._with_symbols(ids, MARKERS)
        return dict(self._ids_of_symbols)

    def types(self, role: str = "") -> dict[str, int]:
        """The types that have symbols, and the token ids of these.

        Args:
            role: `"SUBJ"` or `"OBJ"`. Defaults to `""`, both, by the symbols'
                names.
        """
        prefix = f"{role}=" if role else ""
        return {
            name.removeprefix(prefix): i
            for name, i in self.symbol_ids().items()
            if "=" in name and name.startswith(prefix)
        }

    def adapt(self, examples) -> None:
        """Gives a symbol to each type of examples that has none, in order of first use.

        Each example asks for its subject's before its object's. The released
        script sees the evaluation set before the training set.

        Args:
            examples: list of dicts, see `inputs`, or a dict of columns.

        Raises:
            ValueError: where there are more types than the vocabulary has tokens
                in store, or `examples` are something else.
        """
        names = {}
        for sentence in sentences(examples):
            for role, kind in zip(_ROLES, sentence.types):
                if kind is not None:
                    names[f"{role}={kind}"] = None
        self._ids_of_symbols = self._with_symbols(self.symbol_ids(), names)

    def inputs(self, examples) -> dict:
        """Rows of examples, exactly those of the released script.

        Args:
            examples: list of dicts, as `keras_spanbert.data.tacred.read` gives
                them; or a dict of columns, see `SpanBertRelationExtractor`.

        Returns:
            Dict of int32 arrays `[N, L]`: `token_ids`, `segment_ids`,
            `padding_mask`.

        Raises:
            ValueError: where a span is not in its sentence, or the mode takes
                types and one is missing or unknown.
        """
        return self._rows(sentences(examples), keeps_spans=False)

    def call(self, x):
        """Rows of what `inputs` takes, by `truncation`."""
        return self.rows_of(sentences(x))

    def rows_of(self, given: list) -> dict:
        """Rows of `sentences`, by `truncation`."""
        return self._rows(given, keeps_spans=self.truncation == "window")

    def markers(self) -> Markers:
        """The ids of the symbols that stand about spans."""
        ids = self.symbol_ids()
        return Markers(*(ids[name] for name in MARKERS))

    def _rows(self, given, keeps_spans):
        names = ["token_ids", "segment_ids", "padding_mask"]
        inputs = {n: np.empty((len(given), self.sequence_length), np.int32) for n in names}
        types = self._types(given)
        unique = {}
        for sentence in given:
            for word in sentence.words:
                unique.setdefault((word, sentence.is_text), len(unique))
        pieces = self._pieces(list(unique))
        markers = self.markers()

        def lay_out(begin):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            words = _words(given[rows], types[rows], unique, *pieces)
            arguments = (self.mode, markers, self.tokenizer, self.sequence_length, keeps_spans)
            for name, array in relation_rows(np, words, *arguments).items():
                inputs[name][rows] = array

        in_threads(lay_out, range(0, len(given), _ROWS_AT_ONCE))
        return inputs

    def _types(self, given):
        """Ids `[N, 2]` of the symbols for types."""
        types = np.zeros((len(given), 2), np.int64)
        ids = self.symbol_ids()
        for row, sentence in enumerate(given if self.uses_types else []):
            for i, (role, kind) in enumerate(zip(_ROLES, sentence.types)):
                name = f"{role}={kind}"
                if name not in ids:
                    self._raise_unknown(sentence.place, role, kind)
                types[row, i] = ids[name]
        return types

    def _raise_unknown(self, place, role, kind):
        what = "subject" if role == "SUBJ" else "object"
        if kind is None:
            raise ValueError(
                f"{place}: mode={self.mode!r} takes a type of the {what}, such as PERSON; "
                'mode="text" takes none. Received: no type'
            )
        known = self.types(role)
        raise ValueError(
            f"{place}: the type of the {what} must be one that the model has a symbol for, as "
            f"`adapt` gives them: {', '.join(known) or 'none yet'}. Received: {kind!r}"
        )

    def _pieces(self, words):
        """`(ids, starts, sizes)` of the pieces of words, pairs of string and whether of a text."""
        texts = [BRACKETS.get(word.lower(), word) for word, _ in words]
        lists = TokenLists(self.tokenizer, texts)
        ids, starts, sizes = [lists.ids], lists.starts.astype(np.int64), lists.sizes.copy()
        special = {token: self.tokenizer.token_to_id(token) for token in self._special_tokens()}
        size = len(lists.ids)
        for i, (word, is_text) in enumerate(words):
            if not is_text and "[" in word and any(part in special for part in word.split()):
                parts = [
                    [special[part]] if part in special else self.tokenizer.tokenize(part)
                    for part in word.split()
                ]
                own = np.concatenate(parts).astype(np.int32)
                starts[i], sizes[i] = size, len(own)
                size += len(own)
                ids.append(own)
        return np.concatenate(ids).astype(np.int64), starts, sizes

    def _special_tokens(self):
        names = ["unk", "sep", "pad", "cls", "mask"]
        known = {name: getattr(self.tokenizer, f"{name}_token", None) for name in names}
        return [token for token in {**known, "unk": self.tokenizer.oov_token}.values() if token]

    # === Symbols ===
    def _with_symbols(self, ids, names):
        """`ids` and those of the names that are not among them."""
        missing = [name for name in names if name not in ids]
        used = {*ids.values()}
        free = [i for i in self._store() if i not in used] if missing else []
        if len(missing) > len(free):
            raise ValueError(
                "The vocabulary must have a token in store for each symbol, [unused1], [unused2], "
                f"... Received: {len(ids) + len(missing)} symbols, for which it has "
                f"{len(ids) + len(free)} tokens; the first without is {missing[len(free)]}"
            )
        return {**ids, **dict(zip(missing, free))}

    def _store(self):
        """The ids of the tokens that may become symbols, in order."""
        ids = {token: i for i, token in enumerate(self.tokenizer.get_vocabulary())}
        store = []
        while f"[unused{len(store) + 1}]" in ids:
            store.append(ids[f"[unused{len(store) + 1}]"])
        if not store:  # Of vocabularies that are trained here: the last tokens are the rarest.
            if self._ids_of_symbols is None:  # Once.
                logging.getLogger("keras_spanbert").warning(
                    "The vocabulary has no [unused1], [unused2], ...: its last tokens, the rarest, "
                    "become the symbols for subject and object"
                )
            store = list(range(len(ids) - 1, max(len(ids) // 2, len(ids) - _MOST_SYMBOLS) - 1, -1))
        return store

    def _checked(self, symbols):
        """The ids of symbols that were given."""
        ids = {token: i for i, token in enumerate(self.tokenizer.get_vocabulary())}
        missing = [name for name in MARKERS if name not in symbols]
        if missing or any(token not in ids for token in symbols.values()):
            raise ValueError(
                f"`symbols` must have {', '.join(MARKERS)}, and tokens of the vocabulary for all. "
                f"Received: symbols={symbols!r:.200}"
            )
        if len(set(symbols.values())) < len(symbols):
            raise ValueError(
                "`symbols` must have a token of its own for each. Received: "
                f"symbols={symbols!r:.200}"
            )
        return {name: ids[token] for name, token in symbols.items()}

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "sequence_length": self.sequence_length,
                "mode": self.mode,
                "symbols": self.symbols if self._ids_of_symbols else self._given_symbols,
                "truncation": self.truncation,
            }
        )
        return config


def _words(given, types, unique, ids, starts, sizes):
    """`Words` of some sentences, from the pieces of each word."""
    word_of = np.array([unique[w, s.is_text] for s in given for w in s.words], np.int64)
    per_row = np.array([len(sentence.words) for sentence in given], np.int64)
    row = np.repeat(np.arange(len(given)), per_row)
    word = np.arange(len(word_of)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    counts = sizes[word_of].astype(np.int64)
    first = np.repeat(starts[word_of] - (np.cumsum(counts) - counts), counts)
    spans = np.array([sentence.spans for sentence in given], np.int64)
    return Words(
        ids[first + np.arange(counts.sum())],
        np.repeat(word, counts),
        np.repeat(row, counts),
        spans,
        types,
    )
