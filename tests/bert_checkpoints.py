"""Random BERT checkpoints of other libraries, for tests."""

import os

import keras
import numpy as np
import torch

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "##s", "house", "is"]
VOCABULARY += [f"[unused{i}]" for i in range(37)]
V, L = len(VOCABULARY), 19


def bert_config(**kwargs):
    # Every size another.
    import transformers

    return transformers.BertConfig(
        **{
            "vocab_size": V,
            "hidden_size": 30,
            "num_hidden_layers": 3,
            "num_attention_heads": 5,
            "intermediate_size": 41,
            "max_position_embeddings": 23,
            "type_vocab_size": 4,
            "hidden_dropout_prob": 0.07,
            "attention_probs_dropout_prob": 0.03,
            "initializer_range": 0.3,
            **kwargs,
        }
    )


def build(cls, **kwargs):
    """A random model of `transformers`, biases and LayerNorm included."""
    torch.manual_seed(0)
    model = cls(bert_config(**kwargs)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(0.3 * torch.randn_like(weight))
    return model


def write(model, folder, file_format="safetensors", vocabulary=VOCABULARY):
    """Writes a folder as `transformers` does, or did until its version 5."""
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


def as_torch(x):
    x = {name: torch.from_numpy(value).long() for name, value in x.items()}
    return {
        "input_ids": x["token_ids"],
        "token_type_ids": x["segment_ids"],
        "attention_mask": x["padding_mask"],
    }


def encode(backbone, x):
    return keras.ops.convert_to_numpy(backbone(x, training=False))


def mlm_logits(pretrainer, x):
    """The MLM head's logits at every position."""
    rows, length = x["token_ids"].shape
    zeros = np.zeros((rows, length), "int32")
    masks = {name: zeros for name in ["span_left", "span_right", "span_offsets"]}
    positions = zeros + np.arange(length, dtype="int32")
    logits = pretrainer({**x, **masks, "mask_positions": positions}, training=False)
    return keras.ops.convert_to_numpy(logits["mlm"])
