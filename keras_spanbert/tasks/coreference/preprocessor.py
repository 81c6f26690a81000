"""Converts documents of words or subtokens to arrays for `SpanBertCoreferenceResolver`."""

import itertools

import keras
import numpy as np

from keras_spanbert.data.coreference_documents import check_document, has_subtokens
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.tasks.coreference.arguments import check_arguments
from keras_spanbert.tasks.coreference.segments import (
    SEPARATOR_SPEAKER,
    cut_words,
    segment_rows,
    speaker_numbers,
    split_rows,
)

GENRES = ("bc", "bn", "mz", "nw", "pt", "tc", "wb")
# Key of the resolver's arguments in a checkpoint's settings. Some have the same names as BERT's.


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertCoreferenceResolverPreprocessor(SpanBertPreprocessor):
    """Cuts documents into segments of whole sentences and converts them to arrays.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Longest segment, including `[CLS]` and `[SEP]`, the
            resolver's `max_segment_len`. Defaults to `384`.
        model_type: "independent", segments that are encoded independently, or
            "overlap", where each token is encoded in two segments. Defaults to
            `"independent"`.
        max_num_speakers: int. Number of different speakers of a document,
            including the unknown speaker and separators. Defaults to `20`.
        genres: strings of two letters, with which documents' keys begin.
            Defaults to those of OntoNotes.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: if `model_type` is unknown, or a segment has no room for
            a token.

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

    config_names = ("sequence_length", "model_type", "max_num_speakers")

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
        self._id_of = None
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
                `speakers`: list of lists of names, one per word. Defaults to one
                speaker.
                `doc_key`: string that begins with the genre. Defaults to `""`.
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
            document = {"doc_key": "", **document}
        size, sentences = check_document(document), document["sentences"]
        document.setdefault("speakers", [["-"] * len(sentence) for sentence in sentences])
        clusters = _merge_clusters(document.get("clusters", []))
        if has_subtokens(document):
            self._check_separators(document)
            return {**document, "clusters": clusters}, np.arange(size, dtype=np.int32)
        if "subtoken_map" in document:
            raise ValueError(
                "A document in subtokens must have a `sentence_map`. Received: only a "
                f"`subtoken_map`, in {document['doc_key']!r}"
            )
        pieces = self._pieces([*itertools.chain(*sentences)])
        segments = cut_words(
            np.array([*map(len, pieces)], np.int32),
            np.array([*map(len, sentences)], np.int32),
            self.sequence_length,
            self.model_type == "independent",
        )
        tokens = [*itertools.chain(*pieces), self.tokenizer.cls_token, self.tokenizer.sep_token]
        names = [*itertools.chain(*document["speakers"]), SEPARATOR_SPEAKER]
        word_of = segments.word_of
        places = np.flatnonzero(word_of >= 0)
        first, last = (
            places[np.searchsorted(word_of[places], np.arange(size), side) - shift].tolist()
            for side, shift in (("left", 0), ("right", 1))
        )
        segmented = {
            "doc_key": document["doc_key"],
            "sentences": split_rows((tokens[i] for i in segments.index.tolist()), segments.sizes),
            "speakers": split_rows((names[i] for i in word_of.tolist()), segments.sizes),
            "sentence_map": segments.sentence_of.tolist(),
            # A separator belongs to the word before it, or to the first word.
            "subtoken_map": np.maximum.accumulate(np.maximum(word_of, 0)).tolist(),
            "clusters": [[[first[start], last[end]] for start, end in c] for c in clusters],
        }
        return segmented, word_of

    def _check_separators(self, document):
        wanted = self.model_type == "independent"
        ends = self.tokenizer.cls_token, self.tokenizer.sep_token
        for segment in document["sentences"]:
            has_separators = (*segment[:1], *segment[-1:]) == ends
            if has_separators != wanted:
                raise ValueError(
                    f"Segments for model_type={self.model_type!r} must be stored "
                    f"{'with' if wanted else 'without'} {ends[0]} and {ends[1]}. Received: "
                    f"{segment!r:.80} in {document['doc_key']!r}"
                )

    def tensors(self, document: dict) -> dict:
        """Returns the arrays of the released scripts for a document.

        Args:
            document: dict, see `segment`, in words or subtokens.

        Returns:
            Dict of `input_ids`, `input_mask`, `speaker_ids` `[S, L]`, `text_len`
            `[S]`, `genre` `[]`, `gold_starts`, `gold_ends`, `cluster_ids` `[G]`,
            `sentence_map` `[T]`, for S segments, L `sequence_length`, T tokens and G
            gold mentions. With overlap also `overlap_ids` and `overlap_mask`
            `[S + 1, L]`. All are int32.
        """
        return self.encode(document)[0]

    def encode(self, document: dict) -> tuple[dict, np.ndarray]:
        """Returns the `tensors` of a document, and the word of each of its tokens.

        The word of a separator is -1. If a document is in subtokens, each token is its
        own word.
        """
        document, word_of = self._segment(document)
        if self._id_of is None:
            vocabulary = self.tokenizer.get_vocabulary()
            self._id_of = {token: number for number, token in enumerate(vocabulary)}
        unknown = self._id_of[self.tokenizer.oov_token]
        separators = len(self.added_separators() or ())
        sizes = [len(segment) for segment in document["sentences"]]
        for size in sizes:
            if size + separators > self.sequence_length:
                raise ValueError(
                    f"A segment must have at most the preprocessor's {self.sequence_length} "
                    f"tokens. Received: {size + separators}"
                )
        tokens = itertools.chain(*document["sentences"])
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
        tensors = {
            **segment_rows(
                np.array([self._id_of.get(token, unknown) for token in tokens], np.int32),
                np.array(speakers, np.int32),
                np.array(sizes, np.int32),
                self.sequence_length,
                self.added_separators(),
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

    def _pieces(self, words):
        """Returns each word's subtokens. Equal words are tokenized once."""
        # OntoNotes writes a slash before some sentence ends.
        words = [word[1:] if word in ("/.", "/?") else word for word in words]
        unique, tokenizer = [*dict.fromkeys(words)], self.tokenizer
        pieces = {
            word: [tokenizer.id_to_token(int(token_id)) for token_id in ids]
            for word, ids in zip(unique, tokenizer.tokenize_batch(unique))
        }
        # A word that has only control characters keeps its place.
        return [pieces[word] or [tokenizer.oov_token] for word in words]

    def get_config(self):
        return {**super().get_config(), "genres": list(self.genres)}


def _merge_clusters(clusters) -> list[list[tuple[int, int]]]:
    """Merges clusters that share a mention, and lists each mention once."""
    merged = []
    for cluster in clusters:
        mentions = dict.fromkeys(map(tuple, cluster))
        apart = []
        for other in merged:
            if other.keys().isdisjoint(mentions):
                apart.append(other)
            else:
                mentions = other | mentions
        merged = [*apart, mentions]
    return [list(mentions) for mentions in merged]
