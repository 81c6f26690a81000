"""Converts sentences with a subject and an object to rows for `SpanBertRelationExtractor`."""

import keras
import numpy as np

from keras_spanbert.checks import accepts_datasets, check_in, check_length
from keras_spanbert.layers.array_functions import is_symbolic, namespace, take
from keras_spanbert.models.preprocessor import LabelledPreprocessor
from keras_spanbert.tasks.relation_extraction.rows import (
    MODES,
    ROLES,
    SPANS,
    Columns,
    Words,
    columns_in_graph,
    relation_rows,
    replace_brackets,
    sentences,
)
from keras_spanbert.text.tokens import Tokens, expand, in_chunks, tokenize_texts, unique_texts


def unused_tokens(tokenizer) -> dict[str, int]:
    """Returns `[unused1]`, `[unused2]`, ... of a vocabulary, and their ids."""
    ids = {token: i for i, token in enumerate(tokenizer.get_vocabulary())}
    found = {}
    while (token := f"[unused{len(found) + 1}]") in ids:
        found[token] = ids[token]
    return found


TRUNCATIONS = ("window", "released")
# Key of the arguments under `task_specific_params` in the settings of a Hugging Face folder.
SETTINGS = "relation_extraction"
MARKERS = ("SUBJ_START", "SUBJ_END", "OBJ_START", "OBJ_END")


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertRelationExtractorPreprocessor(LabelledPreprocessor):
    """Makes rows from sentences with a subject and an object, as the released SpanBERT does.

    A row is `[CLS] sentence [SEP]` with segment 0. Symbols replace the spans or surround them:

    | mode | sentence | after it |
    | --- | --- | --- |
    | `"ner"` | a symbol for its type in place of each span | |
    | `"text"` | symbols at the start and the end of each span | |
    | `"text_ner"` | as `"text"` | type `[SEP]` type `[SEP]` |
    | `"ner_text"` | as `"ner"` | subject's words `[SEP]` object's `[SEP]` |

    Symbols are unused tokens of the vocabulary, `[unused1]`, `[unused2]`, ... The
    first four surround spans. The others are for types, in the order in which
    `adapt` sees them. All modes except `"text"` need types. If the vocabulary has no
    such tokens, `SpanBertRelationExtractor.from_preset` adds them. Or pass `symbols`
    with tokens that do not occur in the texts.

    Words such as `-LRB-` become the brackets that they represent. A word of an
    example, but not of a text, that equals a special token, such as `[MASK]`, becomes that token.

    A row that is too long is cut after `sequence_length` tokens and then has no last `[SEP]`. If
    this would remove a part of a span, or of what follows the sentence, `truncation="window"` keeps
    both spans, everything between them if there is room, and the tokens nearest to either span. It
    leaves out the middle between spans that are far apart, and the middle of long spans.
    `"released"` and the method `inputs` cut such rows like any other.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a row. Defaults to `128`.
        mode: string, see above. Defaults to `"ner"`.
        symbols: dict from names, such as `"SUBJ_START"` or `"OBJ=CITY"`, to tokens
            of the vocabulary. `adapt` adds to it. Defaults to `None`.
        truncation: `"window"` or `"released"`, for `call` and therefore the model's
            `fit`, `extract` and export. Defaults to `"window"`.
        label_names: list of C strings, the relations, for labels by name. A
            `SpanBertRelationExtractor` sets it. Defaults to `None`: labels are numbers.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: if an argument has another value.

    Call arguments:
        x: a list of examples from `keras_spanbert.data.tacred.read`, or a dict of their columns:
            `"token"`, N lists of words; `"subj_start"`, `"subj_end"`, `"obj_start"` and
            `"obj_end"`, integers `[N]`, the first and the last word of each span; and, unless the
            mode is `"text"`, `"subj_type"` and `"obj_type"`, strings `[N]`. Or a dict of `"text"`,
            strings `[N]`; `"subject"` and `"object"`, integers `[N, 2]`, the first character of
            each span and the one after its last; and `"subject_type"` and `"object_type"`.
        y: labels `[N]`, names or numbers. Defaults to `None`, no labels.
        sample_weight: numbers `[N]`. Defaults to `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`. `x` is a dict of `token_ids`, `segment_ids` and
        `padding_mask`, int32 `[N, L]`; `y` is int32 and `sample_weight` float32.

    Examples:
    ```python
    examples = keras_spanbert.data.tacred.read("train.json")
    preprocessor = keras_spanbert.SpanBertRelationExtractorPreprocessor(tokenizer)
    preprocessor.adapt(examples)
    preprocessor.symbols["SUBJ=PERSON"]  # "[unused5]"
    inputs = preprocessor.inputs(examples)

    # Batches of a `tf.data.Dataset`, on every backend. Words are ragged or padded with "".
    x = {
        "token": tf.ragged.constant([["Ann", "runs", "Acme"], ["Bob", "left"]]),
        **{"subj_start": [0, 0], "subj_end": [0, 0], "obj_start": [2, 1], "obj_end": [2, 1]},
        **{"subj_type": ["PERSON", "PERSON"], "obj_type": ["ORGANIZATION", "DATE"]},
    }
    dataset = tf.data.Dataset.from_tensor_slices((x, [1, 0])).batch(2).map(preprocessor)
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.2 and
        appendix B. Rows are the same as in the released script.
    """

    label_key = "relation"
    config_names = ("sequence_length", "mode", "truncation")

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 128,
        mode: str = "ner",
        symbols: dict[str, str] | None = None,
        truncation: str = "window",
        label_names: list[str] | None = None,
        **kwargs,
    ):
        super().__init__(label_names, **kwargs)
        for name, value, known in [("mode", mode, MODES), ("truncation", truncation, TRUNCATIONS)]:
            check_in(name, value, value in known, f"one of {', '.join(known)}")
        is_dict = isinstance(symbols, dict | None)
        check_in("symbols", symbols, is_dict, "a dict of names to tokens, or None")
        self.tokenizer = tokenizer
        self.sequence_length = check_length(sequence_length)
        self.mode = mode
        self.truncation = truncation
        # The vocabulary may not be there yet, because Keras loads it after the config.
        self._given_symbols = symbols and dict(symbols)
        self._ids_of_symbols = None

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        given = (settings.get("task_specific_params") or {}).get(SETTINGS) or {}
        names = [name for name in ("mode", "symbols") if name in given]
        length = min(128, settings["max_position_embeddings"])
        return {"sequence_length": length, **{name: given[name] for name in names}}

    @property
    def uses_types(self) -> bool:
        """Whether rows of this mode include the types of subject and object."""
        return self.mode != "text"

    @property
    def symbols(self) -> dict[str, str]:
        """Dict from names of symbols to their tokens."""
        vocabulary = self.tokenizer.get_vocabulary()
        return {name: vocabulary[i] for name, i in self.symbol_ids().items()}

    def symbol_ids(self) -> dict[str, int]:
        """Dict from names of symbols to their token ids."""
        symbols = self._given_symbols
        if self._ids_of_symbols is None and symbols is None:
            self._ids_of_symbols = self._replace_symbols({}, MARKERS)
        elif self._ids_of_symbols is None:
            ids = {token: i for i, token in enumerate(self.tokenizer.get_vocabulary())}
            missing = [name for name in MARKERS if name not in symbols]
            are_known = not missing and all(token in ids for token in symbols.values())
            rule = f"a dict of {', '.join(MARKERS)} and others, each with a token of the vocabulary"
            check_in("symbols", symbols, are_known, rule)
            rule = "a dict with a different token for each name"
            check_in("symbols", symbols, len(set(symbols.values())) == len(symbols), rule)
            self._ids_of_symbols = {name: ids[token] for name, token in symbols.items()}
        return dict(self._ids_of_symbols)

    def types(self, role: str = "") -> dict[str, int]:
        """Returns the types that have symbols, and the token ids of these.

        Args:
            role: `"SUBJ"` or `"OBJ"`. Defaults to `""`: both, with the role as a
                prefix, as in `"OBJ=CITY"`.
        """
        prefix = f"{role}=" if role else ""
        return {
            name.removeprefix(prefix): i
            for name, i in self.symbol_ids().items()
            if "=" in name and name.startswith(prefix)
        }

    @property
    def lacks_tokens(self) -> bool:
        """Whether neither the vocabulary nor `symbols` have tokens for the symbols."""
        return not self._given_symbols and not unused_tokens(self.tokenizer)

    @accepts_datasets
    def adapt(self, examples) -> None:
        """Gives a symbol to each new type in examples, in order of first use.

        A subject's type comes before that of its object. The released script reads the
        evaluation set before the training set.

        Args:
            examples: list of dicts, see `inputs`, or a dict of columns.

        Raises:
            ValueError: if there are more types than unused tokens in the
                vocabulary, or `examples` have another form.
        """
        names = {}
        for sentence in sentences(examples):
            for role, kind in zip(ROLES, sentence.types):
                if kind is not None:
                    names[f"{role}={kind}"] = None
        self._ids_of_symbols = self._replace_symbols(self.symbol_ids(), names)

    @accepts_datasets
    def inputs(self, examples) -> dict:
        """Makes rows from examples, exactly as the released script does.

        Args:
            examples: list of dicts from `keras_spanbert.data.tacred.read`, or a dict
                of columns, see `SpanBertRelationExtractor`.

        Returns:
            Dict of int32 arrays `[N, L]`: `token_ids`, `segment_ids`, `padding_mask`.

        Raises:
            ValueError: if a span is not in its sentence, or the mode needs types
                and one is missing or unknown.
        """
        return self._rows(examples, keeps_spans=False)

    def rows(self, x) -> dict:
        return self._rows(x, keeps_spans=self.truncation == "window")

    def _rows(self, x, keeps_spans):
        given = columns_in_graph(self, x) if is_symbolic(x) else self._columns(sentences(x))
        xp, num_words = namespace(given.words), given.num_words
        tokens = self._tokenize_words(given.words, given.are_examples)
        ids, starts, sizes = (xp.asarray(x, dtype=np.int64) for x in tokens[:3])
        first_word = xp.cumsum(num_words) - num_words

        def lay_out(rows):
            row, word = expand(xp, first_word[rows], num_words[rows], np.int64)
            place = word - take(xp, first_word[rows], row)
            number, token = expand(xp, take(xp, starts, word), take(xp, sizes, word), np.int64)
            words = Words(
                take(xp, ids, token),
                take(xp, place, number),
                take(xp, row, number),
                given.spans[rows],
                given.types[rows],
            )
            return relation_rows(xp, words, self, keeps_spans)

        arrays = in_chunks(xp, num_words, lay_out)
        self.log_cut(arrays.pop("size") > self.sequence_length)
        return arrays

    def _columns(self, given):
        types = np.zeros((len(given), 2), np.int64)
        ids = self.symbol_ids()
        for row, sentence in enumerate(given if self.uses_types else []):
            for i, (role, kind) in enumerate(zip(ROLES, sentence.types)):
                name, place, what = f"{role}={kind}", sentence.place, SPANS[i]
                if kind is None:
                    raise ValueError(
                        f"{place}: mode={self.mode!r} needs a type of the {what}, such as PERSON. "
                        'mode="text" needs none. Received: no type'
                    )
                if name not in ids:
                    known = ", ".join(self.types(role)) or "none yet"
                    raise ValueError(
                        f"{place}: the type of the {what} must be one for which the model has a "
                        f"symbol (see `adapt`): {known}. Received: {kind!r}"
                    )
                types[row, i] = ids[name]
        return Columns(
            [word for sentence in given for word in sentence.words],
            np.array([len(sentence.words) for sentence in given], np.int64),
            np.array([sentence.spans for sentence in given], np.int64).reshape(-1, 4),
            types,
            not any(sentence.is_text for sentence in given[:1]),
        )

    def _tokenize_words(self, words, are_examples):
        """Returns `Tokens` of words. Those of special tokens come after the others."""
        xp = namespace(words)
        unique, number = unique_texts(words)
        ids, starts, sizes, _ = tokenize_texts(self.tokenizer, replace_brackets(unique))
        if are_examples:
            names = [f"{name}_token" for name in ("oov", "sep", "pad", "cls", "mask")]
            tokens = [getattr(self.tokenizer, name) for name in names]
            special_ids = {token: self.tokenizer.token_to_id(token) for token in tokens}
            special = np.array([special_ids.get(word, -1) for word in unique], np.int32)
            starts = np.where(special >= 0, len(ids) + np.arange(len(unique)), starts)
            sizes = np.where(special >= 0, 1, sizes)
            ids = np.concatenate([ids, special])
        return Tokens(ids, take(xp, starts, number), take(xp, sizes, number), None)

    # === Symbols ===
    def _replace_symbols(self, ids, names):
        """Returns `ids` with new ids for the names that are missing."""
        missing = [name for name in names if name not in ids]
        used = {*ids.values()}
        free = [i for i in unused_tokens(self.tokenizer).values() if i not in used]
        if len(missing) > len(free):
            raise ValueError(
                "The vocabulary must have an unused token for each symbol, [unused1], [unused2], "
                "..., or `symbols` must name other tokens. `SpanBertRelationExtractor.from_preset` "
                f"adds unused tokens if there are none. Received: {len(ids) + len(missing)} "
                f"symbols and {len(ids) + len(free)} tokens. The first without a token is "
                f"{missing[len(free)]}"
            )
        return {**ids, **dict(zip(missing, free))}

    def get_config(self):
        symbols = self.symbols if self._ids_of_symbols else self._given_symbols
        return {**super().get_config(), "symbols": symbols}
