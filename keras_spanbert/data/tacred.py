"""Files of TACRED: sentences with a subject, an object and their relation."""

import os

from keras_spanbert.data.examples import as_list, check_ids
from keras_spanbert.data.relation_examples import (
    relation_example,
    relation_names,
    write_relations,
)
from keras_spanbert.data.text_files import read_json, read_json_lines

__all__ = ["read", "relation_names", "write_predictions"]

write_predictions = write_relations


def read(paths, needs_labels: bool = True, relations=None) -> list[dict]:
    """Reads and checks TACRED's files, or others of their form.

    Args:
        paths: string or list of strings. A JSON list of objects, or with
            `.jsonl` or `.jsonlines` one a line; plain or gzip.
        needs_labels: bool. Whether each example must have a relation, as to
            train or to score. Defaults to `True`.
        relations: list of strings, those that there may be, as of the training
            set. Defaults to `None`, all.

    Returns:
        List of dicts, one an example, of one form for all data of relations:
        `id`; `token`, the list of words, as in the file; `subj_start`,
        `subj_end`, `obj_start`, `obj_end`, the first and the last word of
        subject and object, counted from 0; `subj_type`, `obj_type` and
        `relation`, strings, or `None` where there is none.

    Raises:
        ValueError: where the file is not JSON of this form, a span is not in its
            sentence, a relation is unknown or missing (path and example are
            named), an id stands twice, or there are no examples.

    Example:
    ```python
    examples = keras_spanbert.data.tacred.read("train.json")
    relations = keras_spanbert.data.tacred.relation_names(examples)
    evaluation = keras_spanbert.data.tacred.read("dev.json", relations=relations)
    ```

    Reference:
        [Zhang et al. 2017](https://aclanthology.org/D17-1004/).
    """
    examples = []
    for path in as_list(paths):
        for place, value in _objects(path):
            examples.append(relation_example(value, place, needs_labels, relations))
    return check_ids(examples, paths)


def _objects(path):
    if os.fspath(path).removesuffix(".gz").endswith((".jsonl", ".jsonlines")):
        yield from read_json_lines(path)
        return
    values = read_json(path)
    if not isinstance(values, list):
        raise ValueError(
            f"{path} must hold a JSON list, or have a name in .jsonl. Received: {values!r:.80}"
        )
    for number, value in enumerate(values):
        name = value.get("id") if isinstance(value, dict) else None
        yield f"{path}, example {number}" + (f" (id {name!r})" if name else ""), value
