import pytest
from comparisons import assert_close

import keras_spanbert as ks
from keras_spanbert.checkpoints.__main__ import main
from keras_spanbert.models.source import open_checkpoint


@pytest.mark.torch_first
def test_released_folder_gives_arguments_from_tensors(reference):
    model = ks.SpanBertCoreferenceResolver.from_preset(
        reference.checkpoint("a"), vocabulary=str(reference.vocabulary), max_segment_len=128
    )
    expected = {**reference.arguments("independent", "a"), "genres": model.genres}
    for name in ["max_span_width", "ffnn_size", "ffnn_depth", "feature_size", "use_features"]:
        assert getattr(model, name) == expected[name], name
    assert model.max_training_sentences == 8
    same = reference.model("independent")
    assert_close(model.weights, same.weights)
    assert model.untrained_heads() == []


@pytest.mark.once
def test_optimizer_slots_are_ignored(reference, caplog):
    checkpoint = open_checkpoint(reference.checkpoint("a"))
    assert not [name for name in checkpoint.tensors if "dam" in name.rsplit(".", 1)[-1]]
    ks.SpanBertCoreferenceResolver.from_source(checkpoint)
    unused = {row.name for row in checkpoint.rows if row.status == "left unused"}
    assert {name for name in unused if not name.startswith("pooler")} == {
        "beta1_power", "beta2_power", "combo.bias", "combo.output_weights", "global_step",
    }  # fmt: skip
    assert "start from random weights" not in caplog.text


@pytest.mark.once
def test_checkpoints_and_arguments_that_do_not_fit_are_refused(reference, tmp_path):
    model = ks.checkpoints.from_coreference(reference.checkpoint("a"))
    assert model.preprocessor is None and model.max_segment_len == 384
    with pytest.raises(ValueError, match="`max_span_width` must be that of the weights, 10. Rec"):
        ks.checkpoints.from_coreference(reference.checkpoint("a"), max_span_width=9)
    with pytest.raises(ValueError, match="must be .* a Google BERT folder.*Received: nothing"):
        ks.checkpoints.from_coreference(tmp_path)
    ks.checkpoints.to_huggingface(model.backbone, tmp_path / "encoder")
    with pytest.raises(ValueError, match="must have the weights of a coreference model.*encoder"):
        ks.checkpoints.from_coreference(tmp_path / "encoder")
    with pytest.raises(ValueError, match="must be a fairseq .pt file or a tar.*encoder"):
        ks.checkpoints.from_fairseq(tmp_path / "encoder")
    reference.write(tmp_path, {"model": ""}, without="src_projection")
    with pytest.raises(ValueError, match="lacks the tensor src_projection.output_weights"):
        ks.checkpoints.from_coreference(tmp_path)


@pytest.mark.once
def test_command_converts_a_released_folder(reference, tmp_path, capsys):
    folder = reference.checkpoint("a")
    code = main([str(folder), str(tmp_path / "preset"), f"--vocabulary={reference.vocabulary}"])
    out = capsys.readouterr().out
    assert code == 0 and "mention_scores" in out and f"Wrote {tmp_path / 'preset'}" in out
    document = reference.documents("independent")[2]
    # The released settings, except those that tensors do not show.
    shown = {name: reference.config[name] for name in ["max_segment_len", "max_top_antecedents"]}
    again = ks.SpanBertCoreferenceResolver.from_preset(tmp_path / "preset", **shown)
    expected = reference.model("independent").score_document(document)
    assert again.score_document(document)["clusters"] == expected["clusters"]
