"""Files of SQuAD 1.1 and 2.0."""

from keras_spanbert.data import examples as examples_module
from keras_spanbert.data.examples import ExamplesReader, as_list, field
from keras_spanbert.data.text_files import read_json

_URL = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
FILES = {
    name: (_URL + name, checksum)
    for name, checksum in [
        (
            "train-v1.1.json",
            "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
        ),
        (
            "dev-v1.1.json",
            "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
        ),
        (
            "train-v2.0.json",
            "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
        ),
        (
            "dev-v2.0.json",
            "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
        ),
    ]
}


def download(name: str) -> str:
    """Fetches an official file, unless it is in Keras's cache.

    Args:
        name: string. `"train-v1.1.json"`, `"dev-v1.1.json"`,
            `"train-v2.0.json"` or `"dev-v2.0.json"`.

    Returns:
        Path of the file.

    Raises:
        ValueError: where there is no such file, or what came is another one.

    Example:
    ```python
    examples = keras_spanbert.data.squad.read(keras_spanbert.data.squad.download("dev-v1.1.json"))
    ```
    """
    return examples_module.download(name, FILES, "squad")


def read(paths, strict=False, for_training=True):
    """Reads and checks SQuAD files.

    A question whose first answer is not at its place in the context is left
    out of training, and the log names the first and counts them.

    Args:
        paths: string or list of strings. JSON files of SQuAD 1.1 or 2.0.
        strict: bool. Whether such an answer is an error. Defaults to `False`.
        for_training: bool. Whether to leave such questions out; to score, all
            are needed, and the place of none is. Defaults to `True`.

    Returns:
        `Examples` of lists, one item a question: `ids`, `questions`,
        `contexts`, `answers` (the first, as `{"text", "answer_start"}`, or
        `None`) and `golds` (the texts of all).

    Raises:
        ValueError: where the file is not JSON of this form (the place is
            named), an id comes twice, a question or context is empty, or,
            with `strict`, an answer is not at its place.

    Example:
    ```python
    examples = keras_spanbert.data.squad.read("train-v1.1.json")
    windows = preprocessor.windows(examples.questions, examples.contexts, examples.answers)
    ```

    Reference:
        [Rajpurkar et al. 2018](https://arxiv.org/abs/1806.03822).
    """
    reader, paths = ExamplesReader(strict, for_training), as_list(paths)
    for place, context, question in (q for p in paths for q in _questions(p, read_json(p))):
        name, text = (field(question, key, place, str) for key in ["id", "question"])
        answers = field(question, "answers", place, list)
        for answer in answers:
            field(answer, "text", place, str)
            if type(answer.get("answer_start")) is not int:
                raise ValueError(
                    f"{place}: `answer_start` must be an integer. "
                    f"Received: {answer.get('answer_start')!r}"
                )
        if question.get("is_impossible"):
            answers = []
        first = {n: answers[0][n] for n in ["text", "answer_start"]} if answers else None
        reader.add(place, name, text, context, first, [answer["text"] for answer in answers])
    return reader.finish(paths)


def to_dataset(examples) -> dict:
    """The examples in the form of a SQuAD file, as `keras_spanbert.metrics.squad` takes it."""
    questions = [
        {"id": name, "answers": [{"text": text} for text in golds]}
        for name, golds in zip(examples.ids, examples.golds)
    ]
    return {"data": [{"paragraphs": [{"qas": questions}]}]}


def _questions(path, content):
    """Each question with its context and its place in the file, for messages."""
    for a, article in enumerate(field(content, "data", path, list)):
        place = f"{path}, article {a}"
        for p, paragraph in enumerate(field(article, "paragraphs", place, list)):
            place = f"{path}, article {a}, paragraph {p}"
            context = field(paragraph, "context", place, str)
            for q, question in enumerate(field(paragraph, "qas", place, list)):
                yield f"{place}, question {q}", context, question
