"""Runs of `train.py --task=relation_extraction`."""

import pytest
from small_runs import start
from tiny_extractor import examples
from train_script import run_in_process

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.data.semeval2010 import RELATIONS
from keras_spanbert.data.tacred import read
from keras_spanbert.recipes import relation_extraction
from keras_spanbert.recipes.flags import FLAGS


def test_types_of_the_evaluation_set_come_first_like_in_the_released_script(folder, capsys):
    _, flags = start("relation_extraction", folder)
    files.write_json("dev.json", examples(4, seed=6))  # Their types have another order.
    run_in_process(*flags, "--eval_data=dev.json", "--output=run", "--steps=1")
    assert "Symbols for 4 types" in capsys.readouterr().out
    model = ks.SpanBertRelationExtractor.from_preset("run")
    wanted = ks.SpanBertRelationExtractorPreprocessor(model.preprocessor.tokenizer, 16)
    for name in ["dev.json", "rows.json"]:
        wanted.adapt(read(name))
    assert model.preprocessor.symbols == wanted.symbols


@pytest.mark.parametrize("mode", [None, "text_ner"])
def test_relations_and_mode_of_semeval_which_has_no_types(flags, folder, capsys, mode):
    FLAGS(["train.py", *start("relation_extraction", folder)[1]])
    if mode:
        flags(feature_mode=mode)
    rows = [{"relation": name, "subj_type": None, "obj_type": None} for name in RELATIONS[:2]]
    found = relation_extraction.model_arguments(rows)
    assert found == {"relations": list(RELATIONS), "has_types": False}
    out = capsys.readouterr().out
    assert "19 relations: Other, " in out and "Label for no relation: Other" in out
    model = relation_extraction.build(**found)
    assert model.best_score == "macro_f1"
    # The default mode of presets needs types.
    assert model.preprocessor.mode == FLAGS.feature_mode == (mode or "text")
