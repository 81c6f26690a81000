"""Hugging Face's folders: `config.json`, weights, vocabulary. In and out."""

import json
import os

import keras
import numpy as np

from keras_spanbert.checkpoints import files, names
from keras_spanbert.checkpoints.checkpoint import Checkpoint
from keras_spanbert.checkpoints.vocabulary import decide_lowercase, read_vocabulary
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.pretrainer import SpanBertPretrainer
from keras_spanbert.models.question_answerer import SpanBertQuestionAnswerer

# Beside the weights that `transformers` knows, which would warn about these.
SBO_FILE = "span_boundary_head.safetensors"
_SBO_PREFIX = "cls.pair_target_predictions."
# The name of `config.json` before Hugging Face's library was `transformers`.
OLD_CONFIG = "bert_config.json"

# What each model becomes, and its head's tensors there.
ARCHITECTURES = {
    SpanBertBackbone: ("BertModel", None),
    SpanBertPretrainer: ("BertForMaskedLM", names.mlm_entries),
    SpanBertQuestionAnswerer: ("BertForQuestionAnswering", names.qa_entries),
}

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
    "silu": "silu",
    "tanh": "tanh",
}


def open_huggingface(folder, vocabulary=None, source=None):
    """A Hugging Face folder as a `Checkpoint`.

    Args:
        folder: string.
        vocabulary: string, a vocabulary file. Defaults to `None`, the folder's.
        source: string, how messages name it. Defaults to `None`, `folder`.

    Raises:
        ValueError: see `Checkpoint`.
    """
    source = source or folder
    tensors = files.open_tensors(files.find_tensor_files(folder))
    if os.path.isfile(os.path.join(folder, SBO_FILE)):
        head = files.open_tensors([os.path.join(folder, SBO_FILE)])
        tensors.update((n, t) for n, t in head.items() if n.startswith(_SBO_PREFIX))
    name = "config.json" if os.path.isfile(os.path.join(folder, "config.json")) else OLD_CONFIG
    config = files.read_json(os.path.join(folder, name))
    return Checkpoint(source, config, tensors, *vocabulary_of(folder, vocabulary))


def vocabulary_of(folder, vocabulary=None):
    """`Checkpoint`'s vocabulary, lowercase and notes, from a folder or a file."""
    tokens = read_vocabulary(vocabulary or folder)
    if tokens is None:
        return None, False, ["No tokenizer: neither vocab.txt nor tokenizer.json is there"]
    return tokens, *decide_lowercase(folder, tokens)


def write_huggingface(model, path, tokenizer=None):
    """Writes `model` as a Hugging Face folder into the existing folder `path`."""
    from safetensors.numpy import save_file

    if type(model) not in ARCHITECTURES:
        raise ValueError(
            f"`model` must be one of {', '.join(cls.__name__ for cls in ARCHITECTURES)}. "
            f"Received: model={model}"
        )
    architecture, head_entries = ARCHITECTURES[type(model)]
    is_task = not isinstance(model, SpanBertBackbone)
    backbone = model.backbone if is_task else model
    if tokenizer is None and is_task and model.preprocessor is not None:
        tokenizer = model.preprocessor.tokenizer
    if tokenizer is not None and tokenizer.vocabulary_size() != backbone.vocabulary_size:
        raise ValueError(
            f"`tokenizer` must have as many tokens as the model, {backbone.vocabulary_size}. "
            f"Received: {tokenizer.vocabulary_size()}"
        )
    config = _config(backbone, architecture, tokenizer)
    weights = {weight.path: weight for weight in model.weights}
    written = set()

    def tensors(entries, prefix=""):
        found = {}
        for entry in entries:
            written.add(entry.path)
            array = keras.ops.convert_to_numpy(weights[entry.path])
            if entry.path.endswith("/kernel"):
                array = array.reshape(entry.shape[::-1]).T
            found[prefix + entry.name] = np.ascontiguousarray(array.reshape(entry.shape))
        return found

    state = tensors(names.encoder_entries(config), "bert." if is_task else "")
    if head_entries:
        state.update(tensors(head_entries(config)))
    if isinstance(model, SpanBertPretrainer):
        sizes = {"max_span_tokens": model.max_span_tokens, "position_dim": model.position_dim}
        head = tensors(names.sbo_entries({**config, **sizes}))
        save_file(head, os.path.join(path, SBO_FILE), metadata={"format": "pt"})
    left = sorted(weights.keys() - written)
    if left:  # Of LoRA, for example.
        raise ValueError(
            f"`model` must have the weights of a BERT alone. Received besides: {left[0]}"
        )
    save_file(state, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
    _write_json(os.path.join(path, "config.json"), config)
    if tokenizer is not None:
        _write_tokenizer(path, tokenizer, backbone.max_sequence_length)


def _config(backbone, architecture, tokenizer):
    activation = backbone.activation.__name__
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"The activation must be one of {', '.join(_ACTIVATIONS)} for Hugging Face. "
            f"Received: {activation}"
        )
    dropout = backbone.dropout
    attention_dropout = backbone.attention_dropout
    return {
        "architectures": [architecture],
        "attention_probs_dropout_prob": dropout if attention_dropout is None else attention_dropout,
        "hidden_act": _ACTIVATIONS[activation],
        "hidden_dropout_prob": dropout,
        "hidden_size": backbone.hidden_dim,
        "initializer_range": backbone.initializer_range,
        "intermediate_size": backbone.intermediate_dim,
        "layer_norm_eps": backbone.layer_norm_epsilon,
        "max_position_embeddings": backbone.max_sequence_length,
        "model_type": "bert",
        "num_attention_heads": backbone.num_heads,
        "num_hidden_layers": backbone.num_layers,
        "pad_token_id": 0 if tokenizer is None else tokenizer.pad_token_id,
        "type_vocab_size": backbone.num_segments,
        "vocab_size": backbone.vocabulary_size,
    }


def _write_tokenizer(path, tokenizer, max_length):
    with open(os.path.join(path, "vocab.txt"), "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{token}\n" for token in tokenizer.get_vocabulary())
    _write_json(
        os.path.join(path, "tokenizer_config.json"),
        {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": tokenizer.lowercase,
            "strip_accents": tokenizer.lowercase,
            "tokenize_chinese_chars": True,
            "model_max_length": max_length,
            "unk_token": tokenizer.oov_token,
            "cls_token": tokenizer.cls_token,
            "sep_token": tokenizer.sep_token,
            "pad_token": tokenizer.pad_token,
            "mask_token": tokenizer.mask_token,
        },
    )


def _write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")
