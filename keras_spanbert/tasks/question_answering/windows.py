"""What stands where in windows over questions and contexts: see `models.windows`.

Legend: W = windows, L = tokens a window. All integers are int32.
"""

import collections

import numpy as np

Places = collections.namedtuple(
    "Places",
    [
        "in_question",  # [W, L]
        "question_token",  # [W, L], 0 where not in it
        "in_context",  # [W, L]
        "context_token",  # [W, L], 0 where not in it
        "is_separator",  # [W, L]
        "segment_ids",  # bool [W, L]
        "padding_mask",  # bool [W, L]
    ],
)


def places(xp, parts, length):
    """What stands where in the windows: `[CLS] question [SEP] part [SEP]`."""
    head_size, count = parts.before[:, None] - 2, parts.count[:, None]
    place = xp.arange(length, dtype=np.int32)[None, :]
    token = place - head_size - 2  # Of the part.
    in_question = (place >= 1) & (place <= head_size)
    in_context = (token >= 0) & (token < count)
    nothing = np.int32(0)
    return Places(
        in_question,
        xp.where(in_question, place - 1, nothing),
        in_context,
        xp.where(in_context, token + parts.first[:, None], nothing),
        (place == head_size + 1) | (token == count),
        (token >= 0) & (token <= count),
        token <= count,
    )
