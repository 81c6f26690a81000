"""Files of SWAG: a sentence, the start of the next and four endings of it."""

import os

from keras_spanbert.data.choice_examples import (
    choice_example,
    choice_number,
    write_lines,
)
from keras_spanbert.data.examples import as_list, check_some
from keras_spanbert.data.tables import read_table

_ENDINGS = ("ending0", "ending1", "ending2", "ending3")
_ID = ""  # The column of numbers has no name.


def read(paths, needs_labels: bool = True) -> list[dict]:
    """Reads and checks SWAG's CSV files: `train.csv`, `val.csv`, `test.csv`.

    Args:
        paths: string or list of strings.
        needs_labels: bool. Whether each row must have a label: those of
            `test.csv` have none. Defaults to `True`.

    Returns:
        List of dicts, one a row, of one form for all data with choices: `id`;
        `prompt`, a string or, as here, a pair of strings, the context and what
        begins each choice; `choices`, a list of strings; `label`, the right
        one's number from 0, or `None`.

    Raises:
        ValueError: where a column is missing, or a row is malformed (path, line
            and rule are named), or there are no rows.

    Example:
    ```python
    examples = keras_spanbert.data.swag.read("val.csv")
    context, start = examples[0]["prompt"]
    endings = [f"{start} {ending}" for ending in examples[0]["choices"]]
    ```

    Reference:
        [Zellers et al. 2018](https://aclanthology.org/D18-1009/).
    """
    columns, optional = ["sent1", "sent2", *_ENDINGS], [_ID]
    (columns if needs_labels else optional).append("label")
    examples = []
    for path in as_list(paths):
        for place, row in read_table(path, columns, optional, delimiter=",", quoted=True):
            label = choice_number(row.get("label"), place, needs_labels)
            name = row.get(_ID) or str(len(examples))
            endings = [row[ending] for ending in _ENDINGS]
            prompt = row["sent1"], row["sent2"]
            examples.append(choice_example(name, prompt, endings, label, place))
    return check_some(examples, paths)


def write_predictions(path: str | os.PathLike, examples, predictions) -> None:
    """Writes predictions as the released code of SWAG does, whole or not at all.

    That is CSV with a column without a name, the ids, and one named `pred`.

    Args:
        path: string.
        examples: list of dicts, of `read`.
        predictions: list or array of the numbers of choices, one for each.

    Raises:
        ValueError: where there are not as many, or one is no number of a choice.
        OSError: where the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.swag.read("test.csv", needs_labels=False)
    keras_spanbert.data.swag.write_predictions("pred.csv", examples, [0] * len(examples))
    ```
    """
    lines = (f"{example['id']},{number}" for example, number in zip(examples, predictions))
    write_lines(path, examples, predictions, [",pred", *lines])
