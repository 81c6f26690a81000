import math
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest

import keras_spanbert as ks

WORDS = "the of and to in a is that for it with as was on be by at this from not".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##ing"]
V, L = len(VOCABULARY), 17
# Tracing takes several times as long as the few steps of tests on what a model is fed with.
IS_TENSORFLOW = keras.backend.backend() == "tensorflow"


def texts(count=20):
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, 12)) for _ in range(count)]


def build(seed=1, **kwargs):
    tokenizer = ks.SpanBertTokenizer(VOCABULARY)
    preprocessor = ks.SpanBertPretrainerPreprocessor(
        tokenizer, sequence_length=L, mask_rate=0.3, seed=seed
    )
    backbone = ks.SpanBertBackbone(V, 1, 2, 10, 14, dropout=0.0, max_sequence_length=L)
    return ks.SpanBertPretrainer(backbone, preprocessor, position_dim=3, **kwargs)


def arrays(model, seed=5):
    x, y, sample_weight = model.preprocessor(texts(), seed=seed)
    to_numpy = lambda d: {k: np.asarray(v) for k, v in d.items()}  # noqa: E731
    return to_numpy(x), to_numpy(y), to_numpy(sample_weight)


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def predict(model, x):
    return {k: keras.ops.convert_to_numpy(v) for k, v in model(x, training=False).items()}


def test_preprocessor_packs_and_masks():
    x, y, sample_weight = arrays(build())
    M = math.ceil(0.3 * L)
    assert {k: v.shape for k, v in x.items()} == {
        "token_ids": (20, L),
        "segment_ids": (20, L),
        "padding_mask": (20, L),
        "mask_positions": (20, M),
        "span_left": (20, M),
        "span_right": (20, M),
        "span_offsets": (20, M),
    }
    assert (x["token_ids"][:, 0] == 2).all() and (x["token_ids"][:, 13] == 3).all()
    np.testing.assert_array_equal(x["padding_mask"][0], [1] * 14 + [0] * 3)
    assert not x["segment_ids"].any()
    np.testing.assert_array_equal(y["mlm"], y["sbo"])
    assert sample_weight["mlm"].sum(axis=1).tolist() == [4.0] * 20  # ceil(0.3 * 12)
    assert (sample_weight["sbo"] <= sample_weight["mlm"]).all()


def test_preprocessor_is_the_same_in_tf_data():
    import tensorflow as tf

    model = build()
    eager = arrays(model)
    dataset = tf.data.Dataset.from_tensors(texts()).map(lambda t: model.preprocessor(t, seed=5))
    for ours, theirs in zip(eager, next(iter(dataset))):
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name].numpy(), err_msg=name)
            assert ours[name].dtype == theirs[name].numpy().dtype


@pytest.mark.usefixtures("untraced")
def test_loss_and_metrics_are_weighted_means_by_hand():
    model = build(sbo_weight=0.5)
    x, y, sample_weight = arrays(model)
    logits = predict(model, x)
    model.preprocessor = None
    result = model.evaluate(
        x, y, sample_weight=sample_weight, verbose=0, return_dict=True, batch_size=20
    )
    loss = 0.0
    for name, factor in [("mlm", 1.0), ("sbo", 0.5)]:
        nll = total = correct = 0.0
        for b in range(20):
            for m in range(y[name].shape[1]):
                weight, target = sample_weight[name][b, m], y[name][b, m]
                nll -= weight * log_softmax(logits[name][b, m].astype("float64"))[target]
                correct += weight * (logits[name][b, m].argmax() == target)
                total += weight
        assert 0 < total < y[name].size
        assert result[f"{name}_cross_entropy"] == pytest.approx(nll / total, abs=1e-5)
        assert result[f"{name}_accuracy"] == pytest.approx(correct / total, abs=1e-5)
        loss += factor * nll / total
    assert result["loss"] == pytest.approx(loss, abs=1e-5)


@pytest.mark.usefixtures("untraced")
def test_a_batch_without_masks_has_no_nan():
    model = build()
    x, y, sample_weight = arrays(model)
    empty = {name: np.zeros_like(w) for name, w in sample_weight.items()}
    model.preprocessor = None
    history = model.fit(x, y, sample_weight=empty, verbose=0)
    assert history.history["loss"] == [0.0]
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_both_heads_share_the_embedding_and_learn():
    model = build()
    shapes = [tuple(w.shape) for w in model.trainable_weights]
    assert shapes.count((V, 10)) == 1 and shapes.count((10, V)) == 0
    x, y, sample_weight = arrays(model)
    model.preprocessor = None
    model.compile(ks.AdamW(0.01))
    history = model.fit(x, y, sample_weight=sample_weight, epochs=40, verbose=0).history
    for name in ["mlm", "sbo"]:
        losses = history[f"{name}_cross_entropy"]
        assert losses[-1] < losses[0] - 0.3, name


def test_model_with_output_biases_of_the_unigram_distribution_starts_at_its_entropy():
    model = build()
    x, y, sample_weight = arrays(model)
    counts = np.bincount(y["mlm"][sample_weight["mlm"] > 0], minlength=V) + 0.1
    log_probabilities = np.log(counts / counts.sum())
    model.set_output_biases(log_probabilities)
    for name, logits in predict(model, x).items():
        weight = sample_weight[name]
        losses = -np.take_along_axis(log_softmax(logits), y[name][..., None], -1)[..., 0]
        entropy = -(weight * log_probabilities[y[name]]).sum() / weight.sum()
        assert (weight * losses).sum() / weight.sum() == pytest.approx(entropy, rel=0.02)
        assert abs(entropy - np.log(V)) > 0.05


@pytest.mark.once("torch")
def test_fit_on_strings_is_fixed_by_the_seed_and_fresh_each_epoch():
    import tensorflow as tf

    weights = build().get_weights()
    dataset = tf.data.Dataset.from_tensor_slices(texts(8)).batch(4)
    histories = []
    for x in (dataset, dataset, texts(8)):
        model = build(seed=3)
        model.set_weights(weights)
        model.compile(keras.optimizers.SGD(0.0))
        kwargs = {} if x is dataset else {"batch_size": 4}
        histories.append(model.fit(x, epochs=2, verbose=0, **kwargs).history["mlm_loss"])
    assert histories[0] == histories[1] == histories[2]
    assert histories[0][0] != histories[0][1]
    again = [model.evaluate(dataset, verbose=0) for _ in range(2)]
    assert again[0] == again[1]
    # Nor do masks come again where the model is compiled again, for a second phase.
    model.compile(keras.optimizers.SGD(0.0))
    more = model.fit(dataset, epochs=1, verbose=0).history["mlm_loss"]
    assert more[0] not in histories[0]


def test_fit_on_blocks_without_padding_takes_no_mask(tmp_path):
    import tensorflow as tf

    from keras_spanbert.data.corpus import Corpus

    (tmp_path / "a.txt").write_text(" ".join(texts(60)))
    losses = []
    weights = build().get_weights()
    for min_tokens in [L - 3, L - 2]:
        model = build(seed=3)
        model.set_weights(weights)
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=IS_TENSORFLOW)
        dataset = Corpus(str(tmp_path / "a.txt")).training_dataset(
            model.preprocessor, 4, seed=1, min_tokens=min_tokens
        )
        assert ("padding_mask" in dataset.element_spec[0]) == (min_tokens < L - 2)
        evaluation = tf.data.Dataset.from_tensors(arrays(model))
        fit = model.fit(
            dataset, steps_per_epoch=3, validation_data=evaluation, shuffle=False, verbose=0
        )
        losses.append([fit.history[name][0] for name in ["loss", "val_loss"]])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def same_everywhere(a, b):
    x, _, _ = arrays(a)
    for name, value in predict(a, x).items():
        np.testing.assert_array_equal(value, predict(b, x)[name], err_msg=name)


def compiled():
    model = build()
    model.compile(ks.AdamW(ks.LinearWarmupDecay(0.01, 2, 50)))
    return model


@pytest.fixture(scope="module")
def trained():
    """A model after 3 steps; tests leave it as it is."""
    model = compiled()
    model.fit(texts(), epochs=3, verbose=0)
    return model


@pytest.mark.usefixtures("untraced")
def test_keras_file_restores_heads_and_optimizer(trained, tmp_path):
    model = compiled()
    model.set_weights(trained.get_weights())
    model.optimizer.build(model.trainable_variables)
    for mine, theirs in zip(model.optimizer.variables, trained.optimizer.variables, strict=True):
        mine.assign(np.array(keras.ops.convert_to_numpy(theirs)))  # JAX would share the array.
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, ks.SpanBertPretrainer)
    same_everywhere(model, loaded)
    # Training goes on as if nothing had happened.
    x, y, sample_weight = arrays(model)
    for m in (model, loaded):
        m.preprocessor = None
        m.fit(x, y, sample_weight=sample_weight, verbose=0)
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations) == 4
    for a, b in zip(model.get_weights(), loaded.get_weights()):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_preset_restores_heads_and_preprocessor_without_the_optimizers_state(tmp_path):
    model = build()
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(7)
    model.save_to_preset(str(tmp_path / "preset"))
    loaded = ks.SpanBertPretrainer.from_preset(str(tmp_path / "preset"))
    same_everywhere(model, loaded)
    assert loaded.preprocessor.get_config() == {
        **model.preprocessor.get_config(),
        "tokenizer": loaded.preprocessor.get_config()["tokenizer"],
    }
    assert loaded.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    assert int(loaded.optimizer.iterations) == 0
    with h5py.File(tmp_path / "preset" / "task.weights.h5") as file:
        assert "optimizer" not in file


@pytest.mark.once
def test_preset_of_another_optimizer_loads_without_it(trained, tmp_path):
    trained.save_to_preset(str(tmp_path / "preset"))
    loaded = ks.SpanBertPretrainer.from_preset(str(tmp_path / "preset"))
    same_everywhere(trained, loaded)


def test_weights_file_restores_heads_and_optimizer(trained, tmp_path):
    trained.save_weights(tmp_path / "model.weights.h5")
    other = compiled()
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "model.weights.h5")
    same_everywhere(trained, other)
    for a, b in zip(trained.optimizer.variables, other.optimizer.variables, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (a, b)))


def test_fill_scores_candidates_with_both_heads():
    model = build()
    text = "the [MASK] [MASK] of it and [MASK] to"
    filled = model.fill(text, top_k=4)
    assert [len(blank) for blank in filled] == [4, 4]
    together = model.fill([text, "a [MASK]"], top_k=4)[0]
    for blank, same in zip(filled, together):
        assert [c["text"] for c in blank] == [c["text"] for c in same]
    # The second blank by hand: it is one token, at place 7 behind [CLS].
    ids = [2, 5, 4, 4, 6, 14, 7, 4, 8, 3]
    assert ids == [2, *[VOCABULARY.index(t) for t in text.split()], 3]
    x = {
        "token_ids": np.array([ids], "int32"),
        "segment_ids": np.zeros((1, 10), "int32"),
        "padding_mask": np.ones((1, 10), "int32"),
        "mask_positions": np.array([[7]], "int32"),
        "span_left": np.array([[6]], "int32"),
        "span_right": np.array([[8]], "int32"),
        "span_offsets": np.array([[0]], "int32"),
    }
    mlm, sbo = (log_softmax(predict(model, x)[name])[0, 0] for name in ["mlm", "sbo"])
    allowed = [i for i in range(V) if i not in (0, 2, 3, 4)]
    best = sorted(allowed, key=lambda i: -(mlm + sbo)[i])[:4]
    assert [c["token_ids"] for c in filled[1]] == [[i] for i in best]
    for candidate, i in zip(filled[1], best):
        assert candidate["mlm"] == pytest.approx(mlm[i], abs=1e-4)
        assert candidate["sbo"] == pytest.approx(sbo[i], abs=1e-4)
        assert candidate["score"] == pytest.approx(mlm[i] + sbo[i], abs=1e-4)
        assert candidate["text"] == VOCABULARY[i]
    by_mlm = model.fill(text, top_k=1, score="mlm")[1][0]
    assert by_mlm["token_ids"] == [max(allowed, key=lambda i: mlm[i])]
    assert by_mlm["score"] == by_mlm["mlm"]


@pytest.mark.once
def test_random_fillings_come_with_a_warning(caplog):
    model = build()
    model.set_output_biases(np.zeros(V))
    model.fill("the [MASK] of", top_k=1)
    assert "has not been trained: what its mlm_head and sbo_head gives is random" in caplog.text


@pytest.mark.once
def test_fill_ranks_whole_blanks():
    blank = build().fill("the [MASK] [MASK] of it", top_k=50)[0]
    scores = [c["score"] for c in blank]
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(c["token_ids"]) for c in blank}) == 50
    assert all(len(c["token_ids"]) == 2 for c in blank)


@pytest.mark.once
@pytest.mark.parametrize(
    "text, arguments, message",
    [
        ("no blank", {}, "0 masks"),
        ("the " * 20 + "[MASK]", {}, "21 tokens"),
        ("the [MASK]", {"top_k": 0}, "top_k=0"),
        ("the [MASK]", {"score": "nsp"}, "score='nsp'"),
        ("the [MASK]", {"top_k": "3"}, "`top_k` must be an integer. Received: top_k='3'"),
        ("the [MASK]", {"batch_size": None}, "an integer. Received: batch_size=None"),
        ("", {}, "0 masks and 0 tokens in ''"),
        (None, {}, "`texts` must be a list of strings. Received: texts=None"),
        (["the [MASK]", b"a"], {}, r"`texts` must be .* Received: texts\[1\]=b'a'"),
    ],
)
def test_fill_names_bad_input(text, arguments, message):
    with pytest.raises(ValueError, match=message):
        build().fill(text, **arguments)


@pytest.mark.once
def test_score_is_that_of_the_same_filling():
    model = build()
    texts = ["the [MASK] [MASK] of it and [MASK] to", "[MASK] in"]
    scored = model.score(texts, [["with as", "that"], ["by"]])
    assert [[c["text"] for c in blanks] for blanks in scored] == [["with as", "that"], ["by"]]
    assert scored[0][0]["token_ids"] == [VOCABULARY.index("with"), VOCABULARY.index("as")]
    filled = model.fill(texts, top_k=V * V)
    for candidates, blanks in zip(sum(filled, []), sum(scored, [])):
        (same,) = [c for c in candidates if c["token_ids"] == blanks["token_ids"]]
        assert blanks == {k: same[k] if k in ("text", "token_ids") else pytest.approx(same[k])
                          for k in same}  # fmt: skip
    alone = model.score(texts[1], ["by"])
    assert alone[0]["mlm"] == pytest.approx(scored[1][0]["mlm"], abs=1e-5)


@pytest.mark.once
@pytest.mark.parametrize(
    ("text", "fillings", "message"),
    [
        ("the [MASK]", ["with as"], r"\[1\] in 'the \[MASK\]'. Received: \['with as'\], of \[2\]"),
        ("the [MASK]", ["with", "as"], r"of \[1, 1\] tokens"),
        ("the [MASK]", "a", "must be a list of strings. Received: fillings='a', of type str"),
        (["the [MASK]"], [], "0 for 1 texts"),
        ("the end", ["a"], "0 masks"),
        ("the [MASK]", None, "`fillings` must be a list of strings. Received: fillings=None"),
        ("the [MASK]", [7], r"Received: fillings\[0\]=7, of type int"),
        (["the [MASK]"], None, "a list for each text. Received: None for 1 texts"),
    ],
)
def test_score_names_fillings_that_do_not_fit(text, fillings, message):
    with pytest.raises(ValueError, match=message):
        build().score(text, fillings)


@pytest.mark.once
def test_lone_surrogates_in_texts_and_fillings_count_as_the_replacement_character():
    model = build()
    clean, broken = (f"the{mark} [MASK] of it" for mark in ["\ufffd", "\ud800"])
    assert model.fill(broken) == model.fill(clean)
    assert model.score(broken, ["a\ud800"]) == model.score(clean, ["a"])
    assert model.fill([]) == []


@pytest.mark.once
def test_vocabulary_must_fit_the_embedding():
    backbone = ks.SpanBertBackbone(V - 1, 1, 1, 4, 4, max_sequence_length=L)
    preprocessor = build().preprocessor
    with pytest.raises(ValueError, match=f"{V} tokens"):
        ks.SpanBertPretrainer(backbone, preprocessor)


@pytest.mark.once
@pytest.mark.parametrize("arguments", [{"sequence_length": L + 1}, {"max_span_tokens": 16}])
def test_fit_names_a_preprocessor_that_exceeds_the_model(arguments):
    model = build()
    model.preprocessor = ks.SpanBertPretrainerPreprocessor(
        model.preprocessor.tokenizer, **{"sequence_length": L, **arguments}
    )
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        model.fit(texts(), verbose=0)


def test_a_users_script_gives_the_same_losses_on_every_backend():
    import tensorflow as tf

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS[:16]]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[:16], 40)) for _ in range(32)]
    pretrainer = ks.SpanBertPretrainer(
        ks.SpanBertBackbone(len(vocabulary), 2, 2, 16, 32, dropout=0.0, max_sequence_length=32),
        ks.SpanBertPretrainerPreprocessor(
            ks.SpanBertTokenizer(vocabulary), sequence_length=32, seed=1
        ),
    )
    shapes = [w.shape for w in pretrainer.get_weights()]
    pretrainer.set_weights([rng.normal(0, 0.1, shape) for shape in shapes])
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(8)
    history = pretrainer.fit(dataset, epochs=2, verbose=0).history
    # Those of TensorFlow and of PyTorch, which were equal to the last digit.
    np.testing.assert_allclose(history["loss"], [6.0842066, 6.0969267], atol=1e-3)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch minds what comes first")
def test_a_users_script_may_import_tensorflow_first():
    code = (
        "import tensorflow\nimport keras_spanbert as ks\n"
        "print(ks.SpanBertBackbone(7, 1, 1, 4, 4).count_params())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) > 0, done.stderr[-2000:]


@pytest.mark.once
def test_masked_dataset_is_taken_as_it_is_with_a_preprocessor_too():
    import tensorflow as tf

    losses = []
    for is_detached in [True, False]:
        keras.utils.set_random_seed(4)
        model = build()
        model.compile(run_eagerly=IS_TENSORFLOW)
        dataset = tf.data.Dataset.from_tensors(arrays(model)).repeat(3)
        if is_detached:
            model.preprocessor = None
        history = model.fit(dataset, validation_data=dataset, verbose=0).history
        x, y, sample_weight = arrays(build())
        evaluated = model.evaluate(x, y, sample_weight=sample_weight, verbose=0, return_dict=True)
        losses.append([history["loss"][0], history["val_loss"][0], evaluated["loss"]])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


def test_batches_of_arrays_are_trained_and_tested_on_one_by_one():
    model = build()
    batch = arrays(model)
    x, y, sample_weight = batch
    before = model.test_on_batch(*batch, return_dict=True)
    evaluated = model.evaluate(x, y, sample_weight=sample_weight, verbose=0, return_dict=True)
    np.testing.assert_allclose(before["loss"], evaluated["loss"], rtol=1e-5)
    for _ in range(20):
        model.train_on_batch(*batch)
    assert model.test_on_batch(*batch, return_dict=True)["loss"] < before["loss"]
    assert model.predict_on_batch(x)["mlm"].shape == (*y["mlm"].shape, V)
