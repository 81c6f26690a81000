"""`--task=question_answering`: fine-tuning on SQuAD's and MRQA's files, answering, exporting."""

import os

from keras_spanbert.recipes import checks, fine_tuning, places
from keras_spanbert.recipes.flags import FLAGS, group
from keras_spanbert.recipes.run import Run
from keras_spanbert.recipes.terminal import log, user_input

DEFAULTS = {"sequence_length": 384, "batch_size": 32, "beta_2": 0.999, "epsilon": 1e-8}
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


def n_best_path(predictions: str) -> str:
    """The file of the best answers, beside that of the answers."""
    return os.path.splitext(predictions)[0] + ".nbest.json"


def check() -> None:
    """Raises a ValueError for what the flags alone show to be wrong."""
    fine_tuning.check()
    if FLAGS.predictions:
        places.check_file("predictions", n_best_path(FLAGS.predictions))
    # A preset that is not trained here has a length of its own.
    if FLAGS.train_data or FLAGS["sequence_length"].present:
        question, stride = FLAGS.max_question_length or 1, FLAGS.doc_stride or 1
        checks.check_value(
            "sequence_length",
            question + 3 + stride <= FLAGS.sequence_length,
            f"at least --max_question_length={question}, 3 special tokens and --doc_stride={stride}"
            " of the context together",
        )


def run(run: Run) -> None:
    """Trains where there is data to train on, evaluates, answers, exports."""
    fine_tuning.fine_tune(
        run,
        _build,
        _read,
        _stream,
        _evaluate,
        _predict,
        learning_rate=_LEARNING_RATE,
        epochs=_EPOCHS,
        max_answer_length=FLAGS.max_answer_length,
    )


def _build():
    import keras_spanbert as ks

    flags = ("sequence_length", "doc_stride", "max_question_length")
    return fine_tuning.build_model(ks.SpanBertQuestionAnswerer, flags)


def _read(paths, flag, model):
    from keras_spanbert.data import mrqa, squad

    is_mrqa = [path.endswith((".jsonl", ".jsonl.gz")) for path in paths]
    if any(is_mrqa) != all(is_mrqa):
        raise ValueError(
            f"Files must be all SQuAD's (.json) or all MRQA's (.jsonl). Received: {' '.join(paths)}"
        )
    reader = mrqa if any(is_mrqa) else squad
    return reader.read(paths, FLAGS.strict, for_training=flag == "train_data")


def _stream(answerer, train):
    from keras_spanbert.data.array_stream import ArrayStream
    from keras_spanbert.tasks.question_answering.model import INPUTS, LABELS

    log(f"{len(train.ids):,} questions; cutting windows")
    windows = answerer.preprocessor.windows(train.questions, train.contexts, train.answers)
    log(f"{len(windows['token_ids']):,} windows of {FLAGS.sequence_length} tokens")
    arrays = tuple({name: windows[name] for name in names} for names in (INPUTS, LABELS))
    return ArrayStream(arrays, FLAGS.batch_size, FLAGS.seed)


def _evaluate(model, examples):
    return model.evaluate_squad(
        examples, max_answer_length=FLAGS.max_answer_length, batch_size=FLAGS.batch_size
    )


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
    n_best = n_best_path(FLAGS.predictions)
    with user_input():
        files.write_json(FLAGS.predictions, best)
        files.write_json(n_best, dict(zip(prediction.ids, answers)))
    log(f"Wrote {len(answers):,} answers to {FLAGS.predictions}, the {_N_BEST} best to {n_best}")
