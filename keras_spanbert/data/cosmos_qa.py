"""Files of Cosmos QA: a context, a question and four answers."""

import os

from keras_spanbert.data.choice_examples import (
    choice_example,
    choice_number,
    write_lines,
)
from keras_spanbert.data.examples import as_list, check_some
from keras_spanbert.data.tables import read_table

_ANSWERS = ("answer0", "answer1", "answer2", "answer3")


def read(paths, needs_labels: bool = True) -> list[dict]:
    """Reads and checks Cosmos QA's CSV files, such as `valid.csv`.

    Args:
        paths: string or list of strings.
        needs_labels: bool. Whether each row must have a label. Defaults to
            `True`.

    Returns:
        List of dicts: see `keras_spanbert.data.swag.read`. `prompt` is the pair
        of context and question.

    Raises:
        ValueError: where a column is missing, or a row is malformed (path, line
            and rule are named), or there are no rows.

    Example:
    ```python
    examples = keras_spanbert.data.cosmos_qa.read("valid.csv")
    ```

    Reference:
        [Huang et al. 2019](https://aclanthology.org/D19-1243/).
    """
    columns, optional = ["id", "context", "question", *_ANSWERS], []
    (columns if needs_labels else optional).append("label")
    examples = []
    for path in as_list(paths):
        for place, row in read_table(path, columns, optional, delimiter=",", quoted=True):
            label = choice_number(row.get("label"), place, needs_labels)
            answers = [row[answer] for answer in _ANSWERS]
            prompt = row["context"], row["question"]
            examples.append(choice_example(row["id"], prompt, answers, label, place))
    return check_some(examples, paths)


def write_predictions(path: str | os.PathLike, examples, predictions) -> None:
    """Writes predictions as Cosmos QA's site takes them, a number a line, whole or not at all.

    Args:
        path: string.
        examples: list of dicts, of `read`.
        predictions: list or array of the numbers of choices, one for each.

    Raises:
        ValueError: where there are not as many, or one is no number of a choice.
        OSError: where the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.cosmos_qa.read("valid.csv")
    numbers = [example["label"] for example in examples]
    keras_spanbert.data.cosmos_qa.write_predictions("predictions.lst", examples, numbers)
    ```
    """
    write_lines(path, examples, predictions, map(str, predictions))
