"""Reads files of SQuAD 1.1 and 2.0."""

from keras_spanbert.data import questions
from keras_spanbert.data.examples import check, field
from keras_spanbert.data.text_files import read_json

_URL = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
FILES = {
    name: (_URL + name, checksum)
    for name, checksum in {
        "train-v1.1.json": "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
        "dev-v1.1.json": "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
        "train-v2.0.json": "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
        "dev-v2.0.json": "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
    }.items()
}


def download(name: str) -> str:
    """Downloads an official file, unless it is in Keras's cache.

    Args:
        name: string. `"train-v1.1.json"`, `"dev-v1.1.json"`,
            `"train-v2.0.json"` or `"dev-v2.0.json"`.

    Returns:
        Path of the file.

    Raises:
        ValueError: if the name is unknown, or the checksum does not match.

    Example:
    ```python
    examples = keras_spanbert.data.squad.read(keras_spanbert.data.squad.download("dev-v1.1.json"))
    ```
    """
    return questions.download(name, FILES, "squad")


def read(paths, strict=False, for_training=True, needs_answers=True):
    """Reads and checks SQuAD files.

    If the first answer of a question is not at its position in the context, the
    question is left out of training. A warning counts these questions and names
    the first.

    Args:
        paths: string or list of strings. JSON files of SQuAD 1.1 or 2.0.
        strict: bool. Whether such a question is an error instead. Has no effect if
            `for_training` is `False`. Defaults to `False`.
        for_training: bool. Whether to leave such questions out. Set it to `False`
            for scoring, which uses all questions. Defaults to `True`.
        needs_answers: bool. Whether each question must have `answers`. Set it to
            `False` to predict. Defaults to `True`.

    Returns:
        `Examples` of lists, one item for each question: `ids`, `questions`,
        `contexts`, `answers` (the first answer, as `{"text", "answer_start"}`,
        or `None`) and `golds` (the texts of all answers, or `None` if the file
        does not give the question's answers).

    Raises:
        ValueError: if the file is not JSON in this format or a question has no
            `answers` (the message gives the place), an id is repeated, a question
            or context is empty, no question is left, or, with `strict`, the first
            answer of a question is not at its position.

    Example:
    ```python
    examples = keras_spanbert.data.squad.read("train-v1.1.json")
    windows = preprocessor.windows(examples.questions, examples.contexts, examples.answers)
    ```

    Reference:
        [Rajpurkar et al. 2018](https://arxiv.org/abs/1806.03822).
    """
    return questions.read_questions(
        paths, _questions, _answers, "id", strict, for_training, needs_answers
    )


def to_dataset(examples) -> dict:
    """Converts examples to the format of a SQuAD file, for `keras_spanbert.metrics.squad`."""
    questions = [
        {"id": name, "answers": [{"text": text} for text in golds]}
        for name, golds in zip(examples.ids, examples.golds)
    ]
    return {"data": [{"paragraphs": [{"qas": questions}]}]}


def _questions(path):
    """Yields `(place, context, question)`. The place is used in error messages."""
    for a, article in enumerate(field(read_json(path), "data", path, list)):
        place = f"{path}, article {a}"
        for p, paragraph in enumerate(field(article, "paragraphs", place, list)):
            place = f"{path}, article {a}, paragraph {p}"
            context = field(paragraph, "context", place, str)
            for q, question in enumerate(field(paragraph, "qas", place, list)):
                yield f"{place}, question {q}", context, question


def _answers(question, context, place):
    """Returns the first answer and the texts of all."""
    answers = field(question, "answers", place, list)
    for answer in answers:
        field(answer, "text", place, str)
        start = answer.get("answer_start")
        check(type(start) is int, place, "`answer_start` must be an integer", start)
    if question.get("is_impossible"):
        answers = []
    first = {name: answers[0][name] for name in ["text", "answer_start"]} if answers else None
    return first, [answer["text"] for answer in answers]
