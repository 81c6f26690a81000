"""Text files to blocks of tokens and masked batches, streamed.

Each pass over the corpus reads the files anew, a megabyte at a time, so that
memory does not grow with them. A block never crosses a document's end
(Joshi et al. 2020, section 4.2: "single contiguous segments").
"""

import itertools
import os
from collections.abc import Iterable, Iterator

import numpy as np

from keras_spanbert import stores
from keras_spanbert.data.array_stream import check_batch_size
from keras_spanbert.data.blocks import (
    BlockCutter,
    PieceGroups,
    TokenCounts,
    group_pieces,
    without_marks,
)
from keras_spanbert.data.document_lines import is_document_lines, read_document_lines
from keras_spanbert.data.evaluation_blocks import EvaluationBlocks
from keras_spanbert.data.file_ranges import FileRange, find_ranges, training_sizes, units_of
from keras_spanbert.data.marked_text import SPAN_KINDS
from keras_spanbert.data.masked_batches import check_corpus, evaluation_batches
from keras_spanbert.data.text_files import DOCUMENT_BOUNDARIES, find_files, read_documents
from keras_spanbert.data.training_stream import TrainingStream
from keras_spanbert.data.vocabulary import WordCounts, train_vocabulary


class Corpus:
    """Text files, split into documents, some of them held out.

    Reads all files once, to check and count them.

    Args:
        files: string or `os.PathLike`, or a list of these, paths or globs, of
            plain or gzip UTF-8 text; of JSON lines (`.jsonl`), a document a line
            with its linguistic spans: see `document_lines`.
        document_boundary: "file", "blank_line" or "line", where documents end.
            Defaults to `"file"`.
        held_out: float in [0, 1). Share of documents to hold out: each n-th,
            over the sorted files, whatever the seed; at most each second.
            Defaults to `0.0`.
        encoding_errors: "strict", or "replace" to read on behind bytes that are
            not UTF-8. Defaults to `"strict"`.
        cross_documents: bool. Whether blocks go on from a document to the next
            one of its file and split, behind a `[SEP]`, as RoBERTa's "full
            sentences", but not from one range of a file to the next. Defaults
            to `False`.
        count_words: bool. Whether to count words in the same reading:
            `train_vocabulary` then reads nothing. Defaults to `False`.

    Attributes:
        num_documents: int.
        num_characters: int.
        evaluation_texts: list of strings, texts that `evaluation_dataset` or
            `survey` came upon, of the first 4 million characters.
        ranges: list of `FileRange`, all files or, of those above 64 MB, parts.
        joins_ranges: bool. Whether a file's ranges are read together, and blocks
            of `cross_documents` go on from one to the next, as before there
            were any. `False` until it is set, before a stream is made.
        lacks_spans: dict of each kind of linguistic spans, "entity" and
            "noun_phrase", to the first place in each file that lacks them.

    Raises:
        ValueError: where no file matches, or a file is empty or blank, binary,
            or not UTF-8; or where there are too few documents to hold one out.

    Example:
    ```python
    corpus = Corpus("texts/*.txt", held_out=0.05)
    tokenizer = SpanBertTokenizer(corpus.train_vocabulary(8000))
    blocks = next(corpus.blocks(tokenizer, sequence_length=128))
    ```
    """

    def __init__(
        self,
        files: str | os.PathLike | Iterable[str | os.PathLike],
        document_boundary: str = "file",
        held_out: float = 0.0,
        encoding_errors: str = "strict",
        cross_documents: bool = False,
        count_words: bool = False,
    ):
        for name, value, choices in [
            ("document_boundary", document_boundary, DOCUMENT_BOUNDARIES),
            ("encoding_errors", encoding_errors, ("strict", "replace")),
        ]:
            if value not in choices:
                raise ValueError(f"`{name}` must be one of {choices}. Received: {value!r}")
        if not 0.0 <= held_out < 1.0:
            raise ValueError(f"`held_out` must be in [0, 1). Received: held_out={held_out}")
        self.document_boundary = document_boundary
        self.encoding_errors = encoding_errors
        self.cross_documents = cross_documents
        self.counted_blocks = {}  # By tokenizer, length and fewest tokens, for who would count.
        self._seen = {}  # What objects of stores were at first.
        self.files = find_files(files)
        self.num_documents = 0
        self.num_characters = 0
        self.evaluation_texts = []
        self.lacks_spans = {kind: [] for kind in SPAN_KINDS}
        self.ranges = []
        self.joins_ranges = False
        self._held_out_every = max(2, round(1 / held_out)) if held_out else None
        self._words = WordCounts(self._held_out_every) if count_words else None
        for i, path in enumerate(self.files):
            first_document = self.num_documents
            is_lines = is_document_lines(path)
            boundary = "line" if is_lines else document_boundary
            for within in find_ranges(path, boundary, count_lines=is_lines):
                place = FileRange(i, self.num_documents, self.num_characters, within)
                for text, ends_document in self._read(path, within):
                    if count_words:
                        self._words.add(text, self.num_documents)
                    self._note_spans(text, path)
                    self.num_documents += ends_document
                    self.num_characters += len(text)
                if self.num_documents > place.first_document:  # Not blanks alone.
                    self.ranges.append(place)
            if self.num_documents == first_document:
                raise ValueError(f"A file must hold text. Received: {path}, empty or blank")
        if held_out and self.num_documents < 2:
            finer = DOCUMENT_BOUNDARIES[1 + DOCUMENT_BOUNDARIES.index(document_boundary) :]
            hint = f", --document_boundary={' or '.join(finer)} may find more" if finer else ""
            raise ValueError(
                "A corpus must hold 2 documents or more to hold one out: --eval_data names others "
                f"to evaluate on (with --task=prepare: --held_out=0){hint}. Received: 1 document "
                f"in {len(self.files)} file(s) with document_boundary={document_boundary!r}"
            )
        if held_out and self.num_documents < self._held_out_every:
            self._held_out_every = self.num_documents
            if count_words:
                self._words.hold_out_last()

    def training_sizes(self) -> np.ndarray:
        """About how many characters of each range are trained on, floats `[ranges]`.

        Of each file where blocks join ranges. 0 where all documents are held
        out, and only there.
        """
        starts = [self.ranges[unit[0]] for unit in units_of(self.ranges, self.joins_ranges)]
        return training_sizes(starts, self.num_documents, self.num_characters, self._held_out_every)

    def documents(self, split: str = "train", order=None) -> Iterator[tuple[str, bool]]:
        """Yields `(text, ends_document)`; long documents come in pieces.

        Args:
            split: "train", "held_out" or "all".
            order: sequence of ints, the order in which to read `ranges`, or files
                where blocks join these. Defaults to `None`, by the files' names.
        """
        return ((text, ends) for text, ends, _ in self._pieces(split, order))

    def _pieces(self, split, order=None):
        """Yields `(text, ends_document, range or file)`."""
        for piece, document in self._numbered_pieces(order):
            if split == "all" or self._is_held_out(document) == (split == "held_out"):
                yield piece

    def _numbered_pieces(self, order=None):
        """Yields `(text, ends_document, range or file)` and the document's number.

        Blocks may go on from a document to the next one of the same range or file.
        """
        units = units_of(self.ranges, self.joins_ranges)
        for i in range(len(units)) if order is None else order:
            for number in units[i]:
                file, document, _, within = self.ranges[number]
                for text, ends_document in self._read(self.files[file], within):
                    yield (text, ends_document, i), document
                    document += ends_document

    def train_vocabulary(self, vocabulary_size: int, lowercase: bool = False) -> list[str]:
        """Trains a WordPiece vocabulary on the training documents.

        Args:
            vocabulary_size: int. Most tokens of the vocabulary, the five
                special ones included.
            lowercase: bool. Whether to lower-case and strip accents first.

        Returns:
            List of tokens.

        Raises:
            ValueError: where `vocabulary_size` leaves no room for letters.
        """
        if self._words is None:
            self._words = WordCounts()
            for text, _ in self.documents():
                self._words.add(text)
        words, self._words = self._words, None  # Much memory that is not needed any more.
        return train_vocabulary(words, vocabulary_size, lowercase)

    def blocks(
        self,
        tokenizer,
        sequence_length: int,
        split: str = "train",
        min_tokens: int = 8,
        order=None,
        with_marks: bool = False,
    ) -> Iterator[np.ndarray]:
        """Yields int32 arrays `[blocks, sequence_length]`.

        Each block is `[CLS]`, up to `sequence_length - 2` tokens that follow
        one another in a document, `[SEP]`, and padding. No token is dropped or
        repeated but for documents' tails of fewer than `min_tokens` tokens.

        Args:
            tokenizer: `SpanBertTokenizer`.
            sequence_length: int.
            split, order: see `documents`.
            min_tokens: int. Defaults to `8`.
            with_marks: bool. Whether marks of linguistic spans stand above the
                ids: see `keras_spanbert.data.blocks`. Defaults to `False`.
        """
        parts = self.parts_of_blocks(tokenizer, sequence_length, split, min_tokens, order)
        found = (blocks for blocks, _ in parts if len(blocks))
        return found if with_marks else map(without_marks, found)

    def parts_of_blocks(
        self,
        tokenizer,
        sequence_length: int,
        split: str = "train",
        min_tokens: int = 8,
        order=None,
        skip: int = 0,
        rest=(),
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the blocks of a part of the text, and the tokens left of its last document.

        Both bear marks of linguistic spans, where the text has such.

        Args:
            tokenizer, sequence_length, split, min_tokens, order: see
                `blocks`.
            skip: int. Parts not to tokenise. Defaults to `0`.
            rest: int32 `[tokens]`, what was left of the last of these.
        """
        cutter = BlockCutter(tokenizer, sequence_length, min_tokens, rest)
        groups = group_pieces(self._pieces(split, order), self.cross_documents)
        for group in itertools.islice(groups, skip, None):
            yield cutter.blocks(*group), cutter.rest

    def token_counts(
        self, tokenizer, sequence_length: int, min_tokens: int = 8
    ) -> tuple[np.ndarray, int]:
        """Tokenises the training documents and counts.

        Args:
            tokenizer, sequence_length, min_tokens: see `blocks`.

        Returns:
            Counts of each token, int64 `[V]`, special ones left out, and the
            number of blocks.
        """
        counts = TokenCounts(tokenizer)
        for blocks in self.blocks(tokenizer, sequence_length, min_tokens=min_tokens):
            counts.add(blocks)
        counts, num_blocks = counts.result()
        self.counted_blocks[tokenizer, sequence_length, min_tokens] = num_blocks
        return counts, num_blocks

    def survey(self, preprocessor, batch_size: int, steps: int | None = None, min_tokens: int = 8):
        """`token_counts` and `evaluation_dataset` of the held-out documents, in one reading.

        Args:
            preprocessor: `SpanBertPretrainerPreprocessor`.
            batch_size, steps, min_tokens: see `evaluation_dataset`.

        Returns:
            Counts of each token and the number of blocks, as `token_counts`
            gives them, and the `tf.data.Dataset`.

        Raises:
            ValueError: where a batch has more rows than there are blocks to
                train on.
        """
        check_corpus(self, preprocessor)
        tokenizer, length = preprocessor.tokenizer, preprocessor.sequence_length
        counts = TokenCounts(tokenizer)
        held_out = EvaluationBlocks(None if steps is None else steps * batch_size)
        sinks = {False: lambda blocks, _: counts.add(blocks), True: held_out.add}
        groups = {flag: PieceGroups(self.cross_documents) for flag in sinks}
        cutters = {flag: BlockCutter(tokenizer, length, min_tokens) for flag in sinks}

        def take(flag, parts):
            for part in parts:
                sinks[flag](cutters[flag].blocks(*part), part[0])

        for piece, document in self._numbered_pieces():
            flag = self._is_held_out(document)
            take(flag, groups[flag].push(*piece))
        for flag in sinks:
            take(flag, groups[flag].flush())
        self.evaluation_texts = held_out.texts
        counts, num_blocks = counts.result()
        self.counted_blocks[tokenizer, length, min_tokens] = num_blocks
        check_batch_size(batch_size, num_blocks)
        dataset = evaluation_batches(held_out.batches, preprocessor, batch_size, steps)
        return counts, num_blocks, dataset

    def training_dataset(
        self,
        preprocessor,
        batch_size: int,
        seed,
        epochs: int | None = None,
        min_tokens: int = 8,
        shuffle_blocks: int = 10_000,
    ):
        """A `tf.data` dataset of masked batches that `seed` fixes altogether.

        See `TrainingStream` for its order, and for starting within it.

        Args:
            preprocessor: `SpanBertPretrainerPreprocessor`.
            batch_size: int. All batches have it: epochs run into one another.
            seed: int.
            epochs: int. Defaults to `None`, without end.
            min_tokens: see `blocks`. With `sequence_length - 2` all blocks are
                full, and `x` has no `padding_mask`.
            shuffle_blocks: int. Size of the shuffle buffer.

        Returns:
            `tf.data.Dataset` of `(x, y, sample_weight)`.
        """
        return self.stream(
            preprocessor,
            batch_size,
            seed,
            epochs=epochs,
            min_tokens=min_tokens,
            shuffle_blocks=shuffle_blocks,
        ).dataset()

    def evaluation_dataset(
        self,
        preprocessor,
        batch_size: int,
        split: str = "held_out",
        steps: int | None = None,
        min_tokens: int = 8,
    ):
        """A `tf.data` dataset of masked batches, the same in each pass.

        Args:
            preprocessor: `SpanBertPretrainerPreprocessor`.
            batch_size: int. The last batch is filled up with padding, of
                weight 0.
            split: see `documents`.
            steps: int. Number of batches, of blocks drawn from all documents.
                Defaults to `None`, all.
            min_tokens: see `blocks`.

        Returns:
            `tf.data.Dataset` of `(x, y, sample_weight)`, in memory.
        """
        check_corpus(self, preprocessor)
        held_out = EvaluationBlocks(None if steps is None else steps * batch_size)
        tokenizer, length = preprocessor.tokenizer, preprocessor.sequence_length
        cutter = BlockCutter(tokenizer, length, min_tokens)
        for part in group_pieces(self._pieces(split), self.cross_documents):
            held_out.add(cutter.blocks(*part), part[0])
            if held_out.is_full:
                break
        self.evaluation_texts = held_out.texts
        return evaluation_batches(held_out.batches, preprocessor, batch_size, steps)

    @property
    def holds_out(self) -> bool:
        """Whether some documents are held out."""
        return self._held_out_every is not None

    def stream(self, preprocessor, batch_size: int, seed, **kwargs) -> TrainingStream:
        """The stream of `training_dataset`, with arguments of `TrainingStream`."""
        return TrainingStream(self, preprocessor, batch_size, seed, **kwargs)

    def _is_held_out(self, document):
        every = self._held_out_every
        return every is not None and document % every == every - 1

    def _note_spans(self, text, path):
        for kind, places in self.lacks_spans.items():
            if kind not in getattr(text, "spans", ()):
                if not places or not places[-1].startswith(path):
                    places.append(getattr(text, "place", path))

    def _read(self, path, within):
        stores.check_same(path, self._seen)
        if is_document_lines(path):
            return read_document_lines(path, self.encoding_errors, within)
        return read_documents(path, self.document_boundary, self.encoding_errors, within)
