"""Small pretrainers, and texts and arrays for them."""

import keras
import numpy as np

import keras_spanbert as ks

WORDS = "the of and to in a is that for it with as was on be by at this from not".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##ing", "."]
V, H = len(VOCABULARY), 10
IS_TENSORFLOW = keras.backend.backend() == "tensorflow"


def texts(count=20, num_words=12):
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, num_words)) for _ in range(count)]


def build(length=17, seed=1, objectives=None, **kwargs):
    """Returns a pretrainer. `objectives` are arguments of the model and its preprocessor."""
    objectives = objectives or {}
    preprocessor = ks.SpanBertPretrainerPreprocessor(
        ks.SpanBertTokenizer(VOCABULARY), sequence_length=length, mask_rate=0.3, seed=seed,
        **objectives,
    )  # fmt: skip
    backbone = ks.SpanBertBackbone(V, 1, 2, H, 14, dropout=0.0, max_sequence_length=length)
    return ks.SpanBertPretrainer(backbone, preprocessor, position_dim=3, **objectives, **kwargs)


def arrays(model, texts, seed=5):
    """Returns the preprocessor's `(x, y, sample_weight)` as NumPy arrays."""
    masked = model.preprocessor(texts, seed=seed)
    return keras.tree.map_structure(keras.ops.convert_to_numpy, masked)


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def predict(model, x):
    return {k: keras.ops.convert_to_numpy(v) for k, v in model(x, training=False).items()}
