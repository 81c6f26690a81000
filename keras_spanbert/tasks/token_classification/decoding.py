"""From probabilities of words' labels to valid sequences, and to entities.

A label `I-X` or `E-X` continues an entity of type X: it may stand behind `B-X` or
`I-X` alone, where there is a `B-X` to begin one. Of the sequences that obey, the
one of the highest product of probabilities is found (Viterbi's algorithm). Sets of
labels of no entities, as of parts of speech, have no such rule.

The body keeps to the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share, so that `tag` and a SavedModel decode alike.

Legend: N = texts, S = words of all texts, C = labels with `"O"`, E = entities.
"""

import collections

import numpy as np

from keras_spanbert.models.pairs import take

# A bound keeps sums exact; a piece may then be longer than it need be, no more.
_LEAST_GAIN = -1e3
_ROUNDING = 1e-6

Scheme = collections.namedtuple(
    "Scheme",
    [
        "names",  # of labels, with "O" at the end where it is none of them
        "outside",  # int, the number of "O"
        "kinds",  # names of types of entities
        "kind",  # int32 [C], the type of each label, -1 for "O"
        "goes_on",  # bool [C, C], whether the second continues the first's entity
        "is_bound",  # bool [C], whether it may stand there alone where it continues
        "before",  # int32 [C, P], of those that are bound, the labels that they continue
        "penalty",  # float64 [C, P], minus infinity where these are fewer
    ],
)
Entities = collections.namedtuple(
    "Entities",
    [
        "text",  # int [E]
        "first",  # int [E], its first word, counted over all texts
        "last",  # int [E]
        "kind",  # int [E]
        "score",  # float64 [E], the mean probability of its words' labels
    ],
)


def is_of_entities(labels) -> bool:
    """Whether labels are of entities: `"O"`, and `B-`, `I-`, `E-` or `S-` and a type."""
    others = [label for label in labels if label != "O"]
    return bool(others) and all(len(x) > 2 and x[0] in "BIES" and x[1] == "-" for x in others)


def scheme(labels: list[str]) -> Scheme:
    """What the names of labels say of them."""
    names = labels if "O" in labels else [*labels, "O"]
    # Of no entities, each label is a type of its own.
    parts = [("", name) for name in names]
    if is_of_entities(labels):
        parts = [(name[:1], name[2:]) for name in names]
    kinds = sorted({part[1] for part, name in zip(parts, names) if name != "O"})
    kind = [-1 if name == "O" else kinds.index(part[1]) for part, name in zip(parts, names)]
    kind, prefix = np.array(kind, np.int32), np.array([part[0] for part in parts])
    is_inside = np.isin(prefix, ["I", "E"])
    goes_on = np.isin(prefix, ["B", "I"])[:, None] & is_inside & (kind[:, None] == kind)
    # Of a type that no label begins, those inside do.
    is_bound = is_inside & np.isin(kind, kind[prefix == "B"])
    before = [np.flatnonzero(goes_on[:, i]) for i in range(len(names))]
    width = max(1, max(map(len, before)))
    return Scheme(
        names,
        names.index("O"),
        kinds,
        kind,
        goes_on,
        is_bound,
        np.array([np.pad(x, (0, width - len(x))) for x in before], np.int32),
        np.array([np.where(np.arange(width) < len(x), 0.0, -np.inf) for x in before]),
    )


def log_probabilities(xp, logits, rules: Scheme):
    """Logarithms of probabilities, float64 `[S, C]`, of logits of the labels."""
    logits = xp.asarray(logits, dtype=np.float64)
    logits -= xp.max(logits, axis=1, keepdims=True)
    logits -= xp.log(xp.sum(xp.exp(logits), axis=1, keepdims=True))
    if len(rules.names) > logits.shape[1]:
        logits = xp.concatenate([logits, xp.full_like(logits[:, :1], -np.inf)], axis=1)
    return logits


def best_labels(xp, scores, num_words, rules: Scheme):
    """The best valid labels of each text's words, int `[S]`.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        scores: float64 `[S, C]`, logarithms of probabilities.
        num_words: int `[N]`, words of each text.
        rules: `Scheme`.
    """
    is_bound = rules.is_bound
    if not is_bound.any():
        return xp.argmax(scores, axis=1)
    # === Pieces: of no word within one can be said that no bound label will be best there ===
    # A path that changes bound labels from a word on, up to where they end, for the best others
    # is valid too: it is better where these words' `gain` is negative in sum, however many.
    unbound = xp.where(is_bound, -np.inf, scores)
    gain = xp.max(xp.where(is_bound, scores, -np.inf), axis=1) - xp.max(unbound, axis=1)
    is_first = _is_first(xp, num_words)
    gain = xp.where(is_first, _LEAST_GAIN, xp.maximum(gain, _LEAST_GAIN))
    total = xp.cumsum(gain)
    most = _maxima_from(xp, total) - (total - gain)
    begins = is_first | (most < -_ROUNDING)
    place = _places(xp, begins)
    ends = xp.concatenate([begins, [True]], axis=0)[1:]
    left = _places(xp, ends[::-1])[::-1]
    longest = xp.max(xp.concatenate([place, [0]], axis=0))

    # === Viterbi's algorithm: a word of each piece at a time ===
    size = len(rules.names)

    def forward(number, state, pointers):
        rows = xp.nonzero(place == number)[0]
        state_there, pointers_there = _step(
            xp, take(xp, state, rows - 1), take(xp, scores, rows), rules
        )
        return put(xp, state, rows, state_there), put(xp, pointers, rows, pointers_there)

    pointers = xp.zeros_like(scores, dtype=np.int64)
    state, pointers = _repeat(xp, longest, forward, (unbound, pointers))
    pointers = xp.reshape(pointers, [-1])

    def back(number, labels):
        rows = xp.nonzero(left == number)[0]
        following = (rows + 1) * size + take(xp, labels, rows + 1)
        return (put(xp, labels, rows, take(xp, pointers, following)),)

    (labels,) = _repeat(xp, longest, back, (xp.argmax(state, axis=1),))
    return labels


def entities(xp, scores, labels, num_words, rules: Scheme) -> Entities:
    """The entities of words, in order of the texts.

    Args:
        xp, scores, num_words, rules: see `best_labels`.
        labels: int `[S]`, of `best_labels`.
    """
    size = len(rules.names)
    before = xp.concatenate([labels[:1], labels], axis=0)[:-1]
    continues = take(xp, rules.goes_on.reshape(-1), before * size + labels)
    continues &= ~_is_first(xp, num_words)
    is_inside = labels != rules.outside
    # Each word inside begins an entity or continues that of the word before.
    first = xp.nonzero(is_inside & ~continues)[0]
    inside = xp.nonzero(is_inside)[0]
    before_first = take(xp, xp.cumsum(xp.asarray(is_inside, dtype=np.int64)), first) - 1
    bounds = xp.concatenate([before_first, xp.sum(xp.ones_like(inside))[None]], axis=0)
    begin, end = bounds[:-1], bounds[1:]
    chosen = inside * size + take(xp, labels, inside)
    probabilities = xp.exp(take(xp, xp.reshape(scores, [-1]), chosen))
    sums = xp.concatenate([[0.0], xp.cumsum(probabilities)], axis=0)
    return Entities(
        take(xp, _texts(xp, num_words), first),
        first,
        take(xp, inside, end - 1),
        take(xp, rules.kind, take(xp, labels, first)),
        (take(xp, sums, end) - take(xp, sums, begin)) / xp.asarray(end - begin, dtype=np.float64),
    )


def _step(xp, state, scores, rules):
    """The best paths up to a word of each of n pieces, from those up to the words before.

    Args:
        xp, rules: see `best_labels`.
        state: float64 `[n, C]`, the best paths' scores, by their last label.
        scores: float64 `[n, C]`, of these words.

    Returns:
        The new state, and the label before each, int `[n, C]`.
    """
    count, width = rules.before.shape
    through = xp.take(state, rules.before, axis=1) + rules.penalty  # [n, C, P]
    which = np.arange(count) * width + xp.argmax(through, axis=2)
    pointers = xp.where(
        rules.is_bound,
        take(xp, rules.before.reshape(-1).astype(np.int64), which),
        xp.argmax(state, axis=1)[:, None],
    )
    best = xp.where(rules.is_bound, xp.max(through, axis=2), xp.max(state, axis=1)[:, None])
    return best + scores, pointers


def _repeat(xp, count, body, state):
    """What becomes of a state, a tuple, in the body of a loop over 1 to `count`."""
    if xp is np:
        for number in range(1, int(count) + 1):
            state = body(number, *state)
        return state
    import tensorflow as tf

    one = tf.ones_like(count)
    _, *state = tf.while_loop(
        lambda number, *_: number <= count,
        lambda number, *state: (number + one, *body(number, *state)),
        (one, *state),
        shape_invariants=(one.shape, *(tf.TensorShape([None] * len(x.shape)) for x in state)),
        parallel_iterations=1,
    )
    return state


def put(xp, x, rows, values):
    """`x` with other values in some rows: numpy's own is changed."""
    if xp is np:
        x[rows] = values
        return x
    import tensorflow as tf

    return tf.tensor_scatter_nd_update(x, rows[:, None], values)


def _range_like(xp, x):
    return xp.cumsum(xp.ones_like(x, dtype=np.int64), dtype=np.int64) - 1


def _texts(xp, num_words):
    """The text of each word: int64 `[S]`."""
    return xp.repeat(_range_like(xp, num_words), num_words)


def _is_first(xp, num_words):
    """Whether each word is its text's first: bool `[S]`."""
    text = _texts(xp, num_words)
    return text != xp.concatenate([text[:1] - 1, text], axis=0)[:-1]


def _places(xp, begins):
    """How far each word is behind the last one that begins a piece, as the first one does."""
    piece = xp.cumsum(xp.asarray(begins, dtype=np.int64)) - 1
    return _range_like(xp, begins) - take(xp, xp.nonzero(begins)[0], piece)


def _maxima_from(xp, x):
    """The greatest of the values from each one on: `[S]`."""
    place = _range_like(xp, x)
    last = xp.max(xp.concatenate([[0], place], axis=0))

    def double(number, x):
        return (xp.maximum(x, take(xp, x, xp.minimum(place + 2 ** (number - 1), last))),)

    (x,) = _repeat(xp, xp.sum(2 ** np.arange(31) <= last), double, (x,))
    return x
