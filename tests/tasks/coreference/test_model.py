import keras
import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.tasks.coreference.inference import (
    document_inputs,
    padded_sizes,
    score_in_chunks,
)

pytestmark = pytest.mark.usefixtures("untraced")


def assert_same(ours, theirs, atol=1e-5):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if name == "clusters":
            assert value == theirs[name]
        else:
            np.testing.assert_allclose(value, theirs[name], atol=atol, err_msg=name)


def first_sentences(document, number):
    rows = {name: document[name][:number] for name in ["sentences", "speakers"]}
    return {**document, **rows, "clusters": [[(0, 0), (5, 5)]]}


@pytest.mark.traced
def test_fit_learns_the_clusters_of_a_document(build, document):
    keras.utils.set_random_seed(0)
    short = first_sentences(document, 4)
    short["clusters"] = [[(0, 0), (5, 5), (13, 13)], [(2, 3), (11, 11)], [(9, 9)]]
    arguments = {"dropout_rate": 0.0, "max_training_sentences": 3, "top_span_ratio": 0.7}
    model = build(singletons=True, **arguments)
    model.compile(ks.TwoRateAdam(3e-3, 1e-2, heads=model.head_names()))
    losses = model.fit([short], epochs=60, verbose=0).history["loss"]
    assert np.mean(losses[-5:]) < 0.4 * losses[0]
    found = model.score_document(short)
    spans = zip(found["top_span_starts"], found["top_span_ends"], found["top_span_mention_scores"])
    mentions = {(start, end) for start, end, score in spans if score > 0}
    assert mentions <= {span for cluster in found["clusters"] for span in cluster}
    gold = [tuple(m) for c in model.preprocessor.segment(short)["clusters"] for m in c]
    assert len(mentions & set(gold)) > len(mentions - set(gold))
    # OntoNotes has no singletons, and by default they are removed.
    model.singletons = False
    several = [cluster for cluster in found["clusters"] if len(cluster) > 1]
    assert model.score_document(short)["clusters"] == several


def test_evaluate_gives_the_mean_loss_of_documents(build, document):
    model = build("overlap")
    short = first_sentences(document, 2)
    losses = [model.score_document(x)["loss"] for x in (document, short)]
    loss = model.evaluate([document, short], batch_size=2, verbose=0)
    assert loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_presets_give_the_same_scores(build, document, tmp_path):
    model = build("overlap", ffnn_depth=2, singletons=True)
    history = model.fit([document], validation_data=[document, document], verbose=0).history
    assert np.isfinite(history["val_loss"][0])
    expected = model.score_document(document)
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for again in [
        ks.SpanBertCoreferenceResolver.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "model.keras"),
    ]:
        assert again.max_span_width == 3 and again.genres == ("nw", "bc") and again.singletons
        assert_same(again.score_document(document), expected)


@pytest.mark.usefixtures("without_collections")
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.filterwarnings(r"ignore:[\\s\\S]*The use of `x.T`")
def test_quantized_heads_save_and_load(build, document, tmp_path):
    model = build("overlap", ffnn_depth=2)
    before = model.score_document(document)["candidate_mention_scores"]
    tensors = model.preprocessor.tensors(document)
    in_chunks = score_in_chunks(model, tensors, 11)["top_span_mention_scores"]
    matrices = {w.path for w in model.weights if w.path.endswith("kernel") and w.shape[-1] > 1}
    model.quantize("int8")
    floats = {w.path for w in model.weights if w.dtype != "int8"}
    assert len(matrices) > 10 and not matrices & floats
    expected = model.score_document(document)
    after = expected["candidate_mention_scores"]
    assert 0 < np.abs(after - before).max() < 0.1 * np.abs(before).max()
    found = score_in_chunks(model, tensors, 11)["top_span_mention_scores"]
    difference = np.abs(np.sort(found) - np.sort(in_chunks)).max()
    assert 0 < difference < 0.1 * np.abs(in_chunks).max()
    model.save_to_preset(tmp_path / "preset")
    loaded = ks.SpanBertCoreferenceResolver.from_preset(str(tmp_path / "preset"))
    assert_same(loaded.score_document(document), expected, atol=0)


@pytest.mark.once
def test_labels_and_weights_beside_documents_are_refused(build, document):
    for given in [{"y": [1]}, {"sample_weight": [1.0]}]:
        with pytest.raises(ValueError, match="None because documents include their `clusters`"):
            build().preprocess([document], **given)


@pytest.mark.once
def test_encoder_from_the_preset_of_another_task(build, document, tmp_path):
    model = build()
    backbone, tokenizer = model.backbone, model.preprocessor.tokenizer
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=23)
    ks.SpanBertPretrainer(backbone, preprocessor).save_to_preset(tmp_path)
    model = ks.SpanBertCoreferenceResolver.from_preset(
        tmp_path, max_segment_len=17, model_type="overlap", max_span_width=3, ffnn_size=7
    )
    assert model.preprocessor.sequence_length == 17
    assert model.preprocessor.model_type == "overlap"
    np.testing.assert_array_equal(*(
        keras.ops.convert_to_numpy(x.token_embedding.embeddings) for x in (backbone, model.backbone)
    ))  # fmt: skip
    assert model.score_document(document)["loss"] > 0.0
    # The default length of a segment is the encoder's maximum.
    model = ks.SpanBertCoreferenceResolver.from_preset(tmp_path, ffnn_size=7)
    assert model.max_segment_len == model.preprocessor.sequence_length == 23
    model.save_to_preset(tmp_path / "own")
    for name, value in [("ffnn_size", 5), ("genres", ("aa",))]:
        with pytest.raises(ValueError, match=f"`{name}` must be that of the weights"):
            ks.SpanBertCoreferenceResolver.from_preset(tmp_path / "own", **{name: value})


@pytest.mark.once
def test_models_without_features_score_documents(build, document):
    some = ["use_metadata", "use_features", "use_segment_distance"]
    for switches in [some, [*some, "fine_grained", "use_prior", "model_heads"]]:
        model = build(**dict.fromkeys(switches, False))
        assert np.isfinite(model.score_document(document)["loss"])


@pytest.mark.once
def test_many_documents_have_few_shapes(build, document):
    model = build()
    shapes, sizes = set(), set()
    for n in range(4, 13):
        part = {"sentences": document["sentences"][:n]}
        inputs = document_inputs(model.preprocessor.tensors(part), model)
        needed = len(inputs["token_places"]), len(inputs["starts"])
        found = padded_sizes([inputs], model)
        assert needed[0] <= found["token_places"] <= 1.25 * needed[0] + model.max_span_width
        assert needed[1] <= found["starts"] <= 1.25 * needed[1]
        shapes.add(needed)
        sizes.add(found["starts"])
    assert len(sizes) < len(shapes)


@pytest.mark.once
def test_clusters_use_the_units_of_their_documents(build, document, caplog):
    keras.utils.set_random_seed(1)
    model = build(top_span_ratio=0.7)
    segmented = model.preprocessor.segment(document)
    (of_words,) = model.predict_clusters(iter([document]))
    (of_subtokens,) = model.predict_clusters([segmented])
    found = model.score_document(segmented)["clusters"]
    assert sorted(map(sorted, of_subtokens)) == sorted(sorted(map(list, c)) for c in found) != []
    _, word_of = model.preprocessor.encode(document)
    spans = [word_of[start : end + 1] for cluster in of_subtokens for start, end in cluster]
    spans = [span[span >= 0] for span in spans]  # Without separators.
    mentions = {tuple(mention) for cluster in of_words for mention in cluster}
    assert mentions and mentions <= {(span[0], span[-1]) for span in spans if len(span)}
    gold = [segmented["clusters"]]
    scores = ks.metrics.coreference(gold, [found])
    scored = model.evaluate_clusters(iter([segmented]))
    assert scored["muc_f1"] == pytest.approx(scores["muc"]["f1"])
    assert scored["average_f1"] == pytest.approx(scored["average_f1_without_singletons"])
    assert "has not been trained" in caplog.text
