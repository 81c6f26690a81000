"""Files of CODAH: a prompt and four endings of it."""

from keras_spanbert.data.choice_examples import choice_example, choice_number
from keras_spanbert.data.examples import as_list, check_some
from keras_spanbert.data.tables import read_rows

_COLUMNS = 7


def read(paths, needs_labels: bool = True) -> list[dict]:
    """Reads and checks CODAH's files, such as `full_data.tsv`.

    They have no header, and seven columns between tabs: letters of a category,
    which are not kept, the prompt, four endings and the label. Quotes are
    characters as others are.

    Args:
        paths: string or list of strings.
        needs_labels: bool. Whether each row must have a label, or its cell may
            be empty. Defaults to `True`.

    Returns:
        List of dicts: see `keras_spanbert.data.swag.read`. `id` is the number of
        the row, `prompt` a string.

    Raises:
        ValueError: where a row is malformed (path, line and rule are named), or
            there are none.

    Example:
    ```python
    examples = keras_spanbert.data.codah.read("cv_split/fold_0/train.tsv")
    ```

    Reference:
        [Chen et al. 2019](https://aclanthology.org/W19-2008/).
    """
    examples = []
    for path in as_list(paths):
        for place, cells in read_rows(path):
            if len(cells) != _COLUMNS:
                raise ValueError(
                    f"{place}: a row must have {_COLUMNS} columns between tabs: category, prompt, "
                    f"four endings and label. Received: {len(cells)}, {cells!r:.80}"
                )
            _, prompt, *endings, label = cells
            label = choice_number(label, place, needs_labels)
            examples.append(choice_example(str(len(examples)), prompt, endings, label, place))
    return check_some(examples, paths)
