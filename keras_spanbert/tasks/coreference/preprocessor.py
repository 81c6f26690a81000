"""Converts documents of words or subtokens to arrays for `SpanBertCoreferenceResolver`.

W = words, S = segments, L = longest segment, T = tokens of the document. `xp` is `numpy` or
`tensorflow.experimental.numpy`.
"""

import itertools
import re
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_spanbert.checks import check_flags, check_in, check_range, is_number
from keras_spanbert.data.coreference_documents import check_document, merge_clusters, with_speakers
from keras_spanbert.layers.array_functions import (
    count_at_most,
    cumsum,
    int32,
    range_like,
    repeat,
    repeat_while,
    take,
)
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.text.strings import replace_surrogates

_MODEL_TYPES = ("independent", "overlap")
_MINIMUMS = {
    "max_segment_len": 4, "sequence_length": 4, "max_training_sentences": 1, "max_span_width": 1,
    "max_top_antecedents": 1, "ffnn_size": 1, "ffnn_depth": 0, "feature_size": 1, "coref_depth": 1,
    "max_num_speakers": 2,
}  # fmt: skip
_RANGES = {"top_span_ratio": "(0, 1]", "dropout_rate": "[0, 1)"}


def check_arguments(**arguments) -> None:
    """Raises a `ValueError` if an argument of the resolver or preprocessor is out of its range."""
    for name, value in arguments.items():
        if name == "model_type":
            check_in(name, value, value in _MODEL_TYPES, f"one of {_MODEL_TYPES}")
        elif name == "genres":
            is_list = isinstance(value, Collection) and not isinstance(value, str)
            is_right = is_list and all(isinstance(genre, str) for genre in value)
            check_in(name, value, is_right, "a list of strings")
        elif name in _MINIMUMS:
            is_right = is_number(value) and value % 1 == 0 and value >= _MINIMUMS[name]
            check_in(name, value, is_right, f"{_MINIMUMS[name]} or more")
        elif name in _RANGES:
            check_range(_RANGES[name], **{name: value})
        else:
            check_flags(**{name: value})


# The beginning of a key with a genre, such as "nw/".
_OTHER_GENRE = re.compile(r"[a-z]{2}(?![a-zA-Z0-9])")
GENRES = ("bc", "bn", "mz", "nw", "pt", "tc", "wb")


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertCoreferenceResolverPreprocessor(SpanBertPreprocessor):
    """Cuts documents into segments of whole sentences and converts them to arrays.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Longest segment, including `[CLS]` and `[SEP]`, the
            resolver's `max_segment_len`. Defaults to `384`.
        model_type: "independent", segments that are encoded independently, or "overlap", where each
            token is encoded in two segments. Defaults to `"independent"`.
        max_num_speakers: int. Number of different speakers of a document,
            including the unknown speaker and separators. Defaults to `20`.
        genres: strings of two letters, with which documents' keys begin. A key such
            as `"emma/1"`, without two letters and a sign at its beginning, has the
            first genre. Defaults to those of OntoNotes.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: if `model_type` is unknown, or a segment has no room for a token.

    Example:
    ```python
    preprocessor = keras_spanbert.SpanBertCoreferenceResolverPreprocessor(tokenizer)
    document = preprocessor.segment(
        {"sentences": [["Ann", "left", "."], ["She", "was", "tired", "."]]}
    )
    ```

    Reference:
        [Joshi et al. 2019](https://arxiv.org/abs/1908.09091). Segments and arrays
        are the same as in the released scripts.
    """

    config_names = ("sequence_length", "model_type", "max_num_speakers", "genres")

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 384,
        model_type: str = "independent",
        max_num_speakers: int = 20,
        genres=GENRES,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_arguments(
            model_type=model_type,
            sequence_length=sequence_length,
            max_num_speakers=max_num_speakers,
            genres=genres,
        )
        self.tokenizer = tokenizer
        self.sequence_length = int(sequence_length)
        self.model_type = model_type
        self.max_num_speakers = int(max_num_speakers)
        self.genres = tuple(genres)
        self.built = True

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        return {"sequence_length": min(384, settings["max_position_embeddings"])}

    def call(self, x, y=None, sample_weight=None):
        """Returns the arrays of one document: see `tensors`."""
        return self.tensors(x)

    def segment(self, document: dict) -> dict:
        """Cuts a document into subtokens and segments, as the released scripts store it.

        Args:
            document: dict of
                `sentences`: list of lists of words.
                `speakers`: list of lists of names, one per word, or list of names, one
                per sentence. By default one speaker.
                `doc_key`: string that begins with the genre. By default empty.
                `clusters`: lists of mentions `(first word, last word)`, with words
                counted through the document. Clusters that share a mention are
                merged. Defaults to none.
                A document with a `sentence_map` is already in subtokens and
                segments. Its mentions count subtokens, and it is not cut.

        Returns:
            Dict of `doc_key`; `sentences`, the segments' subtokens; `speakers`, one
            name per subtoken; `clusters`, in subtokens; `sentence_map` and
            `subtoken_map`, the sentence and the word of each subtoken.

        Raises:
            ValueError: if the document is malformed: see
                `keras_spanbert.data.coreference.check_document`.
        """
        return self._segment(document)[0]

    def _segment(self, document):
        """Returns the result of `segment`, and the word of each token: see `encode`."""
        if isinstance(document, dict):
            document = with_speakers({"doc_key": "", **document})
        size, sentences = check_document(document), document["sentences"]
        tokenizer = self.tokenizer
        separators = tokenizer.cls_token, tokenizer.sep_token
        has_separators = not self.added_separators()
        document.setdefault("speakers", [["-"] * len(sentence) for sentence in sentences])
        clusters = merge_clusters(document.get("clusters", []))
        if "sentence_map" in document:
            for segment in sentences:
                if ((*segment[:1], *segment[-1:]) == separators) != has_separators:
                    raise ValueError(
                        f"Segments for model_type={self.model_type!r} must be stored "
                        f"{'with' if has_separators else 'without'} {' and '.join(separators)}. "
                        f"Received: {segment!r:.80} in {document['doc_key']!r}"
                    )
            return {**document, "clusters": clusters}, np.arange(size, dtype=np.int32)
        if "subtoken_map" in document:
            raise ValueError(
                "A document in subtokens must have a `sentence_map`. Received: only a "
                f"`subtoken_map`, in {document['doc_key']!r}"
            )
        # OntoNotes writes a slash before some sentence ends.
        words = [word[1:] if word in ("/.", "/?") else word for word in itertools.chain(*sentences)]
        unique = [*dict.fromkeys(words)]
        # A word that has only control characters keeps its place.
        pieces = {
            word: [tokenizer.id_to_token(int(i)) for i in ids] or [tokenizer.oov_token]
            for word, ids in zip(unique, tokenizer.tokenize_batch(unique))
        }
        names = [*itertools.chain(*document["speakers"]), SEPARATOR_SPEAKER]
        cut = cut_into_segments(
            np,
            np.array([len(pieces[word]) for word in words], np.int32),
            np.array([*map(len, sentences)], np.int32),
            self.sequence_length,
            has_separators,
        )
        tokens = [*itertools.chain(*(pieces[word] for word in words)), *separators]
        word_of = cut.word_of
        places = np.flatnonzero(word_of >= 0)
        first, last = (
            places[np.searchsorted(word_of[places], np.arange(size), side) - shift].tolist()
            for side, shift in (("left", 0), ("right", 1))
        )
        segmented = {
            "doc_key": document["doc_key"],
            "sentences": split_rows((tokens[i] for i in cut.index.tolist()), cut.sizes),
            "speakers": split_rows((names[i] for i in word_of.tolist()), cut.sizes),
            "sentence_map": cut.sentence_of.tolist(),
            # A separator belongs to the word before it, or to the first word.
            "subtoken_map": np.maximum.accumulate(np.maximum(word_of, 0)).tolist(),
            "clusters": [[[first[start], last[end]] for start, end in c] for c in clusters],
        }
        return segmented, word_of

    def tensors(self, document: dict) -> dict:
        """Returns the arrays of the released scripts for a document.

        Args:
            document: dict, see `segment`, in words or subtokens.

        Returns:
            Dict of `input_ids`, `input_mask`, `speaker_ids` `[S, L]`, `text_len` `[S]`, `genre`
            `[]`, `gold_starts`, `gold_ends`, `cluster_ids` `[G]`, `sentence_map` `[T]`, for S
            segments, L `sequence_length`, T tokens and G gold mentions. With overlap also
            `overlap_ids` and `overlap_mask` `[S + 1, L]`. All are int32.
        """
        return self.encode(document)[0]

    def encode(self, document: dict) -> tuple[dict, np.ndarray]:
        """Returns the `tensors` of a document, and the word of each of its tokens.

        The word of a separator is -1. If a document is in subtokens, each token is its own word.
        """
        document, word_of = self._segment(document)
        id_of = self.tokenizer.reference.token_to_id
        unknown = id_of(self.tokenizer.oov_token)
        tokens = itertools.chain(*document["sentences"])
        ids = [id_of(replace_surrogates(token)) for token in tokens]
        separators = self.added_separators()
        sizes = [len(segment) for segment in document["sentences"]]
        longest = max(sizes, default=0) + len(separators or ())
        if longest > self.sequence_length:
            raise ValueError(
                f"A segment must have at most the preprocessor's {self.sequence_length} tokens. "
                f"Received: {longest}"
            )
        names = [*itertools.chain(*document["speakers"])]
        speakers = speaker_numbers(names, self.max_num_speakers, self.model_type)
        gold = sorted(
            (start, end, number)
            for number, cluster in enumerate(document["clusters"], start=1)
            for start, end in cluster
        )
        starts, ends, cluster_ids = np.array(gold, np.int32).reshape(-1, 3).T
        key = document["doc_key"]
        genre = key if key in self.genres else key[:2]  # `resolve` gives the genre as the key.
        if self.genres and genre not in self.genres and _OTHER_GENRE.match(key):
            raise ValueError(
                "The genre of a document, the two letters at the beginning of `doc_key`, must be "
                f"one of {', '.join(self.genres)}. To train with others, give them as `genres` "
                "(--genres). A `doc_key` that begins with a longer word has the first genre. "
                f"Received: {key!r}"
            )
        tensors = {
            **segment_rows(
                np.array([unknown if i is None else i for i in ids], np.int32),
                np.array(speakers, np.int32),
                np.array(sizes, np.int32),
                self.sequence_length,
                separators,
            ),
            "genre": np.int32(self.genres.index(genre) if genre in self.genres else 0),
            "gold_starts": starts,
            "gold_ends": ends,
            "cluster_ids": cluster_ids,
            "sentence_map": np.array(document["sentence_map"], np.int32),
        }
        return tensors, word_of

    def added_separators(self) -> tuple[int, int] | None:
        """Returns the ids of `[CLS]` and `[SEP]` if segments are stored without them."""
        tokenizer = self.tokenizer
        is_overlap = self.model_type == "overlap"
        return (tokenizer.cls_token_id, tokenizer.sep_token_id) if is_overlap else None


SEPARATOR_SPEAKER = "[SPL]"
# Number of the speaker of separators.
SEPARATOR_NUMBER = 1
# Number that the released graphs give to speakers beyond their maximum.
_OTHER_SPEAKER = {"independent": 3, "overlap": 0}


def split_rows(values: Iterable, sizes: Iterable[int]) -> list[list]:
    """Splits values into lists of these sizes."""
    values = iter(values)
    return [list(itertools.islice(values, size)) for size in sizes]


class Segments(NamedTuple):
    """The tokens of a document in segments. In graph code, the arrays are tensors."""

    sizes: Any  # int32 [S], the number of tokens of each segment.
    # int32 [T], each token's index in a list of all subtokens, then [CLS], then [SEP].
    index: Any
    word_of: Any  # int32 [T], the word of each token, -1 for a separator.
    sentence_of: Any  # int32 [T], the sentence of each token.


def cut_into_segments(xp, sizes, sentence_sizes, max_segment_len: int, has_separators: bool):
    """Returns the `Segments` of words with these numbers of subtokens, and sentences of words.

    A segment has as many subtokens as fit, up to the end of a sentence or else of a word.
    """
    none = np.zeros(1, np.int32)
    word_of = repeat(xp, range_like(xp, sizes), sizes)
    word_ends = xp.concatenate([none, cumsum(xp, sizes)], axis=0)
    sentence_of = take(xp, repeat(xp, range_like(xp, sentence_sizes), sentence_sizes), word_of)
    last_words = xp.concatenate([none, cumsum(xp, sentence_sizes)], axis=0)
    sentence_ends = take(xp, word_ends, last_words)
    num_subtokens = word_ends[-1]
    # If separators are added later, the released script leaves one more place.
    room = max_segment_len - (2 if has_separators else 3)

    def add_limit(limits):
        begin = limits[-1]
        end = most = xp.minimum(begin + np.int32(room), num_subtokens)
        for ends in (word_ends, sentence_ends):
            last = take(xp, ends, count_at_most(xp, ends, most[None, None])[0, 0] - 1)
            end = xp.where(last > begin, last, end)
        return [xp.concatenate([limits, end[None]], axis=0)]

    (limits,) = repeat_while(xp, lambda limits: limits[-1] < num_subtokens, add_limit, [none])
    begins, ends = limits[:-1], limits[1:]
    if not has_separators:
        return Segments(ends - begins, range_like(xp, word_of), word_of, sentence_of)
    segment_of = repeat(xp, range_like(xp, begins), ends - begins + 2)
    index = range_like(xp, segment_of) - 2 * segment_of - 1
    is_first = index < take(xp, begins, segment_of)
    is_last = index == take(xp, ends, segment_of)
    nearest = index + int32(xp, is_first) - int32(xp, is_last)
    # The sentence number increases after its last subtoken, so before the separator.
    before = count_at_most(xp, sentence_ends, ends[:, None])[:, 0] - 1
    is_end = take(xp, sentence_ends, before) == ends
    sentence_of = take(xp, sentence_of, nearest) + int32(xp, is_last & take(xp, is_end, segment_of))
    index = xp.where(is_first, num_subtokens, xp.where(is_last, num_subtokens + 1, index))
    word_of = xp.where(is_first | is_last, np.int32(-1), take(xp, word_of, nearest))
    return Segments(ends - begins + 2, index, word_of, sentence_of)


def segment_rows(
    ids, speakers, sizes, max_segment_len: int, separators: tuple[int, int] | None, xp=np
) -> dict:
    """Converts tokens, `ids` and `speakers` int32 `[T]`, to one row per segment of `sizes` `[S]`.

    Returns the arrays `[S]`, `[S, L]` and `[S + 1, L]` of the preprocessor's `tensors`.
    `separators` are the ids of `[CLS]` and `[SEP]`, which are added with overlap. There are then
    also windows over the joints of segments: the second half of one and the first half of the next.
    """

    def to_rows(values, begins, sizes, separators):
        """Returns parts of values as rows, padded with zeros, and their mask."""
        place = np.arange(max_segment_len, dtype=np.int32) - (1 if separators else 0)
        sizes = sizes[:, None]
        is_inside = (place >= 0) & (place < sizes)
        index = xp.where(is_inside, begins[:, None] + place, 0)
        values = xp.concatenate([values, np.zeros(1, np.int32)], axis=0)
        rows = xp.where(is_inside, xp.take(values, index, axis=0), 0)
        if separators:
            first, last = separators
            rows = xp.where(place < 0, first, xp.where(place == sizes, last, rows))
            is_inside = place <= sizes
        return [xp.asarray(x, dtype=np.int32) for x in (rows, is_inside)]

    none = np.zeros(1, np.int32)
    begins = xp.concatenate([none, xp.cumsum(sizes, dtype=np.int32)], axis=0)  # [S + 1]
    rows = {"text_len": sizes}
    rows["input_ids"], rows["input_mask"] = to_rows(ids, begins[:-1], sizes, separators)
    rows["speaker_ids"], _ = to_rows(speakers, begins[:-1], sizes, separators and (0, 0))
    if separators:
        half = max_segment_len // 2
        before = xp.concatenate([none, xp.maximum(sizes - half, 0)], axis=0)
        after = xp.concatenate([xp.minimum(sizes, half), none], axis=0)
        windows = to_rows(ids, begins - before, before + after, separators)
        rows["overlap_ids"], rows["overlap_mask"] = windows
    return rows


def truncate(tensors: dict, offset: int, max_segments: int) -> dict:
    """Returns the preprocessor's `tensors` of a run of segments that begins at `offset`.

    The released scripts cut documents like this in training.
    """
    kept = slice(offset, offset + max_segments)
    cut = {n: tensors[n][kept] for n in ["input_ids", "input_mask", "speaker_ids", "text_len"]}
    first, num_tokens = tensors["text_len"][:offset].sum(), cut["text_len"].sum()
    cut["sentence_map"] = tensors["sentence_map"][first : first + num_tokens]
    cut["genre"] = tensors["genre"]
    starts, ends = tensors["gold_starts"] - first, tensors["gold_ends"] - first
    # Mentions that extend beyond the run are kept, but never match a span.
    touches = (ends >= 0) & (starts < num_tokens)
    cut["gold_starts"], cut["gold_ends"] = starts[touches], ends[touches]
    cut["cluster_ids"] = tensors["cluster_ids"][touches]
    if "overlap_ids" in tensors:
        end = offset + len(cut["text_len"])
        ids, mask = (tensors[n][offset : end + 1].copy() for n in ("overlap_ids", "overlap_mask"))
        left_over = np.maximum(tensors["text_len"] - tensors["input_ids"].shape[1] // 2, 0)
        if offset:  # The rest of the segment before the run is masked.
            mask[0, 1 : 1 + left_over[offset - 1]] = 0
        if end < len(tensors["text_len"]):
            # The next segment's first half is removed, and the separator moves left.
            last = left_over[end - 1]
            ids[-1, 1 + last] = ids[-1, mask[-1].sum() - 1]
            ids[-1, 2 + last :] = mask[-1, 2 + last :] = 0
        cut["overlap_ids"], cut["overlap_mask"] = ids, mask
    return cut


def speaker_numbers(names: list[str], max_num_speakers: int, model_type: str) -> list[int]:
    """Returns the number of each token's speaker."""
    numbers = {"UNK": 0, SEPARATOR_SPEAKER: SEPARATOR_NUMBER}
    for name in dict.fromkeys(names):
        if len(numbers) < max_num_speakers:
            numbers.setdefault(name, len(numbers))
    return [numbers.get(name, _OTHER_SPEAKER[model_type]) for name in names]
