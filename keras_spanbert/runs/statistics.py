"""What the scores of several runs say: mean, spread, and how sure the mean is."""

from collections.abc import Sequence

import numpy as np

_RESAMPLES = 10_000
_PERCENTILES = (2.5, 97.5)


def summary(values: Sequence[float], seed: int = 0) -> dict:
    """Mean, spread and interval of the values of a score.

    The interval is the percentile bootstrap's: the middle 95% of the means of
    samples, drawn with replacement, of as many values. SciPy's `bootstrap` gives
    the same, by a generator whose argument has changed its name from version to
    version. Of few values it is narrower than a t-interval would be.

    Args:
        values: sequence of floats, one or more.
        seed: int. Fixes what is drawn. Defaults to `0`.

    Returns:
        Dict of `mean`, `standard_deviation` (the sample's, over n - 1) and
        `interval`, a list of its ends. The latter two are `None` for one value.

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
