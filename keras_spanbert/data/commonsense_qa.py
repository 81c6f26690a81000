"""Files of CommonsenseQA: a question and five answers."""

import os
import string

from keras_spanbert.data.choice_examples import (
    choice_example,
    choice_letter,
    write_lines,
)
from keras_spanbert.data.examples import as_list, check_some, field
from keras_spanbert.data.text_files import read_json_lines


def read(paths, needs_labels: bool = True) -> list[dict]:
    """Reads and checks CommonsenseQA's files of JSON lines, plain or gzip.

    Args:
        paths: string or list of strings, `train_rand_split.jsonl` for one.
        needs_labels: bool. Whether each question must have its `answerKey`:
            those of the test set have none. Defaults to `True`.

    Returns:
        List of dicts: see `keras_spanbert.data.swag.read`. `prompt` is a string.

    Raises:
        ValueError: where a line is not JSON of this form (path, line and rule
            are named), or there are none.

    Example:
    ```python
    examples = keras_spanbert.data.commonsense_qa.read("dev_rand_split.jsonl")
    ```

    Reference:
        [Talmor et al. 2019](https://aclanthology.org/N19-1421/).
    """
    examples = []
    for path in as_list(paths):
        for place, value in read_json_lines(path):
            name, question = field(value, "id", place, str), field(value, "question", place, dict)
            stem = field(question, "stem", place, str)
            choices = field(question, "choices", place, list)
            texts = [field(choice, "text", place, str) for choice in choices]
            letters = [field(choice, "label", place, str) for choice in choices]
            if letters != list(string.ascii_uppercase[: len(letters)]):
                raise ValueError(
                    f"{place}: the choices' labels must be letters from A, in order. Received: "
                    f"{', '.join(letters):.80}"
                )
            letter = value.get("answerKey")
            label = choice_letter(letter, place, needs_labels)
            examples.append(choice_example(name, stem, texts, label, place, letter=letter))
    return check_some(examples, paths)


def write_predictions(path: str | os.PathLike, examples, predictions) -> None:
    """Writes a line of id and letter for each question, a comma between, whole or not at all.

    Args:
        path: string.
        examples: list of dicts, of `read`.
        predictions: list or array of the numbers of choices, one for each.

    Raises:
        ValueError: where there are not as many, or one is no number of a choice.
        OSError: where the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.commonsense_qa.read("test.jsonl", needs_labels=False)
    numbers = [0] * len(examples)
    keras_spanbert.data.commonsense_qa.write_predictions("answers.csv", examples, numbers)
    ```
    """
    lines = (
        f"{example['id']},{string.ascii_uppercase[number]}"
        for example, number in zip(examples, predictions)
    )
    write_lines(path, examples, predictions, lines)
