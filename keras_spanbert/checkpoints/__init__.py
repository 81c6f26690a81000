"""Functions that load and write checkpoints of other libraries."""

from keras_spanbert.checkpoints.convert import (
    convert,
    from_coreference,
    from_fairseq,
    from_google,
    from_huggingface,
    to_huggingface,
)

__all__ = [
    "convert",
    "from_coreference",
    "from_fairseq",
    "from_google",
    "from_huggingface",
    "to_huggingface",
]
