"""Public names of the package."""

import pytest


def test_public_modules_are_listed_and_unknown_names_are_errors():
    import keras_spanbert as ks

    for name in ["checkpoints", "data", "metrics", "serving"]:
        assert name in ks.__all__ and name in dir(ks)
    with pytest.raises(AttributeError, match="no attribute 'SpanBert'"):
        ks.SpanBert  # noqa: B018
