"""Random BERT checkpoints of other libraries, for tests."""

import json
import os
import re

import keras
import numpy as np
import torch
from safetensors.torch import load_file, save_file

import keras_spanbert as ks

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "##s", "house", "is"]
VOCABULARY += [f"[unused{i}]" for i in range(37)]
V, L = len(VOCABULARY), 19


def bert_config(**kwargs):
    # All sizes are different.
    import transformers

    return transformers.BertConfig(
        **{
            "vocab_size": V, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5,
            "intermediate_size": 41, "max_position_embeddings": 23, "type_vocab_size": 4,
            "hidden_dropout_prob": 0.07, "attention_probs_dropout_prob": 0.03,
            "initializer_range": 0.3, **kwargs,
        }
    )  # fmt: skip


def build(cls, **kwargs):
    """Returns a random model of `transformers`, with random biases and LayerNorm."""
    torch.manual_seed(0)
    model = cls(bert_config(**kwargs)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(0.3 * torch.randn_like(weight))
    return model


def write(model, folder, rename="{}", **kwargs):
    """Writes a folder in the format of `transformers`.

    `rename` is a format string or a function for the names of tensors. `kwargs` are arguments of
    `save_pretrained`.
    """
    model.save_pretrained(folder, **kwargs)
    rename = getattr(rename, "format", rename)
    for path in folder.glob("*.safetensors"):
        save_file({rename(name): tensor for name, tensor in load_file(path).items()}, path)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return folder


def write_bin(model, folder, rename="{}", pack=lambda tensors: tensors):
    """Writes a folder as versions of `transformers` before 5 did."""
    os.remove(write(model, folder) / "model.safetensors")
    tensors = {rename.format(name): tensor for name, tensor in model.state_dict().items()}
    torch.save(pack(tensors), folder / "pytorch_model.bin")
    return folder


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


def write_google(model, folder):
    """Writes a model of `transformers` as Google's TensorFlow BERT."""
    import tensorflow as tf

    tensors = {"cls.seq_relationship.bias": np.zeros(2), "global_step": 7}
    for name, value in model.state_dict().items():
        if not name.startswith("cls.predictions.decoder"):
            tensors[name] = value.numpy()
    folder.mkdir(exist_ok=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in tensors.items():
            name, is_kernel = google_name(name)
            tf.compat.v1.get_variable(name, initializer=value.T if is_kernel else value)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(folder / "bert_model.ckpt"))
    config = model.config
    names = [
        "attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size",
        "initializer_range", "intermediate_size", "max_position_embeddings",
        "num_attention_heads", "num_hidden_layers", "type_vocab_size", "vocab_size",
    ]  # fmt: skip
    (folder / "bert_config.json").write_text(json.dumps({n: getattr(config, n) for n in names}))
    (folder / "vocab.txt").write_text("".join(f"{t}\n" for t in VOCABULARY))
    return folder


def inputs(vocabulary_size=V):
    rng = np.random.default_rng(1)
    return {
        "token_ids": rng.integers(5, vocabulary_size, (3, L)).astype("int32"),
        "segment_ids": rng.integers(0, 4, (3, L)).astype("int32"),
        "padding_mask": (np.arange(L) < np.array([[L], [L - 5], [7]])).astype("int32"),
    }


def compute(model, x, **labels):
    """Returns the outputs of a model of `transformers`."""
    x = {name: torch.from_numpy(value).long() for name, value in x.items()}
    ids = {"input_ids": x["token_ids"], "token_type_ids": x["segment_ids"]}
    with torch.no_grad():
        return model(**ids, attention_mask=x["padding_mask"], **labels)


def load(cls, folder, **kwargs):
    """Loads a folder with `transformers`. No tensor may be missing or unused."""
    model, info = cls.from_pretrained(folder, output_loading_info=True, **kwargs)
    assert not any(info.values()), info
    return model.eval()


def assert_same(one, other, ignore="none"):
    """Checks that two models have equal weights, except those whose paths start with `ignore`."""
    assert [weight.path for weight in one.weights] == [weight.path for weight in other.weights]
    for mine, theirs in zip(one.weights, other.weights):
        if not mine.path.startswith(ignore):
            values = map(keras.ops.convert_to_numpy, (mine, theirs))
            np.testing.assert_array_equal(*values, err_msg=mine.path)


def outputs(model, x):
    """Returns the arrays that our model computes, in the order of `transformers`.

    Of a pretrainer, these are the logits of the MLM head at every position and those of pairs.
    """
    if isinstance(model, ks.SpanBertPretrainer):
        zeros = np.zeros_like(x["token_ids"])
        masks = {name: zeros for name in ["span_left", "span_right", "span_offsets"]}
        positions = zeros + np.arange(zeros.shape[1], dtype="int32")
        x = {**x, **masks, "mask_positions": positions}
    found = model(x, training=False)
    if isinstance(found, dict):
        names = ["sequence_output", "pooled_output", "mlm", "nsp", "start", "end"]
        found = [found[name] for name in names if name in found]
    return [keras.ops.convert_to_numpy(array) for array in keras.tree.flatten(found)]


def released_outputs(folder, expected):
    """Computes the outputs of the released pretraining model.

    Args:
        folder: path of a folder with `checkpoint.pt` of fairseq and `hf/`.
        expected: dict of arrays, the inputs and the outputs of the released code.

    Returns:
        The vectors of both files, and the logits of both heads at each position (MLM) and at each
        slot of each pair (SBO).
    """
    pretrainer = ks.checkpoints.from_fairseq(folder / "checkpoint.pt", num_heads=4)
    token_ids = expected["token_ids"]
    B, L = token_ids.shape
    _, P, S = expected["pair_targets"].shape
    encoder = {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": expected["padding_mask"],
    }
    backbones = pretrainer.backbone, ks.checkpoints.from_huggingface(folder / "hf")
    positions = np.broadcast_to(np.arange(L, dtype="int32"), (B, L))
    left, right = (np.repeat(expected["pairs"][:, :, i], S, axis=1) for i in [0, 1])
    offsets = np.tile(np.arange(S, dtype="int32"), (B, P))
    logits = pretrainer(
        {
            **encoder, "mask_positions": positions, "span_left": left, "span_right": right,
            "span_offsets": offsets,
        }
    )  # fmt: skip
    logits = {name: keras.ops.convert_to_numpy(value) for name, value in logits.items()}
    logits["sbo"] = logits["sbo"].reshape(expected["sbo_logits"].shape)
    return [outputs(backbone, encoder)[0] for backbone in backbones], logits
