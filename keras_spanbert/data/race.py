"""Folders of RACE: articles with questions of four answers each."""

import pathlib
import re

from keras_spanbert import stores
from keras_spanbert.data.choice_examples import choice_example, choice_letter
from keras_spanbert.data.examples import as_list, check_some, field
from keras_spanbert.data.text_files import read_json

_BLANK = re.compile("_+")


def read(paths, needs_labels: bool = True) -> list[dict]:
    """Reads and checks RACE's files, an article with its questions each.

    As in the usual readers, a question with one blank, written `_`, has each
    answer put there: then the choices are whole sentences, and nothing stands
    before them. Other questions stand before each answer.

    Args:
        paths: string or list of strings. Files, or folders, of which all files
            that end in `.txt` are read, those in folders below too, in the order
            of their names: `RACE/dev`, or `RACE/dev/high`.
        needs_labels: bool. Whether each article must have `answers`. Defaults to
            `True`.

    Returns:
        List of dicts, one a question: see `keras_spanbert.data.swag.read`.
        `prompt` is the pair of article and question; `id` the article's id, `-`
        and the number of the question from 0.

    Raises:
        ValueError: where a file is not JSON of this form (path, question and
            rule are named), or a folder has none.

    Example:
    ```python
    examples = keras_spanbert.data.race.read(["RACE/train/middle", "RACE/train/high"])
    ```

    Reference:
        [Lai et al. 2017](https://aclanthology.org/D17-1082/).
    """
    examples = []
    for path in as_list(paths):
        for file in _files(path):
            examples.extend(_questions(file, read_json(file), needs_labels))
    return check_some(examples, paths)


def _files(path):
    if not stores.is_folder(path):
        return [path]
    if stores.is_store(path):
        found = sorted(stores.find(stores.join(path, "**", "*.txt")))
    else:
        found = sorted(pathlib.Path(path).rglob("*.txt"))
    if not found:
        raise ValueError(f"A folder of RACE must hold files in .txt. Received: {path}")
    return found


def _questions(path, value, needs_labels):
    article, name = (field(value, key, path, str) for key in ["article", "id"])
    questions, options = (field(value, key, path, list) for key in ["questions", "options"])
    is_labelled = needs_labels or value.get("answers") is not None
    answers = field(value, "answers", path, list) if is_labelled else [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        raise ValueError(
            f"{path}: `questions`, `options` and `answers` must be as long. Received: "
            f"{len(questions)}, {len(options)}, {len(answers)}"
        )
    for number, (question, choices, answer) in enumerate(zip(questions, options, answers)):
        place = f"{path}, question {number}"
        is_text = isinstance(choices, list) and all(isinstance(c, str) for c in choices)
        if not isinstance(question, str) or not is_text:
            raise ValueError(
                f"{place}: a question must be a string, its options a list of strings. Received: "
                f"{question!r:.80}, {choices!r:.80}"
            )
        label = choice_letter(answer, place, needs_labels)
        parts = _BLANK.split(question)
        if len(parts) == 2:
            question, choices = "", [parts[0] + choice + parts[1] for choice in choices]
        # The usual readers take an empty answer as any other.
        prompt = article, question
        more = {"allow_empty": True, "letter": answer}
        yield choice_example(f"{name}-{number}", prompt, choices, label, place, **more)
