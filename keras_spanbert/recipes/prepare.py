"""`--task=prepare`: tokenizes text and cuts it into blocks once, for many pretraining runs."""

import contextlib
import glob
import os
import shlex
import tempfile
import time

import keras_spanbert as ks
from keras_spanbert import cache, files, stores
from keras_spanbert.optional import check_installed
from keras_spanbert.recipes import checks, corpora
from keras_spanbert.recipes.flags import FLAGS, Group
from keras_spanbert.recipes.recipe import Recipe
from keras_spanbert.recipes.run_folder import Run
from keras_spanbert.recipes.terminal import exit_on_user_error, log, stop_on_signals
from keras_spanbert.wording import format_count

group = Group(
    "Prepare", "only for --task=prepare, which also uses the flags under Pretraining data."
)
group.integer(
    "shards",
    "Number of files to write for the training text, and as many for the held-out text; at most "
    "one per text file, or per part of a text file above 64 MB. Default: 16.",
)
group.string(
    "beam_runner",
    "Apache Beam runner that prepares the text, for example DirectRunner. Default: no Beam; "
    "threads of this process prepare the text.",
)
group.strings(
    "beam_options",
    "Options of the Beam pipeline, for example --flink_master=host:8081. Default: no options.",
    default=[],
)
group.path(
    "span_annotator",
    "Model that annotates plain text with spans for --masking_scheme=entity and noun_phrase: the "
    "name or folder of a spaCy pipeline, or the folder of a token classification preset, which "
    "finds entities only. Default: only spans that are already annotated in the text are kept.",
)


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    corpora.check()
    for name in ["batch_size", "eval_data", "export", "resume"]:
        is_given = FLAGS[name].present and FLAGS[name].value
        checks.check_value(name, not is_given, "left out with --task=prepare")
    if corpora.is_prepared(FLAGS.train_data):
        checks.refuse("--task=prepare needs text", "train_data")
    if FLAGS.beam_runner:
        check_installed("apache_beam", f"--beam_runner={FLAGS.beam_runner}")
    if FLAGS.beam_runner == "DaskRunner":
        check_installed("distributed", "--beam_runner=DaskRunner")
    if FLAGS.span_annotator and FLAGS.beam_runner and stores.is_store(FLAGS.output or ""):
        needs = "an --output that all workers see as a folder"
        checks.refuse(f"`--span_annotator` with --beam_runner needs {needs}", "output")
    if FLAGS.span_annotator and not _is_preset(FLAGS.span_annotator):
        check_installed("spacy", f"--span_annotator={FLAGS.span_annotator}, which is not a preset,")


@contextlib.contextmanager
def _annotate_spans(corpus, output):
    """Yields the corpus with the spans that --span_annotator finds, in temporary files."""
    from keras_spanbert.data.text_files import is_document_lines

    for name in corpus.files:
        if is_document_lines(name):
            raise ValueError(f"`--span_annotator` needs plain text. Received: {name}")
    name = FLAGS.span_annotator
    if _is_preset(name):
        nlp = ks.SpanBertTokenClassifier.from_preset(name)
    else:
        import spacy

        try:
            nlp = spacy.load(name)
        except OSError as error:
            mistake = "`--span_annotator` must be an installed spaCy pipeline or a preset"
            checks.refuse(mistake, "span_annotator", more=f": {str(error).splitlines()[0]}")
    folder = None
    if not stores.is_store(output):
        # Next to the output, where all Beam workers can read it.
        folder = os.path.dirname(os.path.abspath(output))
        os.makedirs(folder, exist_ok=True)
    num_ranges = len(corpus.ranges)
    with tempfile.TemporaryDirectory(prefix=".spans-", dir=folder) as folder:
        for i in range(num_ranges):
            path = os.path.join(folder, f"{i:09d}.jsonl")  # Sorts in the order of the text.
            texts = corpus.documents("all", order=[i])
            ks.data.linguistic_spans.write(texts, path, nlp)
            if (i + 1) * 10 // num_ranges > i * 10 // num_ranges:
                log(f"Annotating spans: {i + 1:,}/{num_ranges:,} parts of the text")
        yield ks.Corpus(
            os.path.join(glob.escape(folder), "*.jsonl"),
            held_out=FLAGS.held_out,
            cross_documents=FLAGS.cross_documents,
        )


def _is_preset(name):
    is_folder = stores.kind(name) == "directory"
    return is_folder and not stores.kind(stores.join(name, "config.cfg"))


def run(run: Run) -> None:
    """Writes the prepared corpus into the folder of the run."""
    with exit_on_user_error(), contextlib.ExitStack() as stack:
        corpus, _ = corpora.open_corpora(must_hold_out=False)
        tokenizer = corpora.load_preset()[1] if FLAGS.preset else corpora.new_tokenizer(corpus)
        stop_on_signals("before the corpus was written", clean_up=True)
        num_bytes = sum(os.path.getsize(cache.local_copy(name)) for name in corpus.files)
        later = ["shards", "min_block_tokens", "beam_runner", "span_annotator"]
        checks.refuse_unread(*later, *(["beam_options"] if FLAGS.beam_runner else []))
        log(f"Preparing {num_bytes:,} bytes of {format_count(len(corpus.files), 'file')}")
        started = time.perf_counter()
        if FLAGS.span_annotator:
            corpus = stack.enter_context(_annotate_spans(corpus, run.output))
        for kind, paths in corpus.lacks_spans.items():
            name = kind.replace("_", " ")
            if not paths:
                log(f"Keeping {name} spans, for --masking_scheme={kind}")
            elif len(paths) < len(corpus.files):
                log(f"Warning: {name} spans are not kept, because {paths[0]} has none")
        corpus = ks.data.prepared.prepare(
            corpus,
            tokenizer,
            FLAGS.sequence_length,
            run.output,
            FLAGS.min_block_tokens,
            FLAGS.shards,
            FLAGS.beam_runner,
            FLAGS.beam_options,
            progress=corpora.tokenizing_progress(),
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
        f"Wrote {format_count(figures['blocks'], 'block')} of {FLAGS.sequence_length} tokens to "
        f"train on and {figures['held_out_blocks']:,} held out in {figures['seconds']} s to "
        f"{run.output}; train on them with --train_data={shlex.quote(run.output)}"
    )


RECIPE = Recipe(
    check=check,
    defaults={"sequence_length": 32, "batch_size": 64},
    groups=("Pretraining data",),
    run=run,
)
