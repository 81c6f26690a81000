"""Random BERT checkpoints of other libraries, for tests."""

import os

import keras
import numpy as np
import torch

import keras_spanbert as ks

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "##s", "house", "is"]
VOCABULARY += [f"[unused{i}]" for i in range(37)]
V, L = len(VOCABULARY), 19


def bert_config(**kwargs):
    # All sizes are different.
    import transformers

    return transformers.BertConfig(
        **{
            "vocab_size": V, "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 5,
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


def write(model, folder, file_format="safetensors", vocabulary=VOCABULARY):
    """Writes a folder in the format of `transformers`, or of its versions before 5."""
    if file_format == "sharded":
        model.save_pretrained(folder, max_shard_size="20KB")
    else:
        model.save_pretrained(folder)
    if file_format == "bin":
        os.remove(folder / "model.safetensors")
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    if vocabulary:
        (folder / "vocab.txt").write_text("".join(f"{t}\n" for t in vocabulary), encoding="utf-8")
    return folder


def inputs(batch=3, length=L, vocabulary_size=V, num_segments=4):
    rng = np.random.default_rng(1)
    lengths = np.array([[length], [length - 5], [7]])[:batch]
    return {
        "token_ids": rng.integers(5, vocabulary_size, (batch, length)).astype("int32"),
        "segment_ids": rng.integers(0, num_segments, (batch, length)).astype("int32"),
        "padding_mask": (np.arange(length) < lengths).astype("int32"),
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


def encode(backbone, x):
    return keras.ops.convert_to_numpy(backbone(x, training=False))


def mlm_logits(pretrainer, x):
    """Returns the logits of the MLM head at every position."""
    rows, length = x["token_ids"].shape
    zeros = np.zeros((rows, length), "int32")
    masks = {name: zeros for name in ["span_left", "span_right", "span_offsets"]}
    positions = zeros + np.arange(length, dtype="int32")
    logits = pretrainer({**x, **masks, "mask_positions": positions}, training=False)
    return keras.ops.convert_to_numpy(logits["mlm"])


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
    return [encode(backbone, encoder) for backbone in backbones], logits
