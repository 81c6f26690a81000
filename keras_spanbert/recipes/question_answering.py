"""`--task=question_answering`: fine-tuning on SQuAD's and MRQA's files, answering, exporting."""

import os

from keras_spanbert.recipes.flags import FLAGS, group, resolve
from keras_spanbert.recipes.run import Run, exit_process
from keras_spanbert.recipes.terminal import log, stop_on_signals, user_input

DEFAULTS = {"sequence_length": 384, "batch_size": 32, "beta_2": 0.999}
_EPOCHS = 2
_LEARNING_RATE = 2e-5
_N_BEST = 20

string, integer, number, boolean, strings, choice = group("Question answering")
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


def check() -> None:
    """Raises a ValueError for what the flags alone show to be wrong."""
    does_something = FLAGS.train_data or FLAGS.eval_data or FLAGS.predict_data or FLAGS.export
    if not FLAGS.preset or not does_something:
        raise ValueError(
            "--task=question_answering takes --preset, and one of --train_data, --eval_data, "
            f"--predict_data and --export. Received: --preset={FLAGS.preset}"
        )
    if bool(FLAGS.predict_data) != bool(FLAGS.predictions):
        raise ValueError(
            "--predict_data and --predictions go together. Received: "
            f"--predict_data={FLAGS.predict_data} --predictions={FLAGS.predictions}"
        )


def run(run: Run) -> None:
    """Trains where there is data to train on, evaluates, answers, exports."""
    from keras_spanbert import files
    from keras_spanbert.recipes.fit import export, fit
    from keras_spanbert.recipes.plan import Plan

    # === Data and model ===
    distribution = run.distribution
    with user_input():
        if not FLAGS.train_data:
            # One process answers, on one device: the last batch may be of any size.
            distribution.close()
            if not run.is_main:
                exit_process(None)
        train, evaluation, prediction = (
            paths and _read_questions(paths, for_training)
            for paths, for_training in [
                (FLAGS.train_data, True),
                (FLAGS.eval_data, False),
                (FLAGS.predict_data, False),
            ]
        )
        with distribution.scope():
            answerer = _build_answerer()

    def evaluate(model):
        return model.evaluate_squad(
            evaluation, max_answer_length=FLAGS.max_answer_length, batch_size=FLAGS.batch_size
        )

    # === Fit ===
    if train:
        with user_input():
            stream, num_windows = _windows(answerer.preprocessor, train)
        steps_per_epoch = -(-num_windows // FLAGS.batch_size)
        answerer, report, metrics = fit(
            run,
            Plan(
                model=answerer,
                stream=stream,
                num_examples=num_windows,
                learning_rate=_LEARNING_RATE,
                steps=_EPOCHS * steps_per_epoch,
                eval_every=steps_per_epoch,
                evaluate=evaluate if evaluation else None,
                metrics=lambda report: report.best,
                plot=lambda report: _plot(run, report, type(answerer)),
            ),
        )
    else:
        with user_input():
            run.write_record()
        stop_on_signals(f"while answering, what there is stands in {run.output}")
        metrics = evaluate(answerer) if evaluation else {}
        with user_input(OSError):
            files.write_json(run.path("metrics.json"), metrics)

    # === Predict and tell ===
    if prediction:
        _predict(answerer, prediction)
    export(answerer, max_answer_length=FLAGS.max_answer_length)
    if evaluation:
        log(f"exact match {metrics['exact']:.2f}, F1 {metrics['f1']:.2f} of {metrics['total']:,}")
    log(f"Wrote {'the preset and ' if train else ''}{run.written()} to {run.output}")


def _read_questions(patterns, for_training):
    from keras_spanbert.data import mrqa, squad
    from keras_spanbert.data.text_files import find_files

    paths = find_files(patterns)
    is_mrqa = [path.endswith((".jsonl", ".jsonl.gz")) for path in paths]
    if any(is_mrqa) != all(is_mrqa):
        raise ValueError(
            f"Files must be all SQuAD's (.json) or all MRQA's (.jsonl). Received: {' '.join(paths)}"
        )
    reader = mrqa if any(is_mrqa) else squad
    return reader.read(paths, FLAGS.strict, for_training)


def _build_answerer():
    """The preset's model; a checkpoint's head starts fresh where it has none."""
    import keras_spanbert as ks

    answerer = ks.SpanBertQuestionAnswerer.from_preset(
        FLAGS.preset, preprocessor=None, dtype=FLAGS.dtype
    )
    longest = answerer.backbone.max_sequence_length
    names = ["sequence_length", "doc_stride", "max_question_length"]
    given = {n: FLAGS[n].value for n in names if FLAGS[n].present}
    preprocessor_cls = ks.SpanBertQuestionAnswererPreprocessor
    if FLAGS.train_data:  # A model that is not trained here keeps its windows.
        length = given.setdefault("sequence_length", min(FLAGS.sequence_length, longest))
        given = {**preprocessor_cls.arguments_for_length(length), **given}
    answerer.preprocessor = preprocessor_cls.from_preset(FLAGS.preset, **given)
    resolve(**{n: getattr(answerer.preprocessor, n) for n in names})
    if FLAGS.sequence_length > longest:
        raise ValueError(
            f"`--sequence_length` must be at most the preset's {longest}. "
            f"Received: {FLAGS.sequence_length}"
        )
    return answerer


def _windows(preprocessor, train):
    """The stream of windows to train on, and their number."""
    from keras_spanbert.data.array_stream import ArrayStream

    log(f"{len(train.ids):,} questions; cutting windows")
    windows = preprocessor.windows(train.questions, train.contexts, train.answers)
    num_windows = len(windows["token_ids"])
    log(f"{num_windows:,} windows of {FLAGS.sequence_length} tokens")
    inputs = {name: windows[name] for name in ["token_ids", "segment_ids", "padding_mask"]}
    labels = {name: windows[name] for name in ["start", "end"]}
    return ArrayStream((inputs, labels), FLAGS.batch_size, FLAGS.seed), num_windows


def _plot(run, report, cls):
    from keras_spanbert.runs import plots

    plots.plot_scores(run.path("loss.png"), report.rows, "Question answering", cls.scores)


def _predict(answerer, prediction):
    from keras_spanbert import files

    answers = answerer.answer(
        prediction.questions,
        prediction.contexts,
        top_k=_N_BEST,
        max_answer_length=FLAGS.max_answer_length,
        batch_size=FLAGS.batch_size,
    )
    best = {name: found[0]["answer"] for name, found in zip(prediction.ids, answers)}
    n_best = os.path.splitext(FLAGS.predictions)[0] + ".nbest.json"
    with user_input():
        files.write_json(FLAGS.predictions, best)
        files.write_json(n_best, dict(zip(prediction.ids, answers)))
    log(f"Wrote {len(answers):,} answers to {FLAGS.predictions}, the {_N_BEST} best to {n_best}")
