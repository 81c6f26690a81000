"""`--task=prepare`: text is tokenised and cut into blocks once, for many runs."""

import importlib.util
import os
import time

from keras_spanbert.recipes import checks, corpora
from keras_spanbert.recipes.flags import FLAGS, group
from keras_spanbert.recipes.run import Run
from keras_spanbert.recipes.terminal import log, stop_on_signals, user_input

DEFAULTS = {"sequence_length": 32, "batch_size": 64}

string, integer, number, boolean, strings, choice = group("Data")
integer("shards", None, "--task=prepare: files of each split. Default: 16.", lower_bound=1)
string("beam_runner", None, "--task=prepare: Apache Beam's runner that does it, as DirectRunner.")
strings("beam_options", [], "Options of its pipeline, as --flink_master=host:8081.")


def check() -> None:
    """Raises a ValueError where the flags ask for what is not done here."""
    checks.refuse("eval_data", "predict_data", "predictions", "resume", "export", "seeds", "grid")
    corpora.check()
    if FLAGS.beam_runner and importlib.util.find_spec("apache_beam") is None:
        raise ValueError(
            "`--beam_runner` takes Apache Beam (pip install keras-spanbert[beam]). Received: "
            f"--beam_runner={FLAGS.beam_runner}, no package apache_beam"
        )


def run(run: Run) -> None:
    """Writes the prepared corpus into the folder of the run."""
    from keras_spanbert import files
    from keras_spanbert.data.prepared import is_prepared, prepare

    with user_input():
        if FLAGS.train_data and is_prepared(FLAGS.train_data[0]):
            raise ValueError(f"--task=prepare takes text. Received: {FLAGS.train_data[0]}")
        corpus, _ = corpora.open_corpora(must_hold_out=False)
        tokenizer = corpora.load_preset()[1] if FLAGS.preset else corpora.new_tokenizer(corpus)
        stop_on_signals("before the corpus was written", clean_up=True)
        num_bytes = sum(os.path.getsize(name) for name in corpus.files)
        log(f"Preparing {num_bytes:,} bytes of {len(corpus.files):,} files")
        started = time.perf_counter()
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
        f"--train_data={run.output} trains on them"
    )
