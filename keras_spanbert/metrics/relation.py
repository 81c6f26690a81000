"""The official metrics of relation extraction: TACRED's and SemEval-2010 Task 8's."""

import collections
import re

from keras_spanbert.checks import accepts_datasets
from keras_spanbert.metrics.counts import check_same_examples, precision_recall_f1

# The nine relations, as in the official scorer.
SEMEVAL2010_TASK8 = (
    "Cause-Effect",
    "Component-Whole",
    "Content-Container",
    "Entity-Destination",
    "Entity-Origin",
    "Instrument-Agency",
    "Member-Collection",
    "Message-Topic",
    "Product-Producer",
)
_SEMEVAL_LABEL = re.compile(r"([A-Z][a-z]+-[A-Z][a-z]+)\((?:e1,e2|e2,e1)\)")
_OTHER = "Other"


@accepts_datasets
def relation(labels, predictions, no_relation="no_relation") -> dict:
    """Scores relations as papers on TACRED do: micro scores that leave out "no relation".

    As in the released SpanBERT, all three scores are 0 if no relation is right. TACRED's own script
    gives a precision of 100 if nothing is predicted, with the same recall and F1.

    Args:
        labels: list or array `[N]` of relations, strings or class indices.
        predictions: the same, for the same examples.
        no_relation: the label that means no relation. Defaults to `"no_relation"`.
            It must be given for class indices, and is 0 in the released code.

    Returns:
        `{"precision", "recall", "f1"}` in percent.

    Raises:
        ValueError: if there are no labels, the number of predictions differs, or
            they have another type.

    Example:
    ```python
    labels = ["no_relation", "per:title", "per:age"]
    keras_spanbert.metrics.relation(labels, ["per:age", "per:title", "no_relation"])["f1"]  # 50.0
    ```

    Reference:
        [Zhang et al. 2017](https://aclanthology.org/D17-1004/).
    """
    labels, predictions = check_same_examples(labels, predictions)
    values = [*labels, *predictions, no_relation]
    are_strings = all(isinstance(value, str) for value in values)
    are_integers = all(hasattr(value, "__index__") for value in values)
    if not are_strings and not are_integers:
        raise ValueError(
            "`labels`, `predictions` and `no_relation` must all be strings, or all integers. "
            f"Received: labels[0]={labels[0]!r}, predictions[0]={predictions[0]!r}, "
            f"no_relation={no_relation!r}"
        )
    predicted = sum(value != no_relation for value in predictions)
    wanted = sum(value != no_relation for value in labels)
    right = sum(a == b != no_relation for a, b in zip(labels, predictions))
    return precision_recall_f1(right, predicted, wanted)


@accepts_datasets
def semeval2010_task8(labels, predictions) -> dict:
    """Scores relations like the official scorer of SemEval-2010 Task 8, v1.2.

    The score is the macro F1 of nine relations, with their direction. An answer is right if
    relation and direction are right, and all answers of a relation count in its precision, whatever
    their direction. `"Other"` is no relation. The mean is over the relations in `labels`. Unlike
    the official scorer, this function does not round to two digits.

    Args:
        labels: list of strings `[N]`, as in the files: `"Cause-Effect(e1,e2)"` or `"Other"`.
        predictions: the same, for the same examples, or `None` for a skipped example.

    Returns:
        Dict in percent: `macro_f1`, the official score, `macro_precision` and `macro_recall`;
        `micro_f1`, `micro_precision` and `micro_recall`; `by_relation`, a dict of
        `{"precision", "recall", "f1"}`. A score is 0 if its denominator is 0.

    Raises:
        ValueError: if there are no labels, the number of predictions differs, or
            a label is not one of the task's.

    Example:
    ```python
    labels = ["Cause-Effect(e1,e2)", "Other", "Cause-Effect(e2,e1)"]
    predictions = ["Cause-Effect(e1,e2)", "Other", "Cause-Effect(e1,e2)"]
    keras_spanbert.metrics.semeval2010_task8(labels, predictions)["macro_f1"]  # 50.0
    ```

    Reference:
        [Hendrickx et al. 2010](https://aclanthology.org/S10-1006/).
    """
    labels, predictions = check_same_examples(labels, predictions)
    wanted = collections.Counter(_without_direction("labels", labels))
    predicted = collections.Counter(_without_direction("predictions", predictions))
    right = collections.Counter(a.split("(")[0] for a, b in zip(labels, predictions) if a == b)
    names = sorted(name for name in wanted if name != _OTHER)
    by_relation = {
        name: precision_recall_f1(right[name], predicted[name], wanted[name]) for name in names
    }
    totals = [sum(counts[name] for name in names) for counts in [right, predicted, wanted]]
    scores = {}
    for kind, micro in precision_recall_f1(*totals).items():
        values = [of_one[kind] for of_one in by_relation.values()]
        scores[f"macro_{kind}"] = sum(values) / len(values) if values else 0.0
        scores[f"micro_{kind}"] = micro
    return {**scores, "by_relation": by_relation}


def _without_direction(name, values):
    for i, value in enumerate(values):
        if value is None and name == "predictions":
            continue
        match = _SEMEVAL_LABEL.fullmatch(value) if isinstance(value, str) else None
        if match and match[1] in SEMEVAL2010_TASK8:
            yield match[1]
        elif value == _OTHER:
            yield value
        else:
            raise ValueError(
                f"`{name}` must be Other, or one of these followed by (e1,e2) or (e2,e1): "
                f"{', '.join(SEMEVAL2010_TASK8)}. Received: {name}[{i}]={value!r:.80}"
            )
