"""A user-defined task with its own preprocessor and example keys."""

import keras
import numpy as np

import keras_spanbert as ks
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.text.labels import as_labels
from keras_spanbert.text.strings import as_strings
from keras_spanbert.text.tokens import encode_pairs

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] ann left she who .".split()
L = 11


@keras.saving.register_keras_serializable(package="tests")
class SimilarityPreprocessor(SpanBertPreprocessor):
    """Encodes two sentences, from examples of `left`, `right` and `similarity` or columns."""

    def __init__(self, tokenizer, sequence_length=L, **kwargs):
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.built = True

    def convert(self, x, y, sample_weight):
        if not isinstance(x, dict):
            if y is None and "similarity" in x[0]:
                y = [example["similarity"] for example in x]
            x = {name: [example[name] for example in x] for name in ["left", "right"]}
        texts = [as_strings(name, x[name]) for name in ["left", "right"]]
        inputs = encode_pairs(self, *texts)
        labels = None if y is None else as_labels(y, None)
        return keras.utils.pack_x_y_sample_weight(inputs, labels, sample_weight)


@keras.saving.register_keras_serializable(package="tests")
class Similarity(SpanBertTask):
    """Predicts the similarity of two sentences."""

    preprocessor_cls = SimilarityPreprocessor

    def __init__(self, backbone, preprocessor=None, **kwargs):
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.score = keras.layers.Dense(1, dtype=backbone.dtype_policy, name="score")
        outputs = self.score(backbone(backbone.input)[:, 0, :])[:, 0]
        super().__init__(inputs=backbone.input, outputs=outputs, **kwargs)

    def compile(self, optimizer="auto", loss="auto", **kwargs):
        optimizer = ks.AdamW(1e-3) if optimizer == "auto" else optimizer
        super().compile(optimizer=optimizer, loss="mse" if loss == "auto" else loss, **kwargs)


def build(cls=Similarity):
    keras.utils.set_random_seed(3)
    backbone = ks.SpanBertBackbone(len(VOCABULARY), 1, 2, 6, 7, dropout=0.0, max_sequence_length=L)
    return cls(backbone, cls.preprocessor_cls(ks.SpanBertTokenizer(VOCABULARY)))


def examples(count):
    rng = np.random.default_rng(0)
    words = VOCABULARY[5:]
    rows = []
    for _ in range(count):
        left, right = (" ".join(rng.choice(words, rng.integers(1, 5))) for _ in range(2))
        same = len(set(left.split()) & set(right.split()))
        rows.append({"left": left, "right": right, "similarity": float(same)})
    return rows
