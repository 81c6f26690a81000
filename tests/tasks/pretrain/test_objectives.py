"""Objectives of the pretrainer: MLM with or without SBO and NSP."""

import math

import keras
import numpy as np
import pytest
import tiny_pretrainer
from tiny_pretrainer import H, V, log_softmax, predict

import keras_spanbert as ks
from keras_spanbert.tasks.pretrain.objectives import unigram_entropies

L, M, ROWS = 23, math.ceil(0.3 * 23), 12
CHOICES = {
    "mlm": {"span_boundary": False},
    "mlm,sbo": {},
    "mlm,nsp": {"span_boundary": False, "next_sentence": True},
    "mlm,sbo,nsp": {"next_sentence": True},
}
_SENTENCES = tiny_pretrainer.texts(4 * ROWS, 4)
TEXTS = [" . ".join(_SENTENCES[i : i + 4]) for i in range(0, 4 * ROWS, 4)]


def build(name, **kwargs):
    return tiny_pretrainer.build(L, objectives=CHOICES[name], **kwargs)


def arrays(model, seed=5):
    return tiny_pretrainer.arrays(model, TEXTS, seed)


@pytest.mark.torch_first
@pytest.mark.parametrize("name", CHOICES)
def test_objectives_determine_inputs_outputs_and_layers(name):
    model = build(name)
    names = name.split(",")
    assert model.objectives == tuple(names)
    x, y, sample_weight = arrays(model)
    assert set(model.input) == set(x)
    assert ({"span_left", "span_right", "span_offsets"} & set(x) == set()) == ("sbo" not in names)
    assert list(y) == list(sample_weight) == list(model.output) == names
    shapes = {"mlm": (ROWS, M, V), "sbo": (ROWS, M, V), "nsp": (ROWS, 2)}
    logits = predict(model, x)
    assert {n: value.shape for n, value in logits.items()} == {n: shapes[n] for n in names}
    for n in names:
        assert y[n].shape == sample_weight[n].shape == shapes[n][:-1]
    heads = {"mlm": ["mlm_head"], "sbo": ["sbo_head"], "nsp": ["nsp_head", "pooler"]}
    layers = {layer.name for layer in model.layers}
    for n, of_objective in heads.items():
        assert set(of_objective) <= layers if n in names else not set(of_objective) & layers
    assert x["segment_ids"].any() == ("nsp" in names)


def test_masks_of_pairs_are_seeded():
    model = build("mlm,sbo,nsp")
    x, y, sample_weight = arrays(model)
    token_ids = x["token_ids"].copy()
    for row, positions, ids, weights in zip(
        token_ids, x["mask_positions"], y["mlm"], sample_weight["mlm"]
    ):
        row[positions[weights > 0]] = ids[weights > 0]
    layer = ks.NextSentencePairs.from_tokenizer(model.preprocessor.tokenizer)
    preprocessor = model.preprocessor
    packed = preprocessor._packer(preprocessor.tokenizer(TEXTS), sequence_length=L)
    pairs = layer(packed, seed=5)
    pairs = {n: keras.ops.convert_to_numpy(value) for n, value in pairs.items()}
    np.testing.assert_array_equal(token_ids, pairs["token_ids"])
    np.testing.assert_array_equal(x["segment_ids"], pairs["segment_ids"])
    np.testing.assert_array_equal(y["nsp"], pairs["is_random"])
    assert 0 < y["nsp"].sum() < ROWS and sample_weight["nsp"].all()
    # No span crosses a separator.
    assert not np.isin(y["mlm"][sample_weight["mlm"] > 0], [0, 2, 3]).any()
    again, other = arrays(model), arrays(model, seed=6)
    np.testing.assert_array_equal(again[0]["token_ids"], x["token_ids"])
    assert (other[1]["nsp"] != y["nsp"]).any()
    fresh = [np.asarray(model.preprocessor(TEXTS)[1]["nsp"]) for _ in range(2)]
    assert (fresh[0] != fresh[1]).any()


@pytest.mark.every_backend
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    "name, factors", [("mlm,sbo", {"sbo_weight": 0.5}), ("mlm,nsp", {"nsp_weight": 0.3})]
)
def test_loss_and_metrics_are_weighted_means(name, factors):
    model = build(name, **factors)
    x, y, sample_weight = arrays(model)
    logits = predict(model, x)
    result = {}
    loss = 0.0
    for n, factor in zip(name.split(","), [1.0, *factors.values()]):
        weight = sample_weight[n]
        weight[[1, 4]] = 0.0
        assert 0 < weight.sum() < weight.size
        nll = -np.take_along_axis(log_softmax(logits[n]), y[n][..., None], -1)[..., 0]
        result[f"{n}_cross_entropy"] = np.average(nll, weights=weight)
        result[f"{n}_accuracy"] = np.average(logits[n].argmax(axis=-1) == y[n], weights=weight)
        loss += factor * result[f"{n}_cross_entropy"]
    found = model.evaluate(
        x, y, sample_weight=sample_weight, verbose=0, return_dict=True, batch_size=ROWS
    )
    expected = {"loss": loss, **result}
    assert {n: found[n] for n in expected} == pytest.approx(expected, abs=1e-5)


@pytest.mark.once("torch")
def test_model_learns_each_objective():
    model = build("mlm,sbo,nsp")
    shapes = [tuple(w.shape) for w in model.trainable_weights]
    assert shapes.count((V, H)) == 1 and shapes.count((H, V)) == 0  # Both heads share it.
    x, y, sample_weight = arrays(model)
    model.compile(ks.AdamW(0.01))
    history = model.fit(x, y, sample_weight=sample_weight, epochs=60, verbose=0).history
    for head in ["mlm", "sbo", "nsp"]:
        losses = history[f"{head}_cross_entropy"]
        assert losses[-1] < losses[0] - 0.2, (head, losses)
    history = model.fit(TEXTS, validation_data=TEXTS, batch_size=4, verbose=0).history
    assert np.isfinite([history["loss"], history["val_loss"]]).all()


@keras.saving.register_keras_serializable(package="tests")
class OwnPretrainer(ks.SpanBertPretrainer):
    pass


def test_a_subclass_knows_that_a_new_head_is_untrained(tmp_path):
    build("mlm,sbo").save_to_preset(tmp_path)
    own = OwnPretrainer.from_preset(tmp_path, next_sentence=True)
    assert own.untrained_heads() == ["pooler", "nsp_head"]


def test_other_objectives_initialize_missing_heads_and_log_it(tmp_path, caplog):
    model = build("mlm,sbo")
    model.save_to_preset(tmp_path)
    caplog.clear()
    other = ks.SpanBertPretrainer.from_preset(tmp_path, span_boundary=False, next_sentence=True)
    assert other.objectives == ("mlm", "nsp") and other.untrained_heads()
    (message,) = caplog.messages
    rule = f"{tmp_path} has no weights for pooler and nsp_head, which start from random weights"
    assert rule in message and "has weights for sbo_head, which are not used" in message
    assert other.preprocessor.next_sentence and not other.preprocessor.span_boundary
    assert other.preprocessor.masking_config == model.preprocessor.masking_config
    x, _, _ = arrays(model)
    np.testing.assert_array_equal(predict(other, x)["mlm"], predict(model, x)["mlm"])
    # The same arguments restore the objectives of the preset.
    caplog.clear()
    same = ks.SpanBertPretrainer.from_preset(tmp_path, span_boundary=True)
    assert not caplog.records
    np.testing.assert_array_equal(predict(same, x)["sbo"], predict(model, x)["sbo"])


def test_fill_without_sbo_head_uses_mlm():
    model = build("mlm,nsp")
    filled = model.fill("the [MASK] of", top_k=3)[0]
    for candidate in [*filled, *model.score("the [MASK] of", ["a"])]:
        assert candidate["score"] == candidate["mlm"] and candidate["sbo"] is None
    with pytest.raises(ValueError, match="without an SBO head. Received: score='sbo'"):
        model.fill("the [MASK] of", score="sbo")


def test_cost_depends_on_the_objectives():
    of = {name: build(name).head_flops(7) for name in CHOICES}
    assert of["mlm"] == 7 * (2 * H * H + 2 * H * V)
    assert of["mlm,sbo"] - of["mlm"] == 7 * (2 * H * (2 * H + 3) + 2 * H * H + 2 * H * V)
    assert of["mlm,nsp"] - of["mlm"] == 2 * H * H + 2 * H * 2
    assert of["mlm,sbo,nsp"] == of["mlm,sbo"] + of["mlm,nsp"] - of["mlm"]


@pytest.mark.usefixtures("untraced")
def test_invalid_objectives_are_refused():
    model = build("mlm,nsp")
    with pytest.raises(ValueError, match="batch_size=1 of 12 texts, which leaves one alone"):
        model.fit(TEXTS, batch_size=1)
    with pytest.raises(ValueError, match="batch_size=11 of 12 texts"):
        model.evaluate(TEXTS, batch_size=11)
    model.preprocessor = build("mlm").preprocessor
    message = "`preprocessor.next_sentence` must be the model's, True. Received: .*=False"
    with pytest.raises(ValueError, match=message):
        model.fit(TEXTS)


def unigram_batch(mlm_ids, mlm_weights, sbo_ids, sbo_weights):
    y = {"mlm": np.array([mlm_ids]), "sbo": np.array([sbo_ids])}
    return None, y, {"mlm": np.array([mlm_weights]), "sbo": np.array([sbo_weights])}


def test_unigram_entropies_by_hand():
    # A quarter is added to each: 13/28, 9/28, 5/28, 1/28.
    counts = np.array([3, 2, 1, 0])
    dataset = [
        unigram_batch([0, 1, 3], [1.0, 1.0, 0.0], [2, 0, 0], [1.0, 0.0, 0.0]),
        unigram_batch([3, 0, 0], [1.0, 0.0, 0.0], [3, 1, 0], [1.0, 1.0, 0.0]),
    ]
    entropies = unigram_entropies(counts, dataset)
    assert entropies == {
        "mlm": pytest.approx(-np.log(13 * 9 * 1 / 28**3) / 3),
        "sbo": pytest.approx(-np.log(5 * 1 * 9 / 28**3) / 3),
    }

    # Short held-out blocks may have no span with both neighbours.
    dataset = [unigram_batch([0, 1], [1.0, 1.0], [0, 0], [0.0, 0.0])]
    entropies = unigram_entropies(np.array([1, 1]), dataset)
    assert entropies == {"mlm": pytest.approx(np.log(2)), "sbo": 0.0}
    y = {"mlm": np.array([[0, 1]]), "nsp": np.array([1, 0, 0])}
    weights = {"mlm": np.array([[1.0, 0.0]]), "nsp": np.array([1.0, 1.0, 0.0])}
    entropies = unigram_entropies(np.array([1, 1]), [(None, y, weights)])
    assert entropies == {"mlm": pytest.approx(np.log(2)), "nsp": pytest.approx(np.log(2))}
