import collections
import json
import os

import numpy as np
import pytest

import keras_spanbert as ks

FILES = {"independent": "documents.jsonlines", "overlap": "documents_overlap.jsonlines"}
WORDS = "ann bob wrote sold the letter it she he was old . to read them".split()


class Reference:
    """The released system's inputs and outputs, and our models with its weights."""

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
        """A folder as it is released: of variant d the encoder is in another file."""
        folder = self.scratch / ("d" if variant == "d" else "a")
        if folder.exists():
            return folder
        folder.mkdir()
        config = self.read("bert_config.json")
        # The losses of training steps are those without dropout.
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

    def words(self):
        """The documents of `gold.conll` in words."""
        documents = []
        for line in (self.folder / "gold.conll").read_text().splitlines():
            if line.startswith("#begin"):
                name, part = line.removeprefix("#begin document (").split("); part ")
                open_at, clusters = collections.defaultdict(list), collections.defaultdict(list)
                document = {"doc_key": f"{name}_{int(part)}", "sentences": [[]], "speakers": [[]]}
                number = 0
            elif line.startswith("#end"):
                for key in ["sentences", "speakers"]:
                    document[key] = [row for row in document[key] if row]
                documents.append({**document, "clusters": list(clusters.values())})
            elif not line.strip():
                document["sentences"].append([])
                document["speakers"].append([])
            else:
                row = line.split("\t")
                document["sentences"][-1].append(row[3])
                document["speakers"][-1].append(row[9])
                for mark in row[-1].split("|") if row[-1] != "-" else []:
                    cluster = int(mark.strip("()"))
                    if mark.startswith("("):
                        open_at[cluster].append(number)
                    if mark.endswith(")"):
                        clusters[cluster].append([open_at[cluster].pop(), number])
                number += 1
        return documents


@pytest.fixture(scope="session")
def reference(shared_data, tmp_path_factory):
    """The released coreference system's inputs and outputs."""
    return Reference(shared_data / "reference" / "coref", tmp_path_factory.mktemp("coreference"))


@pytest.fixture
def tokenizer():
    return ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])


@pytest.fixture
def build(tokenizer):
    """Makes a small resolver with weights of its own."""

    def build(model_type="independent", with_preprocessor=True, **kwargs):
        backbone = ks.SpanBertBackbone(
            len(tokenizer.get_vocabulary()),
            num_layers=1,
            num_heads=2,
            hidden_dim=14,
            intermediate_dim=22,
            max_sequence_length=23,
            initializer_range=0.1,
            dropout=0.0,
        )
        shared = {"model_type": model_type, "genres": ("nw", "bc")}
        preprocessor = None
        if with_preprocessor:
            preprocessor = ks.SpanBertCoreferenceResolverPreprocessor(
                tokenizer, sequence_length=19, **shared
            )
        arguments = {
            "max_segment_len": 19,
            "max_training_sentences": 2,
            "max_span_width": 3,
            "max_top_antecedents": 5,
            "ffnn_size": 11,
            "feature_size": 4,
            **shared,
        }
        return ks.SpanBertCoreferenceResolver(backbone, preprocessor, **{**arguments, **kwargs})

    return build


@pytest.fixture
def document():
    """Two people and a letter, in more segments than are trained on at once."""
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
