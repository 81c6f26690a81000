import json
import re

import numpy as np
import pytest
import torch
from bert_checkpoints import VOCABULARY, as_torch, build, encode, inputs, mlm_logits

import keras_spanbert as ks


def google_name(name):
    """The name in TensorFlow's BERT, and whether the tensor is transposed there."""
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    name = name.replace("LayerNorm.bias", "LayerNorm.beta")
    name = name.replace("encoder.layer.", "encoder.layer_")
    name = name.replace("cls.predictions.bias", "cls.predictions.output_bias")
    is_kernel = name.endswith(".weight") and "_embeddings" not in name
    name = re.sub(r"\.weight$", ".kernel" if is_kernel else "", name)
    return name.replace(".", "/"), is_kernel


def write_google(model, folder):
    import tensorflow as tf

    folder.mkdir(exist_ok=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in model.state_dict().items():
            if name.startswith("cls.predictions.decoder"):
                continue
            name, is_kernel = google_name(name)
            value = value.numpy()
            tf.compat.v1.get_variable(name, initializer=value.T if is_kernel else value)
        tf.compat.v1.get_variable("cls/seq_relationship/output_bias", initializer=np.zeros(2))
        tf.compat.v1.get_variable("global_step", initializer=7)
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


def test_outputs_are_those_of_the_same_weights_in_transformers(transformers, tmp_path):
    model = build(transformers.BertForMaskedLM)
    x = inputs()
    with torch.no_grad():
        encoded = model.bert(**as_torch(x)).last_hidden_state.numpy()
        logits = model(**as_torch(x)).logits.numpy()
    pretrainer = ks.checkpoints.from_google(write_google(model, tmp_path))
    np.testing.assert_allclose(encode(pretrainer.backbone, x), encoded, atol=1e-5)
    np.testing.assert_allclose(mlm_logits(pretrainer, x), logits, atol=2e-5)
    assert not pretrainer.preprocessor.tokenizer.lowercase


@pytest.mark.parametrize(
    "file, error",
    [
        ("index", "bert_model.ckpt is no whole TensorFlow checkpoint"),
        ("data-00000-of-00001", "bert_model.ckpt: the tensor .* cannot be read"),
    ],
)
def test_truncated_checkpoint_is_named(transformers, tmp_path, file, error):
    folder = write_google(build(transformers.BertForMaskedLM), tmp_path)
    path = folder / f"bert_model.ckpt.{file}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=error):
        ks.checkpoints.from_google(folder)
