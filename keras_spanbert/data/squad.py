"""Reads files of SQuAD 1.1 and 2.0."""

from keras_spanbert.data import questions
from keras_spanbert.data.examples import check, field
from keras_spanbert.data.text_files import read_json, read_json_lines

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
        name: string, a key of `FILES`, such as `"train-v1.1.json"`.

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

    A file has articles and paragraphs, or the flat rows of Hugging Face's `datasets`,
    with `id`, `question`, `context` and `answers`, a dict of the lists `text` and
    `answer_start`. The rows are lines, a list, or a list under `data`.

    If the first answer of a question is not at its position in the context, the question is left
    out of training. A warning counts these questions and names the first.

    Args:
        paths: string or list of strings. JSON files.
        strict: bool. Whether such a question is an error instead, if `for_training`.
            Defaults to `False`.
        for_training: bool. Whether to leave such questions out. Scoring uses all
            questions. Defaults to `True`.
        needs_answers: bool. Whether each question must have `answers`, as for
            training and scoring. Defaults to `True`.

    Returns:
        `Examples` of lists, one item for each question: `ids` (strings, also of
        numbers), `questions`, `contexts`, `answers` (the first answer, as `{"text",
        "answer_start"}`, or `None`) and `golds` (the texts of all answers, or
        `None` if the file does not give the question's answers).

    Raises:
        ValueError: if the file is not JSON in one of these layouts or a question has no `answers`
            (the message gives the place), an id is repeated, a question or context is empty, no
            question is left, or, with `strict`, an answer is not at its position.

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


def has_rows(path) -> bool:
    """Returns whether a file has a question per line, as Hugging Face's `datasets` writes it."""
    try:
        return _is_row(next((row for _, row in read_json_lines(path)), None))
    except ValueError:
        return False


def _is_row(value):
    return isinstance(value, dict) and {"question", "context"} <= set(value)


def _questions(path):
    """Yields `(place, context, question)`. The place is used in error messages."""
    for place, article in _articles(path):
        if _is_row(article):
            yield place, field(article, "context", place, str), article
            continue
        for p, paragraph in enumerate(field(article, "paragraphs", place, list)):
            in_paragraph = f"{place}, paragraph {p}"
            context = field(paragraph, "context", in_paragraph, str)
            for q, question in enumerate(field(paragraph, "qas", in_paragraph, list)):
                yield f"{in_paragraph}, question {q}", context, question


def _articles(path):
    """Yields `(place, article)`, or `(place, row)` of Hugging Face's `datasets`."""
    try:
        content = read_json(path)
    except ValueError:
        if not has_rows(path):
            raise
        yield from read_json_lines(path)
        return
    rows = [content] if _is_row(content) else content
    if not isinstance(rows, list) or not rows:
        rows = field(content, "data", path, list)
    for a, article in enumerate(rows):
        yield f"{path}, {'row' if _is_row(article) else 'article'} {a}", article


def _answers(question, context, place):
    """Returns the first answer and the texts of all."""
    is_impossible = question.get("is_impossible")
    rule = "`is_impossible` must be true or false"
    check(is_impossible is None or isinstance(is_impossible, bool), place, rule, is_impossible)
    answers = question["answers"]
    if isinstance(answers, dict):  # The columns of Hugging Face's `datasets`.
        columns = [field(answers, name, place, list) for name in ["text", "answer_start"]]
        rule = "`text` and `answer_start` must have the same length"
        check(len(columns[0]) == len(columns[1]), place, rule, answers)
        answers = [{"text": text, "answer_start": start} for text, start in zip(*columns)]
    check(isinstance(answers, list), place, "`answers` must be a list", answers)
    for answer in answers:
        field(answer, "text", place, str)
        start = answer.get("answer_start")
        check(type(start) is int, place, "`answer_start` must be an integer", start)
    if is_impossible:
        answers = []
    first = {name: answers[0][name] for name in ["text", "answer_start"]} if answers else None
    return first, [answer["text"] for answer in answers]
