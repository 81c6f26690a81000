"""Values that recipes derive from flags and data."""

import inspect
import types
from fractions import Fraction

import keras
import numpy as np
import pytest
import tiny_classifier
from small_runs import start
from train_script import StoppedError, check_fails, run_in_process, stop

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.data.questions import Examples
from keras_spanbert.distribution import Distribution
from keras_spanbert.recipes import (
    classification,
    coreference,
    corpora,
    fine_tuning,
    fit,
    pretrain,
    question_answering,
)
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.recipe import find_recipe
from keras_spanbert.tasks import model_class

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c".split()


def recorder(task, method, result):
    """Returns an object with a method of a task's model, and a dict that gets its arguments."""
    signature, found = inspect.signature(getattr(model_class(task), method)), {}

    def call(*args, **kwargs):
        found.update(signature.bind(None, *args, **kwargs).arguments)
        return result

    return types.SimpleNamespace(**{method: call}), found


def test_defaults_of_the_tasks():
    expected = {
        "classification": (3, 2e-5, 32, 1e-8),
        "coreference": (20, 2e-5, 1, 1e-6),
        "multiple_choice": (3, 2e-5, 16, 1e-8),
        "question_answering": (2, 2e-5, 32, 1e-8),
        "relation_extraction": (10, 2e-5, 32, 1e-8),
        "token_classification": (3, 5e-5, 16, 1e-8),
    }
    for task, values in expected.items():
        recipe, names = find_recipe(task), ["batch_size", "epsilon", "beta_2"]
        found = recipe.epochs, recipe.learning_rate, *(recipe.defaults[name] for name in names)
        assert found == (*values, 0.999), task


@pytest.mark.parametrize("is_coreference", [False, True])
def test_optimizer_has_the_values_of_the_flags(flags, is_coreference):
    values = {"weight_decay": 0.2, "beta_2": 0.9, "epsilon": 1e-3, "clip_norm": 0.5}
    flags(**values, learning_rate=0.1, warmup_steps=2, gradient_accumulation=3)
    flags(head_learning_rate=0.2)
    resolver = types.SimpleNamespace(head_names=lambda: ["head"])
    settings = types.SimpleNamespace(
        optimizer=coreference.optimizer if is_coreference else None, model=resolver
    )
    config = fit._optimizer(Distribution(), settings, 8).get_config()
    names = {"clip_norm": "global_clipnorm"}
    if is_coreference:
        names = {"weight_decay": "encoder_weight_decay"}
    assert {name: config[names.get(name, name)] for name in values} == values
    assert config["gradient_accumulation_steps"] == 3
    rate = keras.saving.deserialize_keras_object(config["learning_rate"])
    # The schedule counts batches, not updates.
    assert (rate.peak, rate.warmup_steps, rate.total_steps) == (0.1, 2, 8)
    if is_coreference:
        rate = keras.saving.deserialize_keras_object(config["head_learning_rate"])
        assert (rate.peak, rate.warmup_steps, rate.total_steps) == (0.2, 0, 8)


@pytest.mark.parametrize(
    "task, given, method, expected",
    [
        ("question_answering", {"max_answer_length": 7, "scores_by_character": True},
         "evaluate_squad", {"max_answer_length": 7, "by_character": True}),
        ("classification", {"selection_metric": "macro_f1"},
         "evaluate_texts", {"task": None, "selection_metric": "macro_f1"}),
        ("classification", {"dataset": "rte"}, "evaluate_texts", {"task": "rte"}),
        ("coreference", {"min_link_score": 0.5, "max_spans_in_memory": 7},
         "evaluate_clusters", {"min_link_score": 0.5, "max_spans_in_memory": 7}),
        ("token_classification", {}, "evaluate_entities", {}),
        ("relation_extraction", {}, "evaluate_relations", {}),
        ("multiple_choice", {}, "evaluate_choices", {}),
    ],
)  # fmt: skip
def test_evaluation_has_the_values_of_the_flags(flags, task, given, method, expected):
    flags(**given, batch_size=3)
    model, found = recorder(task, method, {"f1": 50.0})
    assert find_recipe(task).evaluate(model, ["rows"]) == {"f1": 50.0}
    wanted = {"self": None, "examples": ["rows"], "batch_size": 3, **expected}
    if task == "coreference":  # A batch has one document.
        wanted = {"documents": ["rows"], **expected}
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    "given, steps_per_epoch, steps, eval_every, warmup_steps",
    [
        ({}, 100, 300, 30, 30),  # A tenth each.
        ({"epochs": 2}, 100, 200, 20, 20),
        ({"epochs": 3}, Fraction(10, 4), 7, 1, 0),
        ({"epochs": 3}, Fraction(1, 4), 1, 1, 0),
        ({"steps": 50, "eval_every": 60, "warmup_steps": 0}, 100, 50, 50, 0),
    ],
)
def test_steps_follow_from_flags_and_data(
    flags, given, steps_per_epoch, steps, eval_every, warmup_steps
):
    flags(**given)
    settings = types.SimpleNamespace(
        steps_per_epoch=steps_per_epoch, steps=300, eval_every=None, learning_rate=0.1
    )
    assert fit._set_steps(settings) == (steps, eval_every)
    assert (FLAGS.warmup_steps, FLAGS.learning_rate) == (warmup_steps, 0.1)


def test_texts_are_resolved_with_the_values_of_the_flags(flags):
    flags(min_link_score=0.5, max_spans_in_memory=7, document_genre="nw")
    resolver, found = recorder("coreference", "resolve", [])
    coreference._predict_texts(resolver, [("a.txt", "She left.")])
    expected = {"min_link_score": 0.5, "max_spans_in_memory": 7, "genre": "nw", "scores": True}
    assert found == {"self": None, "texts": ["She left."], **expected}


@pytest.mark.parametrize(
    "task, names, row, expected",
    [
        ("classification", {"id_column": "1", "text_column": "2", "label_column": "3"},
         '5\t"the cat"\tgood', {"id": "5", "text": "the cat", "label": "good"}),
        ("token_classification", {"words_column": "2", "label_column": "3"},
         '5\t"the cat"\tO B-pet', {"words": ["the", "cat"], "tags": ["O", "B-pet"]}),
        ("relation_extraction",
         {"id_column": "1", "text_column": "2", "label_column": "3", "subject_columns": "4,5",
          "object_columns": "6,7", "subject_type_column": "8", "object_type_column": "9"},
         '5\t"Ann runs Acme"\thead\t0\t3\t9\t13\tPER\tORG',
         {"id": "5", "relation": "head", "subj_type": "PER", "obj_type": "ORG", "obj_start": 2}),
        ("multiple_choice",
         {"id_column": "1", "question_column": "2", "context_column": "3",
          "choice_columns": "4,5", "label_column": "6"},
         '5\t"the cat"\tstory\tred\tblue\t1',
         {"id": "5", "prompt": ("story", "the cat"), "choices": ["red", "blue"], "label": 1}),
    ],
)  # fmt: skip
def test_columns_of_tables_have_the_names_of_the_flags(flags, tmp_path, task, names, row, expected):
    header = "\t".join("123456789"[: 1 + row.count("\t")])
    (tmp_path / "a.tsv").write_text(f"{header}\n{row}\n")
    flags(**names, quoted_tsv=True)
    (example,) = find_recipe(task).read([str(tmp_path / "a.tsv")], "train_data", None)
    assert {name: example[name] for name in expected} == expected


@pytest.mark.parametrize(
    "task, dataset, name, answer, written",
    [
        ("classification", None, "a.csv", {"label": "good", "score": 0.5, "scores": {}},
         "id,label,score\n7,good,0.5\n"),
        ("classification", "sst-2", "a.tsv", {"label": "1"}, "index\tprediction\n7\t1\n"),
        ("multiple_choice", None, "a.tsv", {"choice": 1, "scores": [0.25, 0.75]},
         "id\tchoice\tscore\n7\t1\t0.75\n"),
        ("multiple_choice", "swag", "a.csv", {"choice": 1}, ",pred\n7,1\n"),
        ("relation_extraction", None, "a.jsonl", {"relation": "head", "score": 0.5},
         '{"id": "7", "relation": "head", "score": 0.5}\n'),
        ("relation_extraction", "semeval2010", "a.txt", {"relation": "Other"}, "7\tOther\n"),
    ],
)  # fmt: skip
def test_predictions_have_the_format_of_the_flags(
    flags, folder, task, dataset, name, answer, written
):
    flags(predictions=name, batch_size=3, **({"dataset": dataset} if dataset else {}))
    methods = {"classification": "classify", "multiple_choice": "choose"}
    model, found = recorder(task, methods.get(task, "extract"), [answer])
    model.is_regression = False
    find_recipe(task).predict(model, [{"id": "7", "choices": ["red", "blue"]}])
    assert (folder / name).read_text() == written
    assert found["batch_size"] == 3


def test_given_sizes_of_windows_replace_those_for_their_length(flags, tmp_path):
    _, typed = start("question_answering", tmp_path)
    sizes = ("--doc_stride=", "--max_question_length=", "--sequence_length=")
    typed = [flag for flag in typed if not flag.startswith(sizes)]
    FLAGS(["train.py", *typed, "--doc_stride=5", "--sequence_length=24"])
    preprocessor = fine_tuning.build_model().preprocessor
    assert preprocessor.doc_stride == FLAGS.doc_stride == 5
    assert preprocessor.max_question_length == FLAGS.max_question_length == 9  # 3/8 of 24.


def test_exports_are_numbered_after_the_last_one(flags, tmp_path, monkeypatch):
    for name in ["1", "9", "10", "notes"]:
        (tmp_path / name).mkdir()
    paths = []
    monkeypatch.setattr(fit, "export_saved_model", lambda model, path: paths.append(path))
    flags(export=tmp_path)
    fit.export(None)
    assert paths == [str(tmp_path / "11")]


def test_classes_that_are_numbers_are_in_the_order_of_their_values(flags):
    flags()
    examples = [{"label": label} for label in ["b", "10", "9", "a", "10"]]
    assert classification.model_arguments(examples)["class_names"] == ["9", "10", "a", "b"]
    names = [f"LABEL_{i}" for i in range(11)]  # As `transformers` names them.
    examples = [{"label": label} for label in sorted(names)]
    assert classification.model_arguments(examples)["class_names"] == names


def test_speed_counts_the_tokens_of_all_choices(tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "TrainingReport", stop)
    _, flags = start("multiple_choice", tmp_path)
    with pytest.raises(StoppedError) as error:
        run_in_process(*flags, "--sequence_length=16", "--steps=3", f"--output={tmp_path / 'run'}")
    _, total_steps, tokens_per_step, *_ = error.value.args
    # 4 questions with up to 4 choices of 16 tokens.
    assert (total_steps, tokens_per_step) == (3, 4 * 4 * 16)


def test_batch_size_that_was_lowered_must_fit_the_devices(tmp_path, monkeypatch, capsys):
    _, (*flags, _) = start("multiple_choice", tmp_path)  # Its 12 rows are fewer than 16.
    monkeypatch.setattr(ks, "distribute", lambda mode: Distribution(num_replicas=8))
    flags += ["--sequence_length=16", f"--output={tmp_path / 'run'}"]
    check_fails(capsys, flags, "multiple of the 8 replicas. Received: batch_size=12")


@pytest.mark.parametrize("by_length", [False, True])
def test_batches_are_random_unless_grouped(flags, by_length):
    flags(batch_size=4, sequence_length=24, seed=1, group_by_length=by_length)
    model = tiny_classifier.build()
    rows = tiny_classifier.examples(*tiny_classifier.rows(40))
    found = fine_tuning.stream(model, rows)
    expected = ks.Batches(model.preprocess(rows), 4, 1, cut=True, by_length=by_length)
    for step in range(10):
        np.testing.assert_equal(found.batch(step), expected.batch(step))


def test_corpus_has_the_values_of_the_flags(flags, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"She left.\nHe \xff left.\nIt rained.\nThey left.\n")
    flags(train_data=tmp_path / "a.txt", document_boundary="line", held_out=0.25)
    flags(encoding_errors="replace", cross_documents=True)
    corpus, evaluated = corpora.open_corpora(must_hold_out=True, has_vocabulary=True)
    assert corpus.num_documents == 4 and len(list(corpus.documents("held_out"))) == 1
    assert corpus.encoding_errors == "replace" and corpus.cross_documents is True
    assert evaluated is None


def test_new_model_has_the_values_of_the_flags(flags):
    flags(size="tiny", dropout=0.2, attention_dropout=0.3, sequence_length=12, rematerialize=True)
    model = pretrain._build_model(None, VOCABULARY)
    config = model.backbone.get_config()
    expected = {"dropout": 0.2, "attention_dropout": 0.3, "rematerialize": True}
    expected |= {"vocabulary_size": 8, "max_sequence_length": 12, "num_layers": 2}
    # 0.02, the value for 768 units, times the square root of 768 / 128.
    expected |= {"initializer_range": 0.049}
    assert {name: config[name] for name in expected} == expected
    assert FLAGS.neighbor_attention is True


def test_questions_are_answered_with_the_values_of_the_flags(flags, tmp_path):
    flags(max_answer_length=7, batch_size=3, predictions=tmp_path / "a.json")
    answers = [[{"answer": "b", "score": 0.75}, {"answer": "a", "score": 0.25}]]
    answerer, found = recorder("question_answering", "answer", answers)
    question_answering.predict(answerer, Examples(["1"], ["who"], ["a b"], None, None))
    expected = {"top_k": 20, "max_answer_length": 7, "batch_size": 3}
    assert {name: found[name] for name in expected} == expected
    assert files.read_json(tmp_path / "a.json") == {"1": "b"}


def make(**arguments):
    """Returns a model with such arguments, and the preprocessor of the flags."""
    backbone = ks.SpanBertBackbone(len(VOCABULARY), 1, 1, 4, 4, max_sequence_length=8)
    model = ks.SpanBertPretrainer(backbone, **arguments)
    return model, pretrain.new_preprocessor(ks.SpanBertTokenizer(VOCABULARY), model)


@pytest.mark.parametrize(
    ("given", "slots"),
    [
        ({"sequence_length": 512}, 80),  # Padded from 77.
        ({"sequence_length": 384}, 58),  # 64 would be 10% more.
        ({"sequence_length": 32}, 5),
        ({"sequence_length": 32, "pad_predictions_to": 4}, 8),
        ({"sequence_length": 512, "pad_predictions_to": 1}, 77),
    ],
)
def test_slots_are_a_multiple_of_8_if_few_are_empty(flags, given, slots):
    flags(**given)
    _, preprocessor = make()
    length = given["sequence_length"]
    assert preprocessor.masking.num_predictions(length) == slots
    assert slots % FLAGS.pad_predictions_to == 0  # As written to `run.json`.


@pytest.mark.parametrize(
    ("scheme", "lengths"),
    [
        ("span", {"geometric_p": 0.5, "max_span_words": 4}),
        ("random_span", {"max_span_words": 4}),
        ("whole_word", {}),
    ],
)
def test_preprocessor_has_the_values_of_the_flags(flags, scheme, lengths):
    values = {"sequence_length": 16, "mask_rate": 0.25, "seed": 7, "num_mask_copies": 3, **lengths}
    flags(**values, pad_predictions_to=4, masking_scheme=scheme, mask_replacement="token")
    config = make(max_span_tokens=9)[1].get_config()
    expected = {**values, "pad_predictions_to": 4, "max_span_tokens": 9}
    expected |= {"scheme": scheme, "replacement": "token"}
    assert {name: config[name] for name in expected} == expected


def test_model_has_the_weights_of_the_flags(flags):
    flags(objectives="mlm,sbo,nsp", sbo_weight=0.5, nsp_weight=0.25, batch_size=2)
    flags(sequence_length=8)
    model, preprocessor = make(next_sentence=True)
    assert preprocessor.span_boundary and preprocessor.next_sentence
    assert (model.sbo_weight, model.nsp_weight) == (0.5, 0.25)
