"""A small coreference resolver without training, and a document for it."""

import keras_spanbert as ks

WORDS = "ann bob wrote sold the letter it she he was old . to read them".split()
SENTENCES = ["ann wrote the letter .", "she was old .", "bob sold it to ann .", "he was old ."]


def tokenizer():
    return ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])


def build(model_type="independent", with_preprocessor=True, **kwargs):
    backbone = ks.SpanBertBackbone(
        tokenizer().vocabulary_size(), num_layers=1, num_heads=2, hidden_dim=14,
        intermediate_dim=22, max_sequence_length=23, initializer_range=0.1, dropout=0.0,
    )  # fmt: skip
    shared = {"model_type": model_type, "genres": ("nw", "bc")}
    preprocessor = None
    if with_preprocessor:
        preprocessor = ks.SpanBertCoreferenceResolverPreprocessor(
            tokenizer(), sequence_length=19, **shared
        )
    arguments = {
        "max_segment_len": 19, "max_training_sentences": 2, "max_span_width": 3,
        "max_top_antecedents": 5, "ffnn_size": 11, "feature_size": 4, **shared,
    }  # fmt: skip
    return ks.SpanBertCoreferenceResolver(backbone, preprocessor, **{**arguments, **kwargs})


def document():
    """Returns a document with more segments than a training step uses."""
    return {
        "doc_key": "nw",
        "sentences": [sentence.split() for sentence in SENTENCES * 3],
        "speakers": [[name] * len(s.split()) for s, name in zip(SENTENCES * 3, "abcb" * 3)],
        "clusters": [
            [(20 * i + at, 20 * i + at) for i in range(3) for at in (0, 5, 13)],
            [(20 * i + at, 20 * i + end) for i in range(3) for at, end in [(2, 3), (11, 11)]],
        ],
    }
