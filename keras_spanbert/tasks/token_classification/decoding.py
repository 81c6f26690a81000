"""Decodes probabilities of words' labels to valid sequences and entities, with `xp`.

A label `I-X`, `E-X` or `L-X` continues an entity of type X. If there is a label `B-X`, it must
follow `B-X` or `I-X`. Viterbi's algorithm finds the sequence of this kind with the highest product
of probabilities. Legend: N = texts, S = words of all texts, C = labels with `"O"`, E = entities.
"""

import collections

import numpy as np

from keras_spanbert.layers.array_functions import range_like, repeat, repeat_while, take
from keras_spanbert.metrics.entities import ROLES
from keras_spanbert.optional import tf, tnp
from keras_spanbert.serving.saved_model import window_logits
from keras_spanbert.text.strings import as_strings

# Limits values so that sums stay exact. At worst, a piece becomes longer than necessary.
_MIN_GAIN = -1e3
_ROUNDING = 1e-6
Scheme = collections.namedtuple(
    "Scheme",
    [
        "names",  # of labels, with "O" added at the end if it is not one of them
        "outside",  # int, the number of "O"
        "kinds",  # names of types of entities
        "kind",  # int32 [C], the type of each label, -1 for "O"
        "goes_on",  # bool [C, C], whether the second continues the first's entity
        "is_bound",  # bool [C], whether it must follow a label that it continues
        "before",  # int64 [C, P], the labels that a bound label can follow
        "penalty",  # float64 [C, P], minus infinity for unused columns of `before`
    ],
)
# The text, first and last word, counted over all texts, and kind of entities, int `[E]`, and the
# mean probability of their words' labels, float64 `[E]`.
Entities = collections.namedtuple("Entities", ["text", "first", "last", "kind", "score"])


def is_of_entities(labels) -> bool:
    """Returns whether labels mark entities: `"O"`, or a prefix, `-` and a type."""
    others = [label for label in labels if label != "O"]
    return bool(others) and all(len(x) > 2 and x[0] in ROLES and x[1] == "-" for x in others)


def scheme(labels: list[str]) -> Scheme:
    """Returns the rules that the names of labels imply."""
    names = labels if "O" in labels else [*labels, "O"]
    # If labels do not mark entities, each label is its own type.
    parts = [("", name) for name in names]
    if is_of_entities(labels):
        parts = [(ROLES.get(name[:1], ""), name[2:]) for name in names]
    kinds = sorted({part[1] for part, name in zip(parts, names) if name != "O"})
    kind = [-1 if name == "O" else kinds.index(part[1]) for part, name in zip(parts, names)]
    kind, prefix = np.array(kind, np.int32), np.array([part[0] for part in parts])
    is_inside = np.isin(prefix, ["I", "E"])
    goes_on = np.isin(prefix, ["B", "I"])[:, None] & is_inside & (kind[:, None] == kind)
    # Labels inside an entity are free if no label begins their type.
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
        np.array([np.pad(x, (0, width - len(x))) for x in before], np.int64),
        np.array([np.where(np.arange(width) < len(x), 0.0, -np.inf) for x in before]),
    )


def log_probabilities(xp, logits, rules: Scheme):
    """Returns log-probabilities float64 `[S, C]` from logits of the labels."""
    logits = xp.asarray(logits, dtype=np.float64)
    logits -= xp.max(logits, axis=1, keepdims=True)
    logits -= xp.log(xp.sum(xp.exp(logits), axis=1, keepdims=True))
    if len(rules.names) > logits.shape[1]:
        logits = xp.concatenate([logits, xp.full_like(logits[:, :1], -np.inf)], axis=1)
    return logits


def best_labels(xp, scores, num_words, rules: Scheme):
    """Returns the best valid labels of each text's words, int `[S]`.

    `scores` are log-probabilities float64 `[S, C]`, and `num_words` `[N]` are those of each text.
    """
    is_bound = rules.is_bound
    if not is_bound.any():
        return xp.argmax(scores, axis=1)
    # === Pieces: the first word of a piece gets no bound label, the others may ===
    # Consider a run of words with bound labels. From any of them to the end of the run, the best
    # unbound labels can replace theirs, and the path stays valid. This improves the path if the sum
    # of the `gain` of these words is negative.
    unbound = xp.where(is_bound, -np.inf, scores)
    gain = xp.max(xp.where(is_bound, scores, -np.inf), axis=1) - xp.max(unbound, axis=1)
    is_first = _is_first(xp, num_words)
    gain = xp.where(is_first, _MIN_GAIN, xp.maximum(gain, _MIN_GAIN))
    total = xp.cumsum(gain)
    if xp is np:
        most = np.maximum.accumulate(total[::-1])[::-1]
    else:  # TensorFlow has no maxima of this kind. These values are slightly larger.
        most = tf.math.cumulative_logsumexp(1e3 * total, reverse=True) / 1e3
    most -= total - gain
    begins = is_first | (most < -_ROUNDING)
    position = _positions_in_piece(xp, begins)
    ends = xp.concatenate([begins, [True]], axis=0)[1:]
    left = _positions_in_piece(xp, ends[::-1])[::-1]
    longest = xp.max(xp.concatenate([position, [0]], axis=0))
    size, width = rules.before.shape

    # === Viterbi's algorithm: a word of each piece at a time ===
    # The state is the score of the best path to each label of a word, and the pointers are the
    # previous labels of these paths.
    def forward(number, state, pointers):
        rows = xp.nonzero(position == number)[0]
        before = take(xp, state, rows - 1)
        through = xp.take(before, rules.before, axis=1) + rules.penalty  # [n, C, P]
        which = np.arange(size) * width + xp.argmax(through, axis=2)
        previous = take(xp, rules.before.reshape(-1), which)
        previous = xp.where(is_bound, previous, xp.argmax(before, axis=1)[:, None])
        best = xp.where(is_bound, xp.max(through, axis=2), xp.max(before, axis=1)[:, None])
        best += take(xp, scores, rows)
        return put(xp, state, rows, best), put(xp, pointers, rows, previous)

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
    """Returns the entities of words with labels of `best_labels`, in order of the texts."""
    size = len(rules.names)
    before = xp.concatenate([labels[:1], labels], axis=0)[:-1]
    continues = take(xp, rules.goes_on.reshape(-1), before * size + labels)
    continues &= ~_is_first(xp, num_words)
    # Each word inside an entity begins one or continues that of the previous word.
    is_inside = labels != rules.outside
    first = xp.nonzero(is_inside & ~continues)[0]
    last = xp.nonzero(is_inside & ~xp.concatenate([continues, [False]], axis=0)[1:])[0]
    chosen = range_like(xp, labels, np.int64) * size + labels
    probabilities = xp.exp(take(xp, xp.reshape(scores, [-1]), chosen))
    sums = xp.concatenate([[0.0], xp.cumsum(probabilities)], axis=0)
    total = take(xp, sums, last + 1) - take(xp, sums, first)
    return Entities(
        take(xp, _texts(xp, num_words), first),
        first,
        last,
        take(xp, rules.kind, take(xp, labels, first)),
        total / xp.asarray(last - first + 1, dtype=np.float64),
    )


def _repeat(xp, count, body, state):
    """Returns the state, a tuple, after a loop of `body` over 1 to `count`."""
    _, *state = repeat_while(
        xp,
        lambda number, *_: number <= count,
        lambda number, *state: (number + 1, *body(number, *state)),
        (xp.ones_like(count), *state),
    )
    return state


def put(xp, x, rows, values):
    """Returns `x` with other values in some rows. A NumPy array is changed in place."""
    if xp is np:
        x[rows] = values
        return x
    return tf.tensor_scatter_nd_update(x, rows[:, None], values)


def _texts(xp, num_words):
    """Returns the text of each word: int64 `[S]`."""
    return repeat(xp, range_like(xp, num_words, np.int64), num_words)


def _is_first(xp, num_words):
    """Returns whether each word is its text's first: bool `[S]`."""
    text = _texts(xp, num_words)
    return text != xp.concatenate([text[:1] - 1, text], axis=0)[:-1]


def _positions_in_piece(xp, begins):
    """Returns the distance of each word from the start of its piece. The first word starts one."""
    piece = xp.cumsum(xp.asarray(begins, dtype=np.int64)) - 1
    return range_like(xp, begins, np.int64) - take(xp, xp.nonzero(begins)[0], piece)


def entity_serving_function(model):
    """Returns the function of `text`, strings `[B]`, that a SavedModel serves."""
    preprocessor = model.preprocessor
    rules = scheme(list(model.labels))
    kinds = tf.constant(rules.kinds)

    def serve(text):
        texts = as_strings("text", text)  # Valid UTF-8.
        words = preprocessor.words(texts)
        windows = preprocessor.windows_of(words)
        logits = window_logits(model, windows, len(model.labels), lambda outputs: outputs)
        is_label = windows["is_label"]
        in_order = tf.argsort(tf.boolean_mask(windows["word"], is_label))
        logits = tf.gather(tf.boolean_mask(logits, is_label), in_order)
        scores = log_probabilities(tnp, logits, rules)
        labels = best_labels(tnp, scores, words.num_words, rules)
        found = entities(tnp, scores, labels, words.num_words, rules)
        start = tf.gather(words.bounds[:, 0], found.first)
        end = tf.gather(words.bounds[:, 1], found.last)
        # The text that contains each entity.
        whole = tf.gather(texts, found.text)

        def padded(values, otherwise):
            rows = tf.RaggedTensor.from_value_rowids(
                values, found.text, tf.size(texts, tf.int64), validate=False
            )
            return rows.to_tensor(otherwise)

        slices = tf.strings.substr(whole, start, end - start, "UTF8_CHAR")
        return {
            "text": padded(slices, ""),
            "label": padded(tf.gather(kinds, found.kind), ""),
            "start": padded(tf.cast(start, tf.int32), -1),
            "end": padded(tf.cast(end, tf.int32), -1),
            "score": padded(tf.cast(found.score, tf.float32), 0.0),
        }

    return serve
