import json
import os

import numpy as np
import pytest
import tiny_resolver

import keras_spanbert as ks

FILES = {"independent": "documents.jsonlines", "overlap": "documents_overlap.jsonlines"}


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
        name = "d" if variant == "d" else "a"
        prefixes = {"a": {"model": ""}, "d": {"model": "bert/", "model_d": ""}}
        if not (self.scratch / name).exists():
            self.write(self.scratch / name, prefixes[name])
        return self.scratch / name

    def write(self, folder, prefixes, without="no such name"):
        """Writes the tensors of released files whose names begin with their prefix."""
        import tensorflow as tf

        tensors = {}
        for source, prefix in prefixes.items():
            path = str(self.folder / source / "model.max.ckpt")
            for name, _ in tf.train.list_variables(path):
                if name.startswith(prefix) and without not in name:
                    tensors[name] = tf.train.load_variable(path, name)
        folder.mkdir(exist_ok=True)
        tf.raw_ops.SaveV2(
            prefix=str(folder / "model.max.ckpt"),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        config = self.read("bert_config.json")
        # The reference losses are without dropout.
        config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        (folder / "bert_config.json").write_text(json.dumps(config))

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
def build():
    return tiny_resolver.build


@pytest.fixture
def document():
    return tiny_resolver.document()
