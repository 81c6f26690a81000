"""Text files to blocks of tokens and masked batches, streamed.

Each pass over the corpus reads the files anew, a megabyte at a time, so that
memory does not grow with them. A block never crosses a document's end
(Joshi et al. 2020, section 4.2: "single contiguous segments").
"""

import codecs
import glob
import gzip
import io
import itertools
import os
import re
import zlib

import numpy as np
import tokenizers

from keras_spanbert.data.training_stream import ShuffleBuffer, TrainingStream

DOCUMENT_BOUNDARIES = ("file", "blank_line", "line")
# Evaluation is the same whatever the run's seed, which is never this one.
EVALUATION_SEED = 2**62
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_READ_BYTES = 1 << 20
# Text handed to the tokenizer at once, in characters.
_TOKENIZE_CHARACTERS = 1 << 18
# A document longer than this is read in pieces, cut between words.
_PIECE_CHARACTERS = 1 << 16
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")


class Corpus:
    """Text files, split into documents, some of them held out.

    Reads all files once, to check and count them.

    Args:
        files: string or list of strings, paths or globs, of plain or gzip
            UTF-8 text.
        document_boundary: "file", "blank_line" or "line", where documents end.
            Defaults to `"file"`.
        held_out: float in [0, 1). Share of documents to hold out: each n-th,
            over the sorted files, whatever the seed; at most each second.
            Defaults to `0.0`.
        encoding_errors: "strict", or "replace" to read on behind bytes that are
            not UTF-8. Defaults to `"strict"`.
        cross_documents: bool. Whether blocks go on from a document to the next
            one of its file and split, behind a `[SEP]`, as RoBERTa's "full
            sentences". Defaults to `False`.

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
        files,
        document_boundary="file",
        held_out=0.0,
        encoding_errors="strict",
        cross_documents=False,
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
        self.files = find_files(files)
        self._first_document = []
        self.num_documents = 0
        self.num_characters = 0
        for path in self.files:
            self._first_document.append(self.num_documents)
            for text, ends_document in self._read(path):
                self.num_documents += ends_document
                self.num_characters += len(text)
            if self.num_documents == self._first_document[-1]:
                raise ValueError(f"A file must hold text. Received: {path}, empty or blank")
        self._held_out_every = max(2, round(1 / held_out)) if held_out else None
        if held_out and self.num_documents < 2:
            raise ValueError(
                "A corpus must hold 2 documents or more to hold one out. Received: 1 document "
                f"in {len(self.files)} file(s) with document_boundary={document_boundary!r}; "
                "blank_line or line finds more"
            )
        if held_out and self.num_documents < self._held_out_every:
            self._held_out_every = self.num_documents

    def documents(self, split="train", file_order=None):
        """Yields `(text, ends_document)`; long documents come in pieces.

        Args:
            split: "train", "held_out" or "all".
            file_order: sequence of ints, the order in which to read the files.
                Defaults to `None`, sorted by name.
        """
        return ((text, ends) for text, ends, _ in self._pieces(split, file_order))

    def _pieces(self, split, file_order):
        """Yields `(text, ends_document, file)`."""
        for i in range(len(self.files)) if file_order is None else file_order:
            document = self._first_document[i]
            for text, ends_document in self._read(self.files[i]):
                if split == "all" or self._is_held_out(document) == (split == "held_out"):
                    yield text, ends_document, i
                document += ends_document

    def train_vocabulary(self, vocabulary_size, lowercase=False):
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
        if vocabulary_size < 100:
            raise ValueError(
                "`vocabulary_size` must be at least 100: special tokens and letters. "
                f"Received: vocabulary_size={vocabulary_size}"
            )
        # Each letter also takes a token as a word's continuation.
        most_letters = (vocabulary_size - len(SPECIAL_TOKENS)) // 3

        def train(size, first_tokens):
            trainer = tokenizers.BertWordPieceTokenizer(
                lowercase=lowercase, strip_accents=lowercase
            )
            trainer.train_from_iterator(
                (text for text, _ in self.documents()),
                vocab_size=size,
                limit_alphabet=min(1000, most_letters),
                special_tokens=first_tokens,
                show_progress=False,
            )
            vocabulary = trainer.get_vocab()
            return sorted(vocabulary, key=vocabulary.get)

        # The trainer numbers letters in no fixed order and breaks ties between
        # pairs by these numbers: a first run finds the letters, a second one is
        # given them in order, so that the same text gives the same vocabulary.
        special = list(SPECIAL_TOKENS)
        letters = sorted(set(train(0, special)) - set(special))
        return train(vocabulary_size, special + letters)

    def blocks(self, tokenizer, sequence_length, split="train", min_tokens=8, file_order=None):
        """Yields int32 arrays `[blocks, sequence_length]`.

        Each block is `[CLS]`, up to `sequence_length - 2` tokens that follow
        one another in a document, `[SEP]`, and padding. No token is dropped or
        repeated but for documents' tails of fewer than `min_tokens` tokens.

        Args:
            tokenizer: `SpanBertTokenizer`.
            sequence_length: int.
            split, file_order: see `documents`.
            min_tokens: int. Defaults to `8`.
        """
        parts = self.parts_of_blocks(tokenizer, sequence_length, split, min_tokens, file_order)
        return (blocks for blocks, _ in parts if len(blocks))

    def parts_of_blocks(
        self,
        tokenizer,
        sequence_length,
        split="train",
        min_tokens=8,
        file_order=None,
        skip=0,
        rest=(),
    ):
        """Yields the blocks of a part of the text, and the tokens left of its last document.

        Args:
            tokenizer, sequence_length, split, min_tokens, file_order: see
                `blocks`.
            skip: int. Parts not to tokenise. Defaults to `0`.
            rest: int32 `[tokens]`, what was left of the last of these.
        """
        import tensorflow as tf

        rest = np.asarray(rest, np.int32)
        pieces = self._pieces(split, file_order)
        if self.cross_documents:
            pieces = _joined(pieces)
        else:
            pieces = ((text, ends, False) for text, ends, _ in pieces)
        for texts, ends, goes_on in itertools.islice(_batches(pieces), skip, None):
            tokens = tokenizer.traced(tf.constant(texts))  # Several times as fast as eagerly.
            values, lengths = tokens.flat_values.numpy(), tokens.row_lengths().numpy()
            if any(goes_on):
                values = np.insert(values, np.cumsum(lengths)[goes_on], tokenizer.sep_token_id)
                lengths += goes_on
            values = np.concatenate([rest, values])
            lengths[0] += len(rest)
            blocks, rest = _cut(values, lengths, ends, sequence_length - 2, min_tokens)
            yield _pack(blocks, tokenizer), rest

    def token_counts(self, tokenizer, sequence_length, min_tokens=8):
        """Tokenises the training documents and counts.

        Args:
            tokenizer, sequence_length, min_tokens: see `blocks`.

        Returns:
            Counts of each token, int64 `[V]`, special ones left out, and the
            number of blocks.
        """
        counts = np.zeros(tokenizer.vocabulary_size(), np.int64)
        num_blocks = 0
        for blocks in self.blocks(tokenizer, sequence_length, min_tokens=min_tokens):
            counts += np.bincount(blocks.ravel(), minlength=len(counts))
            num_blocks += len(blocks)
        counts[tokenizer.special_token_ids] = 0
        return counts, num_blocks

    def training_dataset(
        self,
        preprocessor,
        batch_size,
        seed,
        epochs=None,
        min_tokens=8,
        shuffle_blocks=10_000,
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
            preprocessor, batch_size, seed, min_tokens, shuffle_blocks, epochs
        ).dataset()

    def evaluation_dataset(
        self, preprocessor, batch_size, split="held_out", steps=None, min_tokens=8
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

        def blocks():
            shuffle = ShuffleBuffer(10_000, np.random.default_rng(EVALUATION_SEED))
            length = preprocessor.sequence_length
            for blocks in self.blocks(preprocessor.tokenizer, length, split, min_tokens):
                yield from shuffle.push(blocks)
            yield from shuffle.flush()

        return evaluation_batches(blocks, preprocessor, batch_size, steps)

    @property
    def holds_out(self):
        """Whether some documents are held out."""
        return self._held_out_every is not None

    def stream(
        self, preprocessor, batch_size, seed, min_tokens=8, shuffle_blocks=10_000, epochs=None
    ):
        """The `TrainingStream` of `training_dataset`."""
        return TrainingStream(
            self, preprocessor, batch_size, seed, epochs, min_tokens, shuffle_blocks
        )

    def _is_held_out(self, document):
        every = self._held_out_every
        return every is not None and document % every == every - 1

    def _read(self, path):
        return _split_documents(_read_text(path, self.encoding_errors), self.document_boundary)


def find_files(patterns):
    """The sorted files that one or several globs match."""
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    files = set()
    for pattern in patterns:
        found = glob.glob(pattern, recursive=True)
        if not found:
            raise ValueError(f"Files must exist. Received: {pattern}, which no file matches")
        folder = next((path for path in found if os.path.isdir(path)), None)
        if folder is not None:
            raise ValueError(
                f"Files must be named, as by '{folder}/*'. Received: {folder}, a folder"
            )
        files.update(found)
    return sorted(files)


def _read_text(path, encoding_errors):
    """Yields the text of a file in parts, with line ends as `\\n`."""
    decoder = codecs.getincrementaldecoder("utf-8")(encoding_errors)
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    offset = 0
    with open(path, "rb") as file:
        if file.peek(2)[:2] == b"\x1f\x8b":
            file = gzip.GzipFile(fileobj=file)
        while True:
            try:
                data = file.read(_READ_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"A gzip file must be whole. Received: {path}: {error}") from None
            if (nul := data.find(0)) >= 0:
                raise ValueError(
                    f"A file must hold text. Received: {path}, binary: a zero byte at byte "
                    f"{offset + nul}"
                )
            waiting = len(decoder.getstate()[0])
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"Text must be UTF-8. Received: {path}, {error.reason} at byte "
                    f"{offset - waiting + error.start}"
                ) from None
            if text.startswith("\ufeff") and offset == 0:
                text = text[1:]  # A byte order mark.
            yield newlines.decode(text, final=not data)
            offset += len(data)
            if not data:
                return


def _split_documents(parts, boundary):
    """Yields `(text, ends_document)` from a file's text; blanks are dropped."""
    rest = ""
    is_open = False  # Whether a piece was yielded without its document's end.
    for part in parts:
        *documents, rest = _split(rest + part, boundary)
        for document in documents:
            if is_open or document.strip():
                yield document, True
                is_open = False
        if len(rest) >= _PIECE_CHARACTERS:
            cut = _before_last_word(rest)
            if rest[:cut].strip():
                yield rest[:cut], False
                is_open = True
                rest = rest[cut:]
    if is_open or rest.strip():
        yield rest, True


def _before_last_word(text):
    # The last word may go on, and blanks may become a blank line.
    stripped = len(text.rstrip())
    if stripped == len(text):
        space = max(text.rfind(character) for character in " \n\t")
        # A "word" that long is none: it is cut where it stands.
        stripped = len(text[:space].rstrip()) if space > len(text) // 2 else stripped
    return stripped


def _split(text, boundary):
    if boundary == "file":
        return [text]
    return text.split("\n") if boundary == "line" else _BLANK_LINES.split(text)


def _joined(pieces):
    """`(text, ends its file, has a document of its file behind it)` of pieces."""
    piece = next(pieces, None)
    while piece is not None:
        text, ends_document, file = piece
        piece = next(pieces, None)
        ends_file = piece is None or piece[2] != file
        yield text, ends_file, ends_document and not ends_file


def _batches(pieces):
    """Groups pieces of documents into lists for the tokenizer."""
    texts, ends, goes_on, size = [], [], [], 0
    for text, *flags in pieces:
        texts.append(text)
        ends.append(flags[0])
        goes_on.append(flags[1])
        size += len(text)
        if size >= _TOKENIZE_CHARACTERS:
            yield texts, ends, goes_on
            texts, ends, goes_on, size = [], [], [], 0
    if texts:
        yield texts, ends, goes_on


def _cut(values, lengths, ends, block_length, min_tokens):
    """Cuts documents into blocks.

    Args:
        values: int32 `[tokens]` of all pieces.
        lengths: int `[pieces]`.
        ends: bool `[pieces]`. Whether the piece ends its document.
        block_length: int.
        min_tokens: int.

    Returns:
        `[blocks, block_length]`, padded with -1, and the tokens left of an
        unfinished document.
    """
    stops = np.cumsum(lengths)
    stops = stops[np.asarray(ends) | (np.arange(len(ends)) == len(ends) - 1)]
    starts = np.concatenate([[0], stops[:-1]])
    counts = -(-(stops - starts) // block_length)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.repeat(starts, counts) + (np.arange(counts.sum()) - first) * block_length
    size = np.minimum(np.repeat(stops, counts) - begin, block_length)
    keep = size >= min(min_tokens, block_length)
    rest = values[:0]
    if not ends[-1]:
        in_last = begin >= starts[-1]
        waits = in_last & (size < block_length)
        rest = values[begin[waits][0] :] if waits.any() else rest
        keep &= ~waits
    begin, size = begin[keep], size[keep]
    column = np.arange(block_length)
    index = np.minimum(begin[:, None] + column, max(len(values) - 1, 0))
    blocks = values[index] if len(begin) else np.zeros((0, block_length), np.int32)
    return np.where(column < size[:, None], blocks, -1), rest


def _pack(blocks, tokenizer):
    """`[CLS]` tokens `[SEP]` and padding, from blocks padded with -1."""
    packed = np.full((len(blocks), blocks.shape[1] + 2), tokenizer.pad_token_id, np.int32)
    packed[:, 0] = tokenizer.cls_token_id
    packed[:, 1:-1][blocks >= 0] = blocks[blocks >= 0]
    packed[np.arange(len(blocks)), 1 + (blocks >= 0).sum(axis=1)] = tokenizer.sep_token_id
    return packed


def evaluation_batches(blocks, preprocessor, batch_size, steps=None):
    """See `Corpus.evaluation_dataset`; `blocks` is a function that returns an iterator of them."""
    import tensorflow as tf

    def fill_up(batch):
        missing = batch_size - tf.shape(batch)[0]
        pad_id = preprocessor.tokenizer.pad_token_id
        batch = tf.pad(batch, [[0, missing], [0, 0]], constant_values=pad_id)
        return tf.ensure_shape(batch, [batch_size, preprocessor.sequence_length])

    spec = tf.TensorSpec([None, preprocessor.sequence_length], tf.int32)
    dataset = tf.data.Dataset.from_generator(blocks, output_signature=spec)
    dataset = dataset.unbatch().batch(batch_size).map(fill_up).take(-1 if steps is None else steps)
    dataset = masked(dataset, preprocessor, EVALUATION_SEED).cache()
    # Fills the cache. Keras on TensorFlow would count one batch more in the mean of a loss where
    # the number is not known.
    num_batches = sum(1 for _ in dataset)
    return dataset.apply(tf.data.experimental.assert_cardinality(num_batches))


def masked(batches, preprocessor, seed, first_step=0, are_full=False):
    """Batches of blocks as the preprocessor masks them, the number of a batch its seed.

    Where all blocks are full they have no `padding_mask`.
    """
    import tensorflow as tf

    def mask(i, batch):
        x, *rest = preprocessor.mask(batch, seed=tf.stack([np.int64(seed), i]))
        if are_full:
            del x["padding_mask"]
        return x, *rest

    return batches.enumerate(first_step).map(
        mask,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
