import numpy as np
import pytest
from bert_checkpoints import build, compute, encode, inputs, mlm_logits
from google_checkpoints import write_google

import keras_spanbert as ks


def test_outputs_equal_transformers(transformers, tmp_path):
    model = build(transformers.BertForMaskedLM)
    x = inputs()
    encoded = compute(model.bert, x).last_hidden_state.numpy()
    logits = compute(model, x).logits.numpy()
    pretrainer = ks.checkpoints.from_google(write_google(model, tmp_path))
    np.testing.assert_allclose(encode(pretrainer.backbone, x), encoded, atol=1e-5)
    np.testing.assert_allclose(mlm_logits(pretrainer, x), logits, atol=2e-5)
    assert not pretrainer.preprocessor.tokenizer.lowercase


@pytest.mark.once
@pytest.mark.parametrize(
    "file, error",
    [
        ("index", "bert_model.ckpt is not a complete TensorFlow checkpoint"),
        ("data-00000-of-00001", "bert_model.ckpt: the tensor .* cannot be read"),
    ],
)
def test_truncated_checkpoint_is_named(transformers, tmp_path, file, error):
    folder = write_google(build(transformers.BertForMaskedLM), tmp_path)
    path = folder / f"bert_model.ckpt.{file}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=error):
        ks.checkpoints.from_google(folder)
