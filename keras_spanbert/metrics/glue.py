"""The official scores of GLUE: accuracy, F1, Matthews, Pearson and Spearman correlation."""

import math
import warnings

import numpy as np

from keras_spanbert.checks import accepts_datasets, check_in
from keras_spanbert.metrics.counts import check_same_examples

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")
# The class names of each task in the order of their indices; STS-B has scores from 0 to 5.
CLASSES = {
    "cola": _BINARY,
    "sst-2": _BINARY,
    "mrpc": _BINARY,
    "sts-b": None,
    "qqp": _BINARY,
    "mnli": _INFERENCE,
    "qnli": _ENTAILMENT,
    "rte": _ENTAILMENT,
    "wnli": _BINARY,
    "ax": _INFERENCE,
}
_MATTHEWS = ("cola", "ax")
_F1 = ("mrpc", "qqp")


def task_name(task: str) -> str:
    """Returns the name of a task in `CLASSES` for any spelling: `"SST2"` is `"sst-2"`.

    Raises a `ValueError` if it is not one of GLUE's tasks.
    """
    names = {name.replace("-", ""): name for name in CLASSES}
    name = names.get(str(task).lower().replace("-", "").replace("_", ""))
    check_in("task", task, name is not None, f"one of {', '.join(CLASSES)}")
    return name


@accepts_datasets
def glue(task: str, labels, predictions) -> dict:
    """Scores predictions like GLUE and the released SpanBERT.

    Args:
        task: string. `"cola"`, `"sst-2"`, `"mrpc"`, `"sts-b"`, `"qqp"`, `"mnli"`,
            `"qnli"`, `"rte"`, `"wnli"` or `"ax"`, the diagnostic set, in any case, with
            or without `-`. Score MNLI's matched and mismatched sets separately.
        labels: list or array `[N]` of class names, as strings, or of class
            indices; for STS-B, of numbers.
        predictions: the same, for the same examples.

    Returns:
        Dict of floats, as fractions: `matthews_correlation` for CoLA and the diagnostic set;
        `accuracy` and `f1`, of class 1, for MRPC and QQP; `pearson` and `spearman` for STS-B;
        `accuracy` for the others. As in the released code, F1 and Matthews correlation are 0 if
        they are not defined. Pearson and Spearman correlation are nan if one side is constant:
        check for it before selecting a model by them.

    Raises:
        ValueError: if the task or a label is unknown, there are no labels, the number of
            predictions differs, or, for STS-B, a number is not finite or there is only one example.

    Example:
    ```python
    keras_spanbert.metrics.glue("rte", ["entailment", "not_entailment"], [0, 0])["accuracy"]  # 0.5
    ```

    Reference:
        [Wang et al. 2019](https://arxiv.org/abs/1804.07461).
    """
    task = task_name(task)
    if CLASSES[task] is None:
        labels, predictions = _numbers("labels", labels), _numbers("predictions", predictions)
        check_same_examples(labels, predictions)
        if len(labels) < 2:
            raise ValueError("Correlations need at least two examples. Received: one")
        from scipy import stats  # Takes a second to import.

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            pearson = stats.pearsonr(predictions, labels).statistic
            spearman = stats.spearmanr(predictions, labels).statistic
        return {"pearson": float(pearson), "spearman": float(spearman)}
    labels, predictions = check_same_examples(labels, predictions)
    labels = _indices("labels", labels, CLASSES[task])
    predictions = _indices("predictions", predictions, CLASSES[task])
    if task in _MATTHEWS:
        # Python's integers cannot overflow.
        counts = [np.bincount(side, minlength=len(CLASSES[task])) for side in [labels, predictions]]
        size = len(labels)
        covariance = int(np.sum(labels == predictions)) * size - int(counts[0] @ counts[1])
        variances = [size * size - int(count @ count) for count in counts]
        product = variances[0] * variances[1]
        return {"matthews_correlation": covariance / math.sqrt(product) if product else 0.0}
    scores = {"accuracy": float(np.mean(labels == predictions))}
    if task in _F1:
        right = int(np.sum((labels == 1) & (predictions == 1)))
        marked = int(np.sum(labels == 1)) + int(np.sum(predictions == 1))
        scores["f1"] = 2.0 * right / marked if marked else 0.0
    return scores


def _indices(name, values, classes):
    """Returns class names or indices as an array of indices."""
    numbers = {
        **{label: i for i, label in enumerate(classes)},
        **{i: i for i in range(len(classes))},
    }
    for i, value in enumerate(values):
        is_label = isinstance(value, (str, int, np.integer)) and not isinstance(value, bool)
        if not is_label or value not in numbers:
            raise ValueError(
                f"`{name}` must be of {', '.join(classes)}, or of indices below {len(classes)}. "
                f"Received: {name}[{i}]={value!r:.80}"
            )
    return np.array([numbers[value] for value in values])


def _numbers(name, values):
    try:
        numbers = np.asarray(values)
        # float32 input is scored in float32, as in the official script. Sums of float16 overflow.
        if numbers.dtype not in ("float32", "float64"):
            numbers = np.array(values, "float64")
    except (TypeError, ValueError):
        numbers = None
    is_right = numbers is not None and numbers.ndim == 1 and np.isfinite(numbers).all()
    check_in(name, values, is_right, "finite numbers [N]")
    return numbers
