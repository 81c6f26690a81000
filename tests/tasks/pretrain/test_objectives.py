"""The pretrainer's objectives: MLM alone, with SBO, with pairs, or all of them."""

import math

import keras
import numpy as np
import pytest

import keras_spanbert as ks

WORDS = "the of and to in a is that for it with as was on be by at this from not".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "."]
V = len(VOCABULARY)
L, M, ROWS = 23, math.ceil(0.3 * 23), 12
CHOICES = {
    "mlm": {"span_boundary": False},
    "mlm,sbo": {},
    "mlm,nsp": {"span_boundary": False, "next_sentence": True},
    "mlm,sbo,nsp": {"next_sentence": True},
}
SBO_INPUTS = {"span_left", "span_right", "span_offsets"}


def texts(count=ROWS):
    rng = np.random.default_rng(0)
    return [" . ".join(" ".join(rng.choice(WORDS, 4)) for _ in range(4)) for _ in range(count)]


def build(name, **kwargs):
    choices = CHOICES[name]
    preprocessor = ks.SpanBertPretrainerPreprocessor(
        ks.SpanBertTokenizer(VOCABULARY), sequence_length=L, mask_rate=0.3, seed=1, **choices
    )
    backbone = ks.SpanBertBackbone(V, 1, 2, 10, 14, dropout=0.0, max_sequence_length=L)
    return ks.SpanBertPretrainer(backbone, preprocessor, position_dim=3, **choices, **kwargs)


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def predict(model, x):
    return {k: keras.ops.convert_to_numpy(v) for k, v in model(x, training=False).items()}


def arrays(model, seed=5):
    return [
        {name: keras.ops.convert_to_numpy(x) for name, x in part.items()}
        for part in model.preprocessor(texts(), seed=seed)
    ]


@pytest.mark.parametrize("name", CHOICES)
def test_inputs_outputs_labels_and_layers_are_those_of_the_objectives(name):
    model = build(name)
    names = name.split(",")
    assert model.objectives == tuple(names)
    x, y, sample_weight = arrays(model)
    assert set(model.input) == set(x)
    assert SBO_INPUTS & set(x) == (SBO_INPUTS if "sbo" in names else set())
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


def test_masks_are_those_of_the_pairs_and_the_same_seed_gives_the_same():
    model = build("mlm,sbo,nsp")
    x, y, sample_weight = arrays(model)
    token_ids = x["token_ids"].copy()
    for row, positions, ids, weights in zip(
        token_ids, x["mask_positions"], y["mlm"], sample_weight["mlm"]
    ):
        row[positions[weights > 0]] = ids[weights > 0]
    packed = model.preprocessor.pack(texts())
    pairs = ks.NextSentencePairs.from_tokenizer(model.preprocessor.tokenizer)(packed, seed=5)
    pairs = {n: keras.ops.convert_to_numpy(value) for n, value in pairs.items()}
    np.testing.assert_array_equal(token_ids, pairs["token_ids"])
    np.testing.assert_array_equal(x["segment_ids"], pairs["segment_ids"])
    np.testing.assert_array_equal(y["nsp"], pairs["is_random"])
    assert 0 < y["nsp"].sum() < ROWS and sample_weight["nsp"].all()
    # No span reaches across a separator.
    assert not np.isin(y["mlm"][sample_weight["mlm"] > 0], [0, 2, 3]).any()
    again, other = arrays(model), arrays(model, seed=6)
    np.testing.assert_array_equal(again[0]["token_ids"], x["token_ids"])
    assert (other[1]["nsp"] != y["nsp"]).any()
    fresh = [np.asarray(model.preprocessor(texts())[1]["nsp"]) for _ in range(2)]
    assert (fresh[0] != fresh[1]).any()


def test_pairs_are_the_same_in_tf_data():
    import tensorflow as tf

    model = build("mlm,nsp")
    dataset = tf.data.Dataset.from_tensors(texts()).map(lambda t: model.preprocessor(t, seed=5))
    for ours, theirs in zip(arrays(model), next(iter(dataset))):
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name].numpy(), err_msg=name)
            assert ours[name].dtype == theirs[name].numpy().dtype


@pytest.mark.usefixtures("untraced")
def test_loss_and_metrics_of_pairs_are_weighted_means_by_hand():
    model = build("mlm,nsp", nsp_weight=0.3)
    x, y, sample_weight = arrays(model)
    sample_weight["nsp"][[1, 4]] = 0.0
    logits = predict(model, x)
    result = model.evaluate(
        x, y, sample_weight=sample_weight, verbose=0, return_dict=True, batch_size=ROWS
    )
    loss = 0.0
    for name, factor in [("mlm", 1.0), ("nsp", 0.3)]:
        weight = sample_weight[name]
        nll = -np.take_along_axis(log_softmax(logits[name]), y[name][..., None], -1)[..., 0]
        hits = logits[name].argmax(axis=-1) == y[name]
        expected = (weight * nll).sum() / weight.sum()
        accuracy = (weight * hits).sum() / weight.sum()
        assert result[f"{name}_cross_entropy"] == pytest.approx(expected, abs=1e-5)
        assert result[f"{name}_accuracy"] == pytest.approx(accuracy, abs=1e-5)
        loss += factor * expected
    assert result["loss"] == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("name", ["mlm", "mlm,sbo,nsp"])
def test_model_fits_strings_and_learns_each_objective(name):
    model = build(name)
    x, y, sample_weight = arrays(model)
    model.compile(ks.AdamW(0.01))
    model.fit(texts(), batch_size=4, verbose=0)
    history = model.fit(x, y, sample_weight=sample_weight, epochs=60, verbose=0).history
    for head in name.split(","):
        losses = history[f"{head}_cross_entropy"]
        assert losses[-1] < losses[0] - 0.2, (head, losses)
    assert np.isfinite(model.evaluate(texts(), verbose=0, return_dict=True)["loss"])


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("name", [n for n in CHOICES if n != "mlm,sbo"])
# Keras warns of an optimizer that has not begun.
@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
def test_presets_and_keras_files_keep_the_objectives(name, tmp_path):
    model = build(name, nsp_weight=0.7)
    x, _, _ = arrays(model)
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for loaded in [
        ks.SpanBertPretrainer.from_preset(tmp_path / "preset"),
        keras.saving.load_model(tmp_path / "model.keras"),
    ]:
        assert loaded.objectives == model.objectives and loaded.nsp_weight == 0.7
        for n, value in predict(model, x).items():
            np.testing.assert_array_equal(predict(loaded, x)[n], value, err_msg=n)
        assert loaded.preprocessor.get_config().items() >= CHOICES[name].items()
        loaded.check_preprocessor()


def test_other_objectives_of_a_preset_take_what_is_there_and_say_what_starts_fresh(
    tmp_path, caplog
):
    model = build("mlm,sbo")
    model.save_to_preset(tmp_path)
    caplog.clear()
    other = ks.SpanBertPretrainer.from_preset(tmp_path, span_boundary=False, next_sentence=True)
    assert other.objectives == ("mlm", "nsp") and other.untrained_heads()
    (record,) = caplog.records
    message = record.getMessage()
    assert f"{tmp_path} has no weights for pooler and nsp_head, which start fresh" in message
    assert "its sbo_head left unused" in message
    assert other.preprocessor.next_sentence and not other.preprocessor.span_boundary
    assert other.preprocessor.masking_config == model.preprocessor.masking_config
    x, _, _ = arrays(model)
    np.testing.assert_array_equal(predict(other, x)["mlm"], predict(model, x)["mlm"])
    # A model of the preset's own objectives is told by the same arguments.
    caplog.clear()
    same = ks.SpanBertPretrainer.from_preset(tmp_path, span_boundary=True)
    assert not caplog.records
    np.testing.assert_array_equal(predict(same, x)["sbo"], predict(model, x)["sbo"])


def test_fill_without_sbo_head_is_of_mlm_alone():
    model = build("mlm,nsp")
    for candidate in model.fill("the [MASK] of", top_k=3)[0]:
        assert candidate["score"] == candidate["mlm"] and candidate["sbo"] is None
    scored = model.score("the [MASK] of", ["a"])[0]
    assert scored["score"] == scored["mlm"] and scored["sbo"] is None
    with pytest.raises(ValueError, match="without SBO head. Received: score='sbo'"):
        model.fill("the [MASK] of", score="sbo")


def test_cost_is_that_of_the_objectives():
    of = {name: build(name).head_flops(7) for name in CHOICES}
    H = 10
    assert of["mlm"] == 7 * (2 * H * H + 2 * H * V)
    assert of["mlm,sbo"] - of["mlm"] == 7 * (2 * H * (2 * H + 3) + 2 * H * H + 2 * H * V)
    assert of["mlm,nsp"] - of["mlm"] == 2 * H * H + 2 * H * 2
    assert of["mlm,sbo,nsp"] == of["mlm,sbo"] + of["mlm,nsp"] - of["mlm"]


def test_blocks_that_are_full_keep_their_padding_mask_as_pairs(tmp_path):
    from keras_spanbert.data.corpus import Corpus

    (tmp_path / "a.txt").write_text(" ".join(texts(60)))
    for name, has_mask in [("mlm,sbo", False), ("mlm,sbo,nsp", True)]:
        dataset = Corpus(str(tmp_path / "a.txt")).training_dataset(
            build(name).preprocessor, 4, seed=1, min_tokens=L - 2
        )
        assert ("padding_mask" in dataset.element_spec[0]) == has_mask


@pytest.mark.usefixtures("untraced")
def test_mistakes_of_objectives_say_the_rule():
    model = build("mlm,nsp")
    with pytest.raises(ValueError, match="batch_size=1 of 12 texts, which leaves one alone"):
        model.fit(texts(), batch_size=1)
    with pytest.raises(ValueError, match="batch_size=11 of 12 texts"):
        model.evaluate(texts(), batch_size=11)
    model.preprocessor = build("mlm").preprocessor
    message = "preprocessor's `next_sentence` must be the model's, True. Received: .*=False"
    with pytest.raises(ValueError, match=message):
        model.fit(texts())
