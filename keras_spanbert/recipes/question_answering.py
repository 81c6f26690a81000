"""`--task=question_answering`: answers questions from texts, in SQuAD's or MRQA's format."""

import os

import keras_spanbert as ks
from keras_spanbert import files, stores
from keras_spanbert.files import ending
from keras_spanbert.recipes import checks, fine_tuning
from keras_spanbert.recipes.flags import FLAGS, Group, values
from keras_spanbert.recipes.recipe import Recipe
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.wording import format_count

_N_BEST = 20
_NUM_PRINTED = 3  # Number of answers to log for --question.

group = Group("Question answering", "only for --task=question_answering.")
group.integer(
    "doc_stride",
    "Long contexts are cut into overlapping windows. This is the number of tokens from the start "
    "of a window to the start of the next one. Default: 128, or a little less than half of "
    "--sequence_length if that is smaller; without training, the value of the preset.",
)
group.integer(
    "max_question_length",
    "Largest number of tokens per question. Longer questions are truncated. Default: 64, or three "
    "eighths of --sequence_length if that is smaller; without training, the value of the preset.",
)
group.string(
    "question",
    "A question to answer from each text in --predict_data, which must name text files (.txt). The "
    "three best answers are printed. Default: the questions in the files of --predict_data.",
    allow_overwrite=False,  # A second question would replace the first.
)
group.integer("max_answer_length", "Largest number of tokens in a predicted answer.", default=30)
group.boolean(
    "strict_answers",
    "Stop if the answer to a question in --train_data is not at its given position in the context. "
    "By default, training leaves such questions out.",
    default=False,
)
group.boolean(
    "scores_by_character",
    "Score answers by characters in Chinese, Japanese and Thai, which have no blanks between "
    "words, as MLQA does for Chinese. Words of other scripts remain whole.",
    default=False,
)


def n_best_path(predictions: str) -> str:
    """Returns the path of the file of best answers, next to the predictions."""
    return os.path.splitext(predictions)[0] + ".nbest.json"


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    asks = FLAGS.question is not None
    if asks:
        checks.check_value("question", FLAGS.question.strip(), "a question")
    found = checks.matching_files("predict_data")
    wrong = [path for path in found if (ending(path) == ".txt") != asks]
    if wrong or (asks and not found):
        mistake = "--question and --predict_data with text files (.txt) must be given together"
        more = f", {wrong[0]}" if wrong else ""
        checks.refuse(mistake, "question", "predict_data", more=more)
    wrong = [
        path
        for name in checks.INPUTS
        for path in checks.matching_files(name)
        if ending(path) not in (".json", ".jsonl", ".txt" if name == "predict_data" else None)
        and stores.kind(path) != "directory"
    ]
    if wrong:
        raise ValueError(
            "Files of questions must end in .json (SQuAD) or .jsonl (MRQA, or rows with id, "
            f"question, context and answers), optionally with .gz. Received: {wrong[0]}"
        )
    fine_tuning.check(needs_predictions=FLAGS.question is None)
    if FLAGS.predictions:
        checks.check_file("predictions", n_best_path(FLAGS.predictions))
    # Without training, the preset's length is used.
    if FLAGS.train_data or FLAGS["sequence_length"].present:
        question, stride = FLAGS.max_question_length or 1, FLAGS.doc_stride or 1
        checks.check_value(
            "sequence_length",
            question + 3 + stride <= FLAGS.sequence_length,
            f"at least the sum of --max_question_length={question}, 3 special tokens and "
            f"--doc_stride={stride}",
        )


def read(paths, flag, model):
    from keras_spanbert.data.questions import Examples
    from keras_spanbert.data.text_files import read_text

    if flag == "predict_data" and FLAGS.question is not None:
        texts = [read_text(path, FLAGS.encoding_errors) for path in paths]
        for path, text in zip(paths, texts):
            if not text.strip():
                raise ValueError(f"A text must have words. Received: {path}, which has none")
        return Examples(paths, [FLAGS.question] * len(paths), texts, None, None)
    is_mrqa = [ending(path) == ".jsonl" and not ks.data.squad.has_rows(path) for path in paths]
    if any(is_mrqa) != all(is_mrqa):
        raise ValueError(
            "Files must be all SQuAD (.json, or .jsonl with a question per line) or all MRQA "
            f"(.jsonl). Received: {' '.join(paths)}"
        )
    reader = ks.data.mrqa if any(is_mrqa) else ks.data.squad
    return reader.read(
        paths,
        FLAGS.strict_answers,
        for_training=flag == "train_data",
        needs_answers=flag != "predict_data",
    )


def stream(answerer, train):
    """Returns the windows of the contexts to train on."""
    from keras_spanbert.data.batches import SEQUENCES
    from keras_spanbert.tasks.question_answering.model import LABELS

    log(f"{format_count(len(train.ids), 'question')}; cutting contexts into windows")
    windows = answerer.preprocessor.windows(train.questions, train.contexts, train.answers)
    log(f"{format_count(len(windows['token_ids']), 'window')} of {FLAGS.sequence_length} tokens")
    arrays = tuple({name: windows[name] for name in names} for names in (SEQUENCES, LABELS))
    fine_tuning.lower_batch_size(len(windows["token_ids"]))
    return ks.Batches(arrays, FLAGS.batch_size, FLAGS.seed, whole_epochs=True)


def predict(answerer, prediction):
    answers = answerer.answer(
        prediction.questions,
        prediction.contexts,
        top_k=_N_BEST,
        **values("max_answer_length", "batch_size"),
    )
    if FLAGS.question is not None:
        for path, found in zip(prediction.ids, answers):
            log(f"{path}:")
            for answer in found[:_NUM_PRINTED]:
                log(f"  {answer['answer'] or '(no answer)'}  {answer['score']:.1%}")
    if not FLAGS.predictions:
        return
    best = {name: found[0]["answer"] for name, found in zip(prediction.ids, answers)}
    n_best = n_best_path(FLAGS.predictions)
    with exit_on_user_error():
        files.write_json(FLAGS.predictions, best)
        files.write_json(n_best, dict(zip(prediction.ids, answers)))
    written = format_count(len(answers), "answer")
    log(f"Wrote {written} to {FLAGS.predictions}, the {_N_BEST} best per question to {n_best}")


RECIPE = Recipe(
    check=check,
    defaults={"sequence_length": 384, "batch_size": 32, "beta_2": 0.999, "epsilon": 1e-8},
    endings=lambda: (".json",),
    epochs=2,
    preprocessor_flags=("sequence_length", "doc_stride", "max_question_length"),
    stream=stream,
    export_flags=("max_answer_length",),
    evaluation_flags=("batch_size", "max_answer_length", "scores_by_character"),
    prediction_flags=("batch_size", "max_answer_length", "question"),
    read=read,
    evaluate=lambda model, examples: model.evaluate_squad(
        examples,
        by_character=FLAGS.scores_by_character,
        **values("max_answer_length", "batch_size"),
    ),
    predict=predict,
)
