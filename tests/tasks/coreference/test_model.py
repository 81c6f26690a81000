import keras
import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.tasks.coreference.batches import document_inputs, sizes_of

pytestmark = pytest.mark.usefixtures("untraced")


def assert_same(ours, theirs, atol=1e-5):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if name == "clusters":
            assert value == theirs[name]
        else:
            np.testing.assert_allclose(value, theirs[name], atol=atol, err_msg=name)


@pytest.mark.traced
def test_fit_learns_the_clusters_of_a_document(build, document):
    keras.utils.set_random_seed(0)
    short = {name: document[name][:4] for name in ["sentences", "speakers"]}
    short["clusters"] = [[(0, 0), (5, 5), (13, 13)], [(2, 3), (11, 11)], [(9, 9)]]
    arguments = {"dropout_rate": 0.0, "max_training_sentences": 3, "top_span_ratio": 0.7}
    model = build(singletons=True, **arguments)
    model.compile(ks.TwoRateAdam(3e-3, 1e-2, heads=model.head_names()))
    losses = model.fit([short], epochs=40, verbose=0).history["loss"]
    assert np.mean(losses[-5:]) < 0.4 * losses[0]
    found = model.score_document(short)
    spans = zip(found["top_span_starts"], found["top_span_ends"], found["top_span_mention_scores"])
    mentions = {(start, end) for start, end, score in spans if score > 0}
    assert mentions <= {span for cluster in found["clusters"] for span in cluster}
    gold = [tuple(m) for c in model.preprocessor.segment(short)["clusters"] for m in c]
    assert len(mentions & set(gold)) > len(mentions - set(gold))
    # OntoNotes has no clusters of one, and by default none is found.
    model.singletons = False
    several = [cluster for cluster in found["clusters"] if len(cluster) > 1]
    assert model.score_document(short)["clusters"] == several


def test_evaluate_gives_the_mean_of_the_documents_losses(build, document):
    model = build("overlap")
    short = {
        **document,
        "sentences": document["sentences"][:2],
        "speakers": document["speakers"][:2],
    }
    short["clusters"] = [[(0, 0), (5, 5)]]
    losses = [model.score_document(x)["loss"] for x in (document, short)]
    loss = model.evaluate([document, short], batch_size=2, verbose=0)
    assert loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_presets_give_the_same_scores(build, document, tmp_path):
    model = build("overlap", ffnn_depth=2, singletons=True)
    model.fit([document], verbose=0)
    expected = model.score_document(document)
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for again in [
        ks.SpanBertCoreferenceResolver.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "model.keras"),
    ]:
        assert again.max_span_width == 3 and again.genres == ("nw", "bc") and again.singletons
        assert_same(again.score_document(document), expected)


@pytest.mark.once
def test_encoder_of_another_tasks_preset(build, document, tokenizer, tmp_path):
    backbone = build().backbone
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


@pytest.mark.once
def test_segment_length_is_by_default_what_the_encoder_can_take(build, tokenizer, tmp_path):
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=23)
    ks.SpanBertPretrainer(build().backbone, preprocessor).save_to_preset(tmp_path)
    model = ks.SpanBertCoreferenceResolver.from_preset(tmp_path, ffnn_size=7)
    assert model.max_segment_len == model.preprocessor.sequence_length == 23


def test_model_with_every_switch_off_learns(build, document):
    switches = ["fine_grained", "use_prior", "use_metadata", "use_features", "model_heads"]
    switches.append("use_segment_distance")
    model = build(**dict.fromkeys(switches, False))
    model.compile(ks.TwoRateAdam(1e-3, 1e-2, heads=model.head_names()))
    before = model.evaluate([document], verbose=0)
    model.fit([document], epochs=5, verbose=0)
    assert model.evaluate([document], verbose=0) < before


def test_features_may_all_be_off_where_pairs_are_scored(build, document):
    off = {n: False for n in ["use_metadata", "use_features", "use_segment_distance"]}
    assert np.isfinite(build(**off).score_document(document)["loss"])


@pytest.mark.once
def test_documents_are_cut_at_another_place_in_each_epoch(build, document):
    model = build(max_training_sentences=2)
    batches = model.batches([document], max_segments=2, seed=7)
    begins = []
    for epoch in range(12):
        x, y = batches.document(0, epoch)
        again, _ = batches.document(0, epoch)
        np.testing.assert_array_equal(x["token_ids"], again["token_ids"])
        assert x["token_ids"].shape[1] == 2
        begins.append(x["token_ids"][0, 0].tobytes() + x["token_ids"][0, 1].tobytes())
    assert len(set(begins)) > 1
    num_segments = len(model.preprocessor.tensors(document)["input_ids"])
    assert num_segments > 2
    whole, _ = model.batches([document]).document(0, 0)
    assert whole["token_ids"].shape[1] >= num_segments


@pytest.mark.once
def test_few_shapes_hold_many_documents(build, document):
    model = build()
    settings = model.batches([document]).settings
    shapes, sizes = set(), set()
    for n in range(4, 13):
        part = {"sentences": document["sentences"][:n]}
        inputs, _ = document_inputs(model.preprocessor.tensors(part), settings)
        needed = len(inputs["token_places"]), len(inputs["starts"])
        found = sizes_of(inputs, settings)
        assert needed[0] <= found.tokens <= 1.25 * needed[0] + settings.max_span_width
        assert needed[1] <= found.spans <= 1.25 * needed[1]
        shapes.add(needed)
        sizes.add(found.spans)
    assert len(sizes) < len(shapes)


def test_text_without_words_or_mentions_has_no_clusters(build):
    model = build()
    for sentences in [[[]], [["ann"]]]:
        found = model.score_document({"sentences": sentences, "clusters": []})
        assert found["clusters"] == [] and found["loss"] == 0.0
        assert len(found["top_span_starts"]) <= 1


@pytest.mark.once
def test_random_weights_come_with_a_warning(build, document, caplog):
    model = build()
    model.score_document(document)
    assert "has not been trained" in caplog.text
    assert set(model.untrained_heads()) == set(model.head_names())


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"model_type": "both", "with_preprocessor": False}, "`model_type` must be one of"),
        ({"max_span_width": 0}, "`max_span_width` must be 1 or more"),
        ({"top_span_ratio": 0.0}, r"`top_span_ratio` must be in \(0, 1\]"),
        ({"dropout_rate": 1.0}, r"`dropout_rate` must be in \[0, 1\)"),
        ({"max_segment_len": 24, "with_preprocessor": False}, "at most the backbone's 23"),
        ({"max_segment_len": 18}, "`max_segment_len` must be the preprocessor's, 19"),
        ({"genres": (), "with_preprocessor": False}, "`genres` must name one or more"),
    ],
)
def test_mistake_in_an_argument_names_it(build, arguments, error):
    with pytest.raises(ValueError, match=error):
        build(**arguments)


@pytest.mark.once
def test_documents_need_a_preprocessor(build, document):
    with pytest.raises(ValueError, match="Strings need a preprocessor"):
        build(with_preprocessor=False).score_document(document)


@pytest.mark.once
def test_clusters_count_the_units_of_their_documents(build, document):
    keras.utils.set_random_seed(1)
    model = build(top_span_ratio=0.7)
    in_words, segmented = document, model.preprocessor.segment(document)
    (of_words,) = model.predict_clusters(iter([in_words]))
    (of_subtokens,) = model.predict_clusters([segmented])
    found = model.score_document(segmented)["clusters"]
    assert sorted(map(sorted, of_subtokens)) == sorted(sorted(map(list, c)) for c in found) != []
    tokens = [token for segment in segmented["sentences"] for token in segment]
    words = [
        None if token.startswith("[") else word
        for token, word in zip(tokens, segmented["subtoken_map"])
    ]
    spans = [words[start : end + 1] for cluster in of_subtokens for start, end in cluster]
    spans = [[word for word in span if word is not None] for span in spans]
    mentions = {tuple(mention) for cluster in of_words for mention in cluster}
    assert mentions and mentions <= {(span[0], span[-1]) for span in spans if span}
    gold = [segmented["clusters"]]
    scores = ks.metrics.coreference(gold, [found])
    scored = model.evaluate_clusters(iter([segmented]))
    assert scored["muc_f1"] == pytest.approx(scores["muc"]["f1"])
    assert scored["average_f1"] == pytest.approx(scored["average_f1_without_singletons"])


@pytest.mark.once
def test_validation_data_may_be_a_list_of_documents(build, document):
    model = build()
    short = {**document, "sentences": document["sentences"][:4]}
    short = {**short, "speakers": document["speakers"][:4], "clusters": [[(0, 0), (5, 5)]]}
    history = model.fit([short], validation_data=[short, short], verbose=0).history
    assert np.isfinite(history["val_loss"][0])


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments", [{"ffnn_size": 5}, {"max_span_width": 2}, {"genres": ("aa",)}, {"coref_depth": 1}]
)
def test_argument_that_the_presets_weights_do_not_have_is_told(build, arguments, tmp_path):
    build().save_to_preset(tmp_path)
    (name,) = arguments
    with pytest.raises(ValueError, match=f"`{name}` must be that of the weights"):
        ks.SpanBertCoreferenceResolver.from_preset(tmp_path, **arguments)


@pytest.mark.once
@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.fit(["ann left ."]),
        lambda model: model.score_document("ann left ."),
        lambda model: model.predict_clusters(["ann"]),
    ],
)
def test_what_is_no_document_is_named(build, call):
    with pytest.raises(ValueError, match="must be a dict with `sentences`. Received: 'ann"):
        call(build())
