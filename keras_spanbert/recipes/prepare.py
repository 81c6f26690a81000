"""`--task=prepare`: text is tokenised and cut into blocks once, for many runs."""

import contextlib
import glob
import importlib.util
import os
import shlex
import tempfile
import time

from keras_spanbert import stores
from keras_spanbert.recipes import checks, corpora
from keras_spanbert.recipes.flags import FLAGS, group
from keras_spanbert.recipes.run import Run
from keras_spanbert.recipes.terminal import log, stop_on_signals, user_input

DEFAULTS = {"sequence_length": 32, "batch_size": 64}

string, integer, number, boolean, strings, choice = group("Data")
integer("shards", None, "--task=prepare: files of each split. Default: 16.", lower_bound=1)
string("beam_runner", None, "--task=prepare: Apache Beam's runner that does it, as DirectRunner.")
strings("beam_options", [], "Options of its pipeline, as --flink_master=host:8081.")
string(
    "spans",
    None,
    "--task=prepare: find linguistic spans, for --scheme=entity and noun_phrase, by a spaCy "
    "pipeline (name or folder) or the folder of a preset of token classification.",
)


def check() -> None:
    """Raises a ValueError where the flags ask for what is not done here."""
    checks.refuse("eval_data", "predict_data", "predictions", "resume", "export", "seeds", "grid")
    corpora.check()
    if FLAGS.beam_runner and importlib.util.find_spec("apache_beam") is None:
        raise ValueError(
            "`--beam_runner` takes Apache Beam (pip install keras-spanbert[beam]). Received: "
            f"--beam_runner={FLAGS.beam_runner}, no package apache_beam"
        )
    if FLAGS.spans and FLAGS.beam_runner and stores.is_store(FLAGS.output or ""):
        raise ValueError(
            "`--spans` with --beam_runner takes an --output that all workers see as a folder. "
            f"Received: --output={FLAGS.output}"
        )
    if FLAGS.spans and not _is_preset(FLAGS.spans) and importlib.util.find_spec("spacy") is None:
        raise ValueError(
            "`--spans` takes spaCy (pip install keras-spanbert[spacy]) or the folder of a preset. "
            f"Received: --spans={FLAGS.spans}, no package spacy"
        )


@contextlib.contextmanager
def _with_spans(corpus, output):
    """The corpus with the linguistic spans that --spans finds, in files that do not stay."""
    from keras_spanbert.data import linguistic_spans
    from keras_spanbert.data.corpus import Corpus
    from keras_spanbert.data.document_lines import is_document_lines

    for name in corpus.files:
        if is_document_lines(name):
            raise ValueError(f"`--spans` takes plain text. Received: {name}")
    nlp = _load_pipeline(FLAGS.spans)
    folder = None
    if not stores.is_store(output):
        # Beside the output, which all of Beam's workers see.
        folder = os.path.dirname(os.path.abspath(output))
        os.makedirs(folder, exist_ok=True)
    num_ranges = len(corpus.ranges)
    with tempfile.TemporaryDirectory(prefix=".spans-", dir=folder) as folder:
        for i in range(num_ranges):
            path = os.path.join(folder, f"{i:09d}.jsonl")  # In the order of the text.
            texts = corpus.documents("all", order=[i])
            linguistic_spans.write_pieces(texts, path, nlp)
            if (i + 1) * 10 // num_ranges > i * 10 // num_ranges:
                log(f"{i + 1:,}/{num_ranges:,} files with their linguistic spans")
        yield Corpus(
            os.path.join(glob.escape(folder), "*.jsonl"),
            held_out=FLAGS.held_out,
            cross_documents=FLAGS.cross_documents,
        )


def _load_pipeline(name):
    if _is_preset(name):
        import keras_spanbert as ks

        return ks.SpanBertTokenClassifier.from_preset(name)
    import spacy

    try:
        return spacy.load(name)
    except OSError as error:
        raise ValueError(
            "`--spans` must be a spaCy pipeline that is installed, or a preset. Received: "
            f"--spans={name}: {str(error).splitlines()[0]}"
        ) from None


def _is_preset(name):
    return stores.is_folder(name) and not stores.exists(stores.join(name, "config.cfg"))


def _log_spans(corpus):
    """Says which kinds of linguistic spans are kept, where there are any."""
    for kind, places in corpus.lacks_spans.items():
        name = kind.replace("_", " ")
        if not places:
            log(f"With spans of each {name}, for --scheme={kind}")
        elif len(places) < len(corpus.files):
            log(f"Warning: spans of each {name} are not kept: {places[0]} has none")


def run(run: Run) -> None:
    """Writes the prepared corpus into the folder of the run."""
    from keras_spanbert import files
    from keras_spanbert.data.prepared import is_prepared, prepare

    with user_input(), contextlib.ExitStack() as stack:
        if FLAGS.train_data and is_prepared(FLAGS.train_data[0]):
            raise ValueError(f"--task=prepare takes text. Received: {FLAGS.train_data[0]}")
        corpus, _ = corpora.open_corpora(must_hold_out=False)
        tokenizer = corpora.load_preset()[1] if FLAGS.preset else corpora.new_tokenizer(corpus)
        stop_on_signals("before the corpus was written", clean_up=True)
        num_bytes = sum(stores.size(name) for name in corpus.files)
        log(f"Preparing {num_bytes:,} bytes of {len(corpus.files):,} files")
        started = time.perf_counter()
        if FLAGS.spans:
            corpus = stack.enter_context(_with_spans(corpus, run.output))
        _log_spans(corpus)
        corpus = prepare(
            corpus,
            tokenizer,
            FLAGS.sequence_length,
            run.output,
            FLAGS.min_block_tokens,
            FLAGS.shards,
            FLAGS.beam_runner,
            FLAGS.beam_options,
            progress=lambda done, total, blocks: log(f"{done}/{total} shards, {blocks:,} blocks"),
        )
        figures = {
            "blocks": corpus.num_blocks(),
            "held_out_blocks": corpus.num_blocks("held_out"),
            "tokens": int(corpus.token_counts()[0].sum()),
            "text_bytes": num_bytes,
            "seconds": round(time.perf_counter() - started, 1),
        }
        run.write_record()
        files.write_json(run.path("metrics.json"), figures)
    log(
        f"Wrote {figures['blocks']:,} blocks of {FLAGS.sequence_length} tokens to train on and "
        f"{figures['held_out_blocks']:,} held out in {figures['seconds']} s to {run.output}; "
        f"--train_data={shlex.quote(run.output)} trains on them"
    )
