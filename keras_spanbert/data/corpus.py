"""Reads text files, a megabyte at a time, as documents and blocks of tokens."""

import collections
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tokenizers

from keras_spanbert import cache, stores
from keras_spanbert.checks import (
    check_counts,
    check_flags,
    check_in,
    check_length,
    check_range,
    is_integer,
)
from keras_spanbert.data.blocks import SPAN_KINDS, BlockBuilder, chunk_pieces, remove_span_marks
from keras_spanbert.data.prepared import PreparedCorpus, prepare
from keras_spanbert.data.text_files import (
    DOCUMENT_BOUNDARIES,
    ByteRange,
    find_files,
    find_ranges,
    is_document_lines,
    read_document_lines,
    read_documents,
)
from keras_spanbert.data.training_stream import SPLITS, BlockDatasets, check_corpus
from keras_spanbert.formats.vocabulary import SPECIAL_TOKENS

# Increase this number when a change to the code changes the blocks. Otherwise the cache returns
# the old blocks.
_BLOCKS_VERSION = 3
# Texts for the trainer of vocabularies have at least this many characters, except the last.
_TRAIN_CHARACTERS = 1 << 16


class FileRange(NamedTuple):
    """A part of a corpus that one worker may read."""

    file: int  # The number of the file.
    first_document: int  # The number of the first document.
    within: ByteRange


class Corpus(BlockDatasets):
    """Text files split into documents, some of them held out.

    The constructor reads all files once, to check and count them. Datasets and
    streams first tokenize the text: see `prepared`.

    Args:
        files: string, `os.PathLike` or a list of these: paths or globs of UTF-8
            text, plain or gzip. JSON lines (`.jsonl`) have a document per line,
            with its linguistic spans: see `text_files.read_document_lines`.
        document_boundary: "file", "blank_line" or "line". The end of a document.
            Defaults to `"file"`.
        held_out: float in [0, 1). Share of documents to hold out, at most a half:
            every n-th, with files sorted by name. Defaults to `0.0`.
        encoding_errors: "strict", or "replace" to continue after bytes that are
            not UTF-8. Defaults to `"strict"`.
        cross_documents: bool. Whether blocks continue from one document to the next of the same
            split and range, with a `[SEP]` between them, like RoBERTa's "full sentences". Defaults
            to `False`: a block is a part of one document (Joshi et al. 2020, section 4.2).
        count_words: bool. Whether to count words in the same pass, so that
            `train_vocabulary` need not read the files again. Defaults to `False`.

    Attributes:
        num_documents: int.
        checksums: dict from each file to the SHA-256 sum of its text and spans.
        ranges: list of `FileRange`: whole files, or parts of files above 64 MB.
        lacks_spans: dict from each kind of linguistic span, "entity" and "noun_phrase", to a list
            with the first document without annotations of this kind in each file.

    Raises:
        ValueError: if no file matches, a file is empty, blank, binary or not
            UTF-8, or there are too few documents to hold one out.

    Example:
    ```python
    corpus = Corpus("texts/*.txt", held_out=0.05)
    tokenizer = SpanBertTokenizer(corpus.train_vocabulary(8000))
    preprocessor = SpanBertPretrainerPreprocessor(tokenizer, sequence_length=128)
    model.fit(corpus.training_dataset(preprocessor, 32, seed=1), steps_per_epoch=1000)
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
            check_in(name, value, value in choices, f"one of {choices}")
        check_range("[0, 1)", held_out=held_out)
        check_flags(cross_documents=cross_documents, count_words=count_words)
        self.document_boundary = document_boundary
        self.encoding_errors = encoding_errors
        self.cross_documents = cross_documents
        self._seen = {}  # Versions of the files, to notice if one changes.
        self._prepared = {}  # Results of `prepared`, by their keys.
        self.files = find_files(files)
        self.num_documents = 0
        self.checksums = {}
        self.lacks_spans = {kind: [] for kind in SPAN_KINDS}
        self.ranges = []
        self._held_out_every = max(2, round(1 / held_out)) if held_out else None
        self._words = collections.Counter() if count_words else None
        for i, path in enumerate(self.files):
            first_document = self.num_documents
            checksum = hashlib.sha256()
            is_lines = is_document_lines(path)
            boundary = "line" if is_lines else document_boundary
            for within in find_ranges(path, boundary, count_lines=is_lines):
                place = FileRange(i, self.num_documents, within)
                for text, ends_document in self._read(path, within):
                    if count_words and not self._is_held_out(self.num_documents):
                        _add_words(self._words, text)
                    spans = getattr(text, "spans", {})
                    for kind, places in self.lacks_spans.items():
                        is_listed = places and places[-1].startswith(path)
                        if kind not in spans and not is_listed:
                            places.append(getattr(text, "place", path))
                    self.num_documents += ends_document
                    lengths = {kind: len(found) for kind, found in spans.items()}
                    checksum.update(json.dumps([len(text), ends_document, lengths]).encode())
                    checksum.update(text.encode("utf-8", "surrogatepass"))
                    for found in spans.values():
                        checksum.update(found.tobytes())
                if self.num_documents > place.first_document:  # The range is not blank.
                    self.ranges.append(place)
            self.checksums[path] = checksum.hexdigest()
            if self.num_documents == first_document:
                raise ValueError(f"A file must contain text. Received: {path}, empty or blank")
        if held_out and self.num_documents < 2:
            finer = DOCUMENT_BOUNDARIES[1 + DOCUMENT_BOUNDARIES.index(document_boundary) :]
            hint = f", or try --document_boundary={' or '.join(finer)}" if finer else ""
            raise ValueError(
                "A corpus must have at least 2 documents to hold one out. Use --eval_data to "
                "evaluate on other files (with --task=prepare, use --held_out=0)"
                f"{hint}. Received: 1 document in {len(self.files)} file(s) with "
                f"document_boundary={document_boundary!r}"
            )
        if held_out and self.num_documents < self._held_out_every:
            # The last document is held out, so the words are counted again.
            self._held_out_every, self._words = self.num_documents, None

    def documents(self, split: str = "train", order=None) -> Iterator[tuple[str, bool]]:
        """Yields `(text, ends_document)`. Long documents come in pieces.

        Args:
            split: `"train"`, `"held_out"` or `"all"`. Defaults to `"train"`.
            order: sequence of ints. Order in which to read `ranges`. Defaults to
                `None`, sorted by file name.
        """
        return (piece[:2] for piece in self._pieces(split, order))

    def _pieces(self, split, order=None):
        """Yields `(text, ends_document, range)`."""
        check_in("split", split, split in SPLITS, f"one of {', '.join(SPLITS)}")
        for i in range(len(self.ranges)) if order is None else order:
            file, document, within = self.ranges[i]
            for text, ends_document in self._read(self.files[file], within):
                if split == "all" or self._is_held_out(document) == (split == "held_out"):
                    yield text, ends_document, i
                document += ends_document

    def train_vocabulary(self, vocabulary_size: int, lowercase: bool = False) -> list[str]:
        """Trains a WordPiece vocabulary on the training documents.

        Args:
            vocabulary_size: int. Maximum number of tokens, with the five special ones.
            lowercase: bool. Whether to lower-case and strip accents first. Defaults to `False`.

        Returns:
            List of tokens.

        Raises:
            ValueError: if `vocabulary_size` leaves no room for letters.
        """
        rule = "at least 100, for the special tokens and the letters"
        is_right = is_integer(vocabulary_size) and vocabulary_size >= 100
        check_in("vocabulary_size", vocabulary_size, is_right, rule)
        check_flags(lowercase=lowercase)
        if self._words is None:
            self._words = collections.Counter()
            for text, _ in self.documents():
                _add_words(self._words, text)
        words, self._words = self._words, None  # Frees a lot of memory.
        # Each letter needs two tokens, such as `a` and `##a`. A third of the vocabulary is left for
        # longer tokens.
        most_letters = (vocabulary_size - len(SPECIAL_TOKENS)) // 3

        def train(size, first_tokens):
            trainer = tokenizers.BertWordPieceTokenizer(
                lowercase=lowercase, strip_accents=lowercase
            )
            trainer.train_from_iterator(
                _texts(words),
                vocab_size=size,
                limit_alphabet=min(1000, most_letters),
                special_tokens=first_tokens,
                show_progress=False,
            )
            vocabulary = trainer.get_vocab()
            return sorted(vocabulary, key=vocabulary.get)

        # The trainer numbers letters in no fixed order and breaks ties between pairs by
        # these numbers. A first run finds the letters, and a second one gets them in
        # order, so that the same text gives the same vocabulary.
        special = list(SPECIAL_TOKENS)
        letters = sorted(set(train(0, special)) - set(special))
        return train(vocabulary_size, special + letters)

    def blocks(
        self,
        tokenizer,
        sequence_length: int,
        split: str = "train",
        min_tokens: int = 8,
        with_marks: bool = False,
        order=None,
    ) -> Iterator[np.ndarray]:
        """Yields int32 arrays `[blocks, sequence_length]`.

        Each block is `[CLS]`, up to `sequence_length - 2` consecutive tokens of a
        document, `[SEP]`, and padding. Tokens are dropped only at the end of a
        document, if fewer than `min_tokens` are left.

        Args:
            tokenizer: `SpanBertTokenizer`.
            sequence_length: int.
            split: see `documents`.
            min_tokens: int. Defaults to `8`.
            with_marks: bool. Whether to keep the marks of linguistic spans in the
                ids: see `keras_spanbert.data.blocks`. Defaults to `False`.
            order: see `documents`.
        """
        check_length(sequence_length)
        check_counts(0, min_tokens=min_tokens)
        builder = BlockBuilder(tokenizer, sequence_length, min_tokens)
        for chunk in chunk_pieces(self._pieces(split, order), self.cross_documents):
            blocks = builder.blocks(*chunk)
            if len(blocks):
                yield blocks if with_marks else remove_span_marks(blocks)

    def prepared(
        self,
        preprocessor,
        min_tokens: int = 8,
        progress: Callable[[int, int, int], None] | None = None,
    ) -> PreparedCorpus:
        """Tokenizes the text, keeps the blocks on disk and returns them.

        The blocks are in the cache, the folder that the environment variable
        KERAS_SPANBERT_CACHE names, by default `~/.cache/keras_spanbert`. The same text
        with the same settings is not tokenized again. Use
        `keras_spanbert.data.prepared.prepare` to write blocks to a folder of your own.

        Args:
            preprocessor: `SpanBertPretrainerPreprocessor`.
            min_tokens: see `blocks`. With `sequence_length - 2`, all blocks are full,
                and batches have no `padding_mask`.
            progress: see `prepare`. Not called if the blocks are in the cache.

        Raises:
            ValueError: if the preprocessor's masking scheme needs linguistic spans that
                the corpus lacks, or it makes pairs of sentences and blocks cross documents.
        """
        check_corpus(self, preprocessor)
        tokenizer, length = preprocessor.tokenizer, preprocessor.sequence_length
        check_counts(0, min_tokens=min_tokens)
        min_tokens = min(int(min_tokens), length - 2)
        ranges = [(self.checksums[self.files[file]], within) for file, _, within in self.ranges]
        config = {k: v for k, v in tokenizer.get_config().items() if k not in ("name", "dtype")}
        config["vocabulary"] = tokenizer.get_vocabulary()
        every, crosses = self._held_out_every, self.cross_documents
        key = json.dumps(
            [_BLOCKS_VERSION, ranges, every, crosses, length, min_tokens]
            + [type(tokenizer).__name__, config]
        )

        def write(folder):
            prepare(self, tokenizer, length, folder, min_tokens, progress=progress)

        if key not in self._prepared:
            self._prepared[key] = cache.open_cached(key, write, PreparedCorpus)
        return self._prepared[key]

    def __getstate__(self):
        # Open files of prepared corpora cannot be sent to workers.
        return {**self.__dict__, "_prepared": {}}

    def check_unchanged(self) -> None:
        """Raises `OSError` if a file is not the one that the constructor read."""
        for path in self.files:
            self._check_version(path)

    def _check_version(self, path):
        version = stores.names(path)
        if self._seen.setdefault(path, version) != version:
            raise OSError(errno.EIO, "Changed since it was first read", path)

    @property
    def holds_out(self) -> bool:
        """Whether some documents are held out."""
        return self._held_out_every is not None

    def _is_held_out(self, document):
        every = self._held_out_every
        return every is not None and document % every == every - 1

    def _read(self, path, within):
        self._check_version(path)
        if is_document_lines(path):
            return read_document_lines(path, self.encoding_errors, within)
        return read_documents(path, self.document_boundary, self.encoding_errors, within)


# === Vocabularies ===
def _add_words(counts, text):
    """Adds the words of a text, separated by white space, to the counts."""
    # Blanks as defined by the tokenizer. It treats some of Python's blanks as letters.
    counts.update(text.replace("\n", " ").replace("\t", " ").split(" "))


def _texts(counts):
    """Yields texts that contain each word as often as it was counted."""
    chunk, size = [], 0
    for word, count in counts.items():
        at_once = max(1, _TRAIN_CHARACTERS // (len(word) + 1))
        for start in range(0, count, at_once):
            chunk += [word] * min(count - start, at_once)
            size += (len(word) + 1) * min(count - start, at_once)
            if size >= _TRAIN_CHARACTERS:
                yield " ".join(chunk)
                chunk, size = [], 0
    yield " ".join(chunk)
