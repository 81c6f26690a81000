import json
import os

import numpy as np
import pytest

import keras_spanbert as ks

FILES = {"independent": "documents.jsonlines", "overlap": "documents_overlap.jsonlines"}
WORDS = "ann bob wrote sold the letter it she he was old . to read them".split()


class Reference:
    """Inputs and outputs of the released system, and our models with its weights."""

    def __init__(self, folder, scratch):
        self.folder = folder
        self.vocabulary = folder.parent / "vocab" / "bert_base_cased.txt"
        self.config = self.read("config.json")
        self.scratch = scratch
        self.models = {}

    def read(self, name):
        return json.loads((self.folder / name).read_text())

    def arrays(self, name):
        return dict(np.load(self.folder / f"{name}.npz"))

    def documents(self, model_type):
        lines = (self.folder / FILES[model_type]).read_text().splitlines()
        return [json.loads(line) for line in lines]

    def arguments(self, model_type, variant):
        names = [*ks.SpanBertCoreferenceResolver.__init__.__annotations__, "genres"]
        config = {**self.config, **self.config["overrides"][variant], "model_type": model_type}
        return {name: value for name, value in config.items() if name in names}

    def checkpoint(self, variant):
        """Writes a released folder. In variant d, the encoder is in a separate file."""
        folder = self.scratch / ("d" if variant == "d" else "a")
        if folder.exists():
            return folder
        folder.mkdir()
        config = self.read("bert_config.json")
        # The reference losses are without dropout.
        config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        (folder / "bert_config.json").write_text(json.dumps(config))
        if variant != "d":
            for path in (self.folder / "model").glob("model.max.ckpt*"):
                (folder / path.name).symlink_to(path)
            return folder
        import tensorflow as tf

        tensors = {}
        for source, prefix in [("model", "bert/"), ("model_d", "")]:
            path = str(self.folder / source / "model.max.ckpt")
            for name, _ in tf.train.list_variables(path):
                if name.startswith(prefix):
                    tensors[name] = tf.train.load_variable(path, name)
        tf.raw_ops.SaveV2(
            prefix=str(folder / "model.max.ckpt"),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        return folder

    def model(self, model_type, variant="a", **kwargs):
        key = model_type, variant, *sorted(kwargs.items())
        if key not in self.models:
            arguments = {**self.arguments(model_type, variant), **kwargs}
            self.models[key] = ks.checkpoints.from_coreference(
                os.fspath(self.checkpoint(variant)), os.fspath(self.vocabulary), **arguments
            )
        return self.models[key]


@pytest.fixture(scope="session")
def reference(shared_data, tmp_path_factory):
    """Inputs and outputs of the released coreference system."""
    return Reference(shared_data / "reference" / "coref", tmp_path_factory.mktemp("coreference"))


@pytest.fixture
def tokenizer():
    return ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])


@pytest.fixture
def build(tokenizer):
    """Returns a function that builds a small resolver."""

    def build(model_type="independent", with_preprocessor=True, **kwargs):
        backbone = ks.SpanBertBackbone(
            len(tokenizer.get_vocabulary()), num_layers=1, num_heads=2, hidden_dim=14,
            intermediate_dim=22, max_sequence_length=23, initializer_range=0.1, dropout=0.0,
        )  # fmt: skip
        shared = {"model_type": model_type, "genres": ("nw", "bc")}
        preprocessor = None
        if with_preprocessor:
            preprocessor = ks.SpanBertCoreferenceResolverPreprocessor(
                tokenizer, sequence_length=19, **shared
            )
        arguments = {
            "max_segment_len": 19, "max_training_sentences": 2, "max_span_width": 3,
            "max_top_antecedents": 5, "ffnn_size": 11, "feature_size": 4, **shared,
        }  # fmt: skip
        return ks.SpanBertCoreferenceResolver(backbone, preprocessor, **{**arguments, **kwargs})

    return build


@pytest.fixture
def document():
    """A document about two people and a letter, with more segments than a training step uses."""
    sentences = ["ann wrote the letter .", "she was old .", "bob sold it to ann .", "he was old ."]
    return {
        "doc_key": "nw",
        "sentences": [sentence.split() for sentence in sentences * 3],
        "speakers": [[name] * len(s.split()) for s, name in zip(sentences * 3, "abcb" * 3)],
        "clusters": [
            [(20 * i + at, 20 * i + at) for i in range(3) for at in (0, 5, 13)],
            [(20 * i + at, 20 * i + end) for i in range(3) for at, end in [(2, 3), (11, 11)]],
        ],
    }
