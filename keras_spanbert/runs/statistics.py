"""Statistics of the scores of several runs: mean, spread and confidence interval."""

from collections.abc import Sequence

import numpy as np

_RESAMPLES = 10_000
_PERCENTILES = (2.5, 97.5)


def summary(values: Sequence[float], seed: int = 0) -> dict:
    """Returns the mean, standard deviation and confidence interval of the values of a score.

    The interval is a percentile bootstrap: the middle 95% of the means of samples of
    the same size, drawn with replacement. SciPy's `bootstrap` gives the same, but the
    argument for its generator has different names in different versions. With few
    values the interval is narrower than a t-interval.

    Args:
        values: sequence of floats, one or more.
        seed: int. Random seed of the samples. Defaults to `0`.

    Returns:
        Dict of `mean`, `standard_deviation` (of the sample, with n - 1) and
        `interval`, a list of its two ends. The last two are `None` for one value.

    Example:
    ```python
    summary([64.2, 64.9, 65.1])
    ```
    """
    values = np.asarray(values, "float64")
    found = {"mean": float(values.mean()), "standard_deviation": None, "interval": None}
    if len(values) > 1:
        generator = np.random.default_rng(seed)
        means = generator.choice(values, (_RESAMPLES, len(values))).mean(axis=1)
        found["standard_deviation"] = float(values.std(ddof=1))
        found["interval"] = [float(end) for end in np.percentile(means, _PERCENTILES)]
    return found
