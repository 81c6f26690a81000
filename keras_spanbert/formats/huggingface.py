"""Reads and writes Hugging Face's folders: `config.json`, weights, vocabulary."""

import os

import numpy as np

from keras_spanbert import files
from keras_spanbert.checks import check_in
from keras_spanbert.formats.tensors import Tensor, find_tensor_files, open_tensors

# In a file of its own: `transformers` would warn about weights that it does not know.
SBO_FILE = "span_boundary_head.safetensors"
_SBO_PREFIX = "cls.pair_target_predictions."
# The name of `config.json` in the predecessors of `transformers`.
OLD_CONFIG = "bert_config.json"

# Maps values of `hidden_act` to Keras activations. An activation is written with its first name.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
_HIDDEN_ACTS = {activation: name for name, activation in reversed(ACTIVATIONS.items())}
# Tensors of the encoder. In a model with heads their names start with `bert.`.
_ENCODER = ("embeddings.", "encoder.", "pooler.")


def read_huggingface(folder: str) -> tuple[dict, dict[str, Tensor]]:
    """Returns the settings and tensors of a Hugging Face folder."""
    tensors = open_tensors(find_tensor_files(folder))
    if os.path.isfile(os.path.join(folder, SBO_FILE)):
        head = open_tensors([os.path.join(folder, SBO_FILE)])
        tensors.update((n, t) for n, t in head.items() if n.startswith(_SBO_PREFIX))
    name = "config.json" if os.path.isfile(os.path.join(folder, "config.json")) else OLD_CONFIG
    return files.read_json(os.path.join(folder, name)), tensors


def hidden_act(activation: str) -> str:
    """Returns `hidden_act` for a Keras activation. Raises `ValueError` if there is none."""
    rule = f"one of {', '.join(sorted(_HIDDEN_ACTS))} for Hugging Face"
    return _HIDDEN_ACTS[check_in("activation", activation, activation in _HIDDEN_ACTS, rule)]


def write_huggingface(
    folder: str, config: dict, tensors: dict[str, np.ndarray], is_encoder: bool
) -> None:
    """Writes the settings of `transformers.BertConfig` and weights into an existing folder.

    Pass the names of `tensors` without the prefix `bert.`. In the files, the encoder's tensors get
    this prefix, unless the model is only an encoder (`is_encoder`).
    """
    from safetensors.numpy import save_file

    by_file = {"model.safetensors": {}, SBO_FILE: {}}
    for name, array in tensors.items():
        file = SBO_FILE if name.startswith(_SBO_PREFIX) else "model.safetensors"
        is_inner = name.startswith(_ENCODER) and not is_encoder
        by_file[file][f"bert.{name}" if is_inner else name] = array
    for name, state in by_file.items():
        if state:
            save_file(state, os.path.join(folder, name), metadata={"format": "pt"})
    files.write_json(os.path.join(folder, "config.json"), config)


def write_tokenizer(folder: str, tokenizer, max_length: int) -> None:
    """Writes a `SpanBertTokenizer` as `vocab.txt` and `tokenizer_config.json`.

    `folder` exists. `max_length` is the largest number of tokens per input.
    """
    vocabulary = tokenizer.get_vocabulary()
    added = {
        str(vocabulary.index(token)): {
            "content": token,
            "special": is_exact,
            "normalized": not is_exact,
            **dict.fromkeys(["lstrip", "rstrip", "single_word"], False),
        }
        for token, is_exact in tokenizer.added_tokens.items()
    }
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{token}\n" for token in vocabulary)
    names = ["cls_token", "sep_token", "pad_token", "mask_token"]
    files.write_json(
        os.path.join(folder, "tokenizer_config.json"),
        {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": tokenizer.lowercase,
            "strip_accents": tokenizer.lowercase,
            "tokenize_chinese_chars": True,
            "model_max_length": max_length,
            "unk_token": tokenizer.oov_token,
            **{name: getattr(tokenizer, name) for name in names},
            **({"added_tokens_decoder": added} if added else {}),
        },
    )
