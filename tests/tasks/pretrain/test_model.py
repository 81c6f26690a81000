import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_pretrainer
from comparisons import assert_close
from processes import run_python
from tiny_pretrainer import IS_TENSORFLOW, VOCABULARY, WORDS, V, build, log_softmax, predict, texts

import keras_spanbert as ks
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.tasks.pretrain.neighbors import attend_to_neighbors

L = 17


def arrays(model):
    return tiny_pretrainer.arrays(model, texts())


def test_preprocessor_packs_and_masks():
    x, y, sample_weight = arrays(build(L))
    assert (x["token_ids"][:, 0] == 2).all() and (x["token_ids"][:, 13] == 3).all()
    np.testing.assert_array_equal(x["padding_mask"], [[1] * 14 + [0] * 3] * 20)
    assert not x["segment_ids"].any()
    np.testing.assert_array_equal(y["mlm"], y["sbo"])
    assert sample_weight["mlm"].sum(axis=1).tolist() == [4.0] * 20  # ceil(0.3 * 12)
    assert (sample_weight["sbo"] <= sample_weight["mlm"]).all()


@pytest.mark.every_backend
@pytest.mark.usefixtures("untraced")
def test_batch_without_masks_has_no_nan():
    model = build(L)
    x, y, sample_weight = arrays(model)
    empty = {name: np.zeros_like(w) for name, w in sample_weight.items()}
    model.preprocessor = None
    history = model.fit(x, y, sample_weight=empty, verbose=0)
    assert history.history["loss"] == [0.0]
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_unigram_biases_start_at_the_unigram_entropy(caplog):
    model = build(L)
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
    model.fill("the [MASK] of", top_k=1)
    assert "has not been trained: the output of its mlm_head and sbo_head is random" in caplog.text


def test_masks_are_new_after_the_model_is_compiled_again():
    model = build(L)
    losses = []
    for _ in range(2):
        model.compile(keras.optimizers.SGD(0.0))
        losses += model.fit(texts(8), batch_size=4, epochs=2, verbose=0).history["mlm_loss"]
    assert len(set(losses)) == 4


def test_fit_on_full_blocks_needs_no_mask(tmp_path):
    (tmp_path / "a.txt").write_text(" ".join(texts(60)))
    weights = build(L).get_weights()
    losses = []
    corpus = Corpus(str(tmp_path / "a.txt"))
    for min_tokens in [L - 3, L - 2]:
        model = build(L, seed=3)
        model.set_weights(weights)
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=IS_TENSORFLOW)
        dataset = corpus.training_dataset(model.preprocessor, 4, seed=1, min_tokens=min_tokens)
        assert ("padding_mask" in dataset.element_spec[0]) == (min_tokens < L - 2)
        evaluation = tf.data.Dataset.from_tensors(arrays(model))
        fit = model.fit(
            dataset, steps_per_epoch=3, validation_data=evaluation, shuffle=False, verbose=0
        )
        losses.append([fit.history[name][0] for name in ["loss", "val_loss"]])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    # Pairs are shortened, so they keep it.
    model = build(L, objectives={"next_sentence": True})
    dataset = corpus.training_dataset(model.preprocessor, 4, seed=1, min_tokens=L - 2)
    assert "padding_mask" in dataset.element_spec[0]


@pytest.mark.torch_first
def test_fill_scores_candidates_with_both_heads():
    model = build(L)
    text = "the [MASK] [MASK] of it and [MASK] to"
    filled = model.fill(text, top_k=4)
    assert [len(blank) for blank in filled] == [4, 4]
    together = model.fill([text, "a [MASK]"], top_k=4)[0]
    for blank, same in zip(filled, together):
        assert [c["text"] for c in blank] == [c["text"] for c in same]
    # The second blank by hand: one token at position 7 after [CLS].
    ids = [2, 5, 4, 4, 6, 14, 7, 4, 8, 3]
    assert ids == [2, *[VOCABULARY.index(t) for t in text.split()], 3]
    x = {
        "token_ids": np.array([ids], "int32"), "segment_ids": np.zeros((1, 10), "int32"),
        "padding_mask": np.ones((1, 10), "int32"), "mask_positions": np.array([[7]], "int32"),
        "span_left": np.array([[6]], "int32"), "span_right": np.array([[8]], "int32"),
        "span_offsets": np.array([[0]], "int32"),
    }  # fmt: skip
    mlm, sbo = (log_softmax(predict(model, x)[name])[0, 0] for name in ["mlm", "sbo"])
    allowed = [i for i in range(V) if i not in (0, 2, 3, 4)]
    heads = {"score": mlm + sbo, "mlm": mlm, "sbo": sbo}
    expected = [
        {"text": VOCABULARY[i], "token_ids": [i], **{name: x[i] for name, x in heads.items()}}
        for i in sorted(allowed, key=lambda i: -heads["score"][i])[:4]
    ]
    assert_close(filled[1], expected, 1e-4)
    for name in ["mlm", "sbo"]:
        best = model.fill(text, top_k=1, score=name)[1][0]
        assert best["token_ids"] == [max(allowed, key=lambda i, of=heads[name]: of[i])]
        assert best["score"] == best[name]


def test_fill_ranks_whole_blanks_and_score_equals_it():
    blank = build(L).fill("the [MASK] [MASK] of it", top_k=50)[0]
    scores = [c["score"] for c in blank]
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(c["token_ids"]) for c in blank}) == 50
    assert all(len(c["token_ids"]) == 2 for c in blank)
    model = build(L)
    texts = ["the [MASK] [MASK] of it and [MASK] to", "[MASK] in"]
    scored = model.score(texts, [["with as", "that"], ["by"]])
    assert [[c["text"] for c in blanks] for blanks in scored] == [["with as", "that"], ["by"]]
    assert scored[0][0]["token_ids"] == [VOCABULARY.index("with"), VOCABULARY.index("as")]
    filled = model.fill(texts, top_k=V * V)
    for candidates, found in zip(sum(filled, []), sum(scored, [])):
        (same,) = [c for c in candidates if c["token_ids"] == found["token_ids"]]
        assert_close(found, same, rtol=1e-6)
    alone = model.score(texts[1], ["by"])
    assert alone[0]["mlm"] == pytest.approx(scored[1][0]["mlm"], abs=1e-5)


def test_tokens_of_a_blank_after_the_longest_span_have_no_sbo_score():
    model = build(L, max_span_tokens=2)
    fillings = ["with as that", "with as by", "with that by"]
    scored = model.score(["the [MASK] [MASK] [MASK] of"] * 3, [[filling] for filling in fillings])
    first, other_third, other_second = (blank["sbo"] for (blank,) in scored)
    assert first == pytest.approx(other_third, abs=1e-5)
    assert abs(first - other_second) > 1e-3


def test_preprocessor_that_does_not_fit_is_named():
    model = build(L)
    for arguments, message in [
        ({"max_span_tokens": 16}, "max_span_tokens=16"),
        ({"scheme": "entity"}, "`scheme='entity'` requires `span_marks`"),
    ]:
        tokenizer = model.preprocessor.tokenizer
        model.preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, L, **arguments)
        with pytest.raises(ValueError, match=message):
            model.fit(texts(), verbose=0)
    backbone = ks.SpanBertBackbone(V - 1, 1, 1, 4, 4, max_sequence_length=L)
    with pytest.raises(ValueError, match=f"{V} tokens"):
        ks.SpanBertPretrainer(backbone, model.preprocessor)


@pytest.mark.every_backend
def test_script_gives_the_same_losses_on_every_backend():
    vocabulary = VOCABULARY[:21]
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
    # Losses on TensorFlow and PyTorch, which were equal in all digits.
    np.testing.assert_allclose(history["loss"], [6.0842066, 6.0969267], atol=1e-3)


@pytest.mark.every_backend
@pytest.mark.long
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="specific to PyTorch")
def test_script_can_import_tensorflow_first():
    code = (
        "import tensorflow\nimport keras_spanbert as ks\n"
        "print(ks.SpanBertBackbone(7, 1, 1, 4, 4).count_params())"
    )
    assert int(run_python("-c", code)[0]) > 0


def test_each_head_starts_at_its_own_neighbor():
    backbone = ks.SpanBertBackbone(
        50, 2, 2, 128, 64, dropout=0.0, max_sequence_length=L, initializer_range=0.05
    )
    attend_to_neighbors(backbone)
    x = backbone.position_embedding(np.zeros((1, L, 128), "float32")) / 0.05
    found = []
    for layer in backbone.transformer_layers:
        attention = layer._self_attention_layer
        query, key = (
            keras.ops.convert_to_numpy(dense(x))[0]
            for dense in [attention.query_dense, attention.key_dense]
        )  # [L, N, D]
        for scores in np.einsum("ind,jnd->nij", query, key):
            nearest = scores.argmax(-1) - np.arange(L)
            found.append(np.unique(nearest[2:-2]).tolist())  # The others have one on one side.
    assert found == [[-1], [1], [-2], [2]]
