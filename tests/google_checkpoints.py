"""Checkpoints in the format of Google's TensorFlow BERT, for tests."""

import json
import re

import numpy as np
from bert_checkpoints import VOCABULARY


def google_name(name):
    """Returns the name in TensorFlow's BERT and whether the tensor is transposed there."""
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    name = name.replace("LayerNorm.bias", "LayerNorm.beta")
    name = name.replace("encoder.layer.", "encoder.layer_")
    name = name.replace("cls.predictions.bias", "cls.predictions.output_bias")
    name = name.replace("cls.seq_relationship.weight", "cls.seq_relationship.output_weights")
    name = name.replace("cls.seq_relationship.bias", "cls.seq_relationship.output_bias")
    is_kernel = name.endswith(".weight") and "_embeddings" not in name
    name = re.sub(r"\.weight$", ".kernel" if is_kernel else "", name)
    return name.replace(".", "/"), is_kernel


def write_tensors(folder, tensors):
    """Writes tensors, by their names in `transformers`, as a checkpoint of TensorFlow."""
    import tensorflow as tf

    folder.mkdir(exist_ok=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in tensors.items():
            name, is_kernel = google_name(name)
            tf.compat.v1.get_variable(name, initializer=value.T if is_kernel else value)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(folder / "bert_model.ckpt"))


def write_google(model, folder):
    tensors = {"cls.seq_relationship.bias": np.zeros(2), "global_step": 7}
    for name, value in model.state_dict().items():
        if not name.startswith("cls.predictions.decoder"):
            tensors[name] = value.numpy()
    write_tensors(folder, tensors)
    config = model.config
    names = [
        "attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size",
        "initializer_range", "intermediate_size", "max_position_embeddings",
        "num_attention_heads", "num_hidden_layers", "type_vocab_size", "vocab_size",
    ]  # fmt: skip
    (folder / "bert_config.json").write_text(json.dumps({n: getattr(config, n) for n in names}))
    (folder / "vocab.txt").write_text("".join(f"{t}\n" for t in VOCABULARY))
    return folder
