"""Layout of windows over questions and contexts: see `models.windows`.

Legend: W = windows, L = tokens per window. All integers are int32.
"""

import collections

import numpy as np

WindowLayout = collections.namedtuple(
    "WindowLayout",
    [
        "in_question",  # [W, L]
        "question_token",  # [W, L], 0 outside of it
        "in_context",  # [W, L]
        "context_token",  # [W, L], 0 outside of it
        "is_separator",  # [W, L]
        "segment_ids",  # bool [W, L]
        "padding_mask",  # bool [W, L]
    ],
)


def window_layout(xp, spans, length):
    """Returns the layout of the windows: `[CLS] question [SEP] span [SEP]`."""
    head_size, count = spans.before[:, None] - 2, spans.count[:, None]
    position = xp.arange(length, dtype=np.int32)[None, :]
    token = position - head_size - 2  # Index in the span.
    in_question = (position >= 1) & (position <= head_size)
    in_context = (token >= 0) & (token < count)
    nothing = np.int32(0)
    return WindowLayout(
        in_question,
        xp.where(in_question, position - 1, nothing),
        in_context,
        xp.where(in_context, token + spans.first[:, None], nothing),
        (position == head_size + 1) | (token == count),
        (token >= 0) & (token <= count),
        token <= count,
    )
