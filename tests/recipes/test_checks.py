"""A mistake in a flag ends train.py at once, in one line that names the flag as it was written."""

import pytest
from train_script import check_alone, check_mistake, in_process

from keras_spanbert.recipes import run
from keras_spanbert.recipes.flags import own_flags


@pytest.fixture
def mistake(tmp_path, monkeypatch, capsys):
    """Runs a task with a flag, and checks that it stops before a backend or data are loaded."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preset").mkdir()
    for name in ["a.txt", "b.txt", "train.json"]:
        (tmp_path / name).write_text("{}")

    def loaded():
        raise AssertionError("The mistake was not seen")

    monkeypatch.setattr(run, "_set_up", loaded)
    tasks = {
        "pretrain": ["--train_data=*.txt"],
        "prepare": ["--train_data=*.txt"],
        "question_answering": ["--preset=preset", "--train_data=train.json"],
        "relation_extraction": ["--preset=preset", "--train_data=train.json"],
    }

    def check(task, flags, *values):
        given = {flag.split("=")[0] for flag in flags}
        usual = [flag for flag in tasks[task] if flag.split("=")[0] not in given]
        with pytest.raises(SystemExit) as error:
            in_process(f"--task={task}", "--output=out", *usual, *flags)
        values = [flags[0].split("=")[0], *values]
        check_mistake(error.value.code, capsys.readouterr().err, *values)
        assert not (tmp_path / "out").exists()

    return check


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_every_number_must_be_finite(mistake, value):
    names = [flag.name for flag in own_flags() if flag.flag_type() == "float"]
    assert {"mask_rate", "sbo_weight", "initializer_range", "attention_dropout"} < set(names)
    for name in names:
        mistake("pretrain", [f"--{name}={value}"], value)


def test_every_integer_must_fit_a_machine(mistake):
    for name in [flag.name for flag in own_flags() if flag.flag_type() == "int"]:
        mistake("pretrain", [f"--{name}={2**32}"], 2**32)


@pytest.mark.parametrize(
    "flag, values",
    [
        ("--dropout=1", ["in [0, 1)"]),
        ("--attention_dropout=1", ["in [0, 1)"]),
        ("--attention_dropout=-0.1", []),
        ("--beta_2=1", ["in [0, 1)"]),
        ("--epsilon=0", ["above 0"]),
        ("--initializer_range=0", ["above 0"]),
        ("--mask_rate=0", ["in (0, 1]"]),
        ("--mask_rate=1.5", ["in (0, 1]"]),
        ("--held_out=1", ["in [0, 1)"]),
        ("--held_out=0", ["above 0 without --eval_data"]),
        ("--sbo_weight=-1", []),
        ("--sequence_length=2", ["at least 3"]),
        ("--vocabulary_size=20", ["at least 100"]),
        ("--vocabulary=no/such", ["a file"]),
        ("--dtype=no_such", ["mixed_bfloat16"]),
        ("--dtype=int8", ["mixed_bfloat16"]),
        ("--warmup_steps=3501", ["at most the 3,500 steps"]),
        ("--gradient_accumulation=3501", ["at most the 3,500 steps"]),
        ("--steps_per_execution=3501", ["divide 3500 steps"]),
        ("--train_data=no/such", ["no file matches"]),
        ("--eval_data=no/such/*", ["no file matches"]),
        ("--predict_data=train.json", ["--task=pretrain takes no"]),
        ("--predictions=answers.json", ["--task=pretrain takes no"]),
        ("--preset=no/such", ["nothing there"]),
    ],
)
def test_mistake_in_a_value_names_the_flag_and_the_value(mistake, flag, values):
    mistake("pretrain", [flag], flag.split("=")[1], *values)


@pytest.mark.parametrize(
    "task, flags, values",
    [
        ("pretrain", ["--warmup_steps=20", "--steps=10"], ["at most the 10 steps"]),
        ("pretrain", ["--steps_per_execution=4", "--steps=8", "--eval_every=6"], ["divide"]),
        ("pretrain", ["--steps=1", "--epochs=1"], ["--epochs=1", "exclude"]),
        ("prepare", ["--eval_data=a.txt"], ["--task=prepare takes no"]),
        ("prepare", ["--predictions=answers.json"], ["--task=prepare takes no"]),
        ("prepare", ["--shards=0"], ["0"]),
        ("question_answering", ["--doc_stride=400"], ["--sequence_length=384", "doc_stride=400"]),
        (
            "question_answering",
            ["--max_question_length=20", "--doc_stride=8", "--sequence_length=30"],
            ["--sequence_length=30", "--doc_stride=8"],
        ),
        ("question_answering", ["--max_answer_length=0"], ["0"]),
        ("question_answering", ["--dropout=0.1"], ["for new models", "--preset=preset"]),
        ("question_answering", ["--predict_data=train.json"], ["--predictions"]),
        (
            "question_answering",
            ["--predict_data=train.json,b.txt"],
            ["Received: --predict_data=train.json,b.txt, no --predictions"],
        ),
        ("question_answering", ["--train_data=train.json", "--seeds=2"], [", no --eval_data"]),
        (
            "relation_extraction",
            ["--subject_columns=who_start"],
            ["two columns", "Received: --subject_columns=who_start\n"],
        ),
    ],
)
def test_mistake_of_flags_together_names_them(mistake, task, flags, values):
    mistake(task, flags, *values)


def test_missing_beam_is_told_before_text_is_read(mistake, monkeypatch):
    from keras_spanbert.recipes import prepare

    monkeypatch.setattr(prepare.importlib.util, "find_spec", lambda name: None)
    mistake("prepare", ["--beam_runner=DirectRunner"], "DirectRunner", "no package apache_beam")


@pytest.mark.parametrize(
    "flags",
    [
        ["--mask_rate=1", "--held_out=0.99", "--sbo_weight=0", "--clip_norm=0"],
        ["--dropout=0", "--beta_2=0", "--learning_rate=0", "--weight_decay=0"],
        ["--warmup_steps=10", "--steps=10", "--gradient_accumulation=10"],
        ["--steps_per_execution=5", "--steps=10", "--eval_every=100"],
        ["--epochs=1", "--warmup_steps=4000", "--seed=4294967295"],  # The steps are not known yet.
        ["--held_out=0", "--eval_data=b.txt"],
    ],
)
def test_values_at_their_bounds_are_taken(tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    for name in ["a.txt", "b.txt"]:
        (tmp_path / name).write_text("text")
    monkeypatch.delenv("KERAS_BACKEND", raising=False)  # PyTorch takes a step a call.
    check_alone("--train_data=a.txt", "--output=out", *flags)


@pytest.mark.parametrize(
    "task, flag, of_task",
    [
        ("question_answering", "--html=page.html", "coreference"),
        ("question_answering", "--mask_rate=0.3", "pretrain or prepare"),
        ("pretrain", "--benchmark=rte", "classification or relation_extraction"),
        ("prepare", "--doc_stride=8", "question_answering"),
    ],
)
def test_a_flag_of_another_task_is_told(mistake, task, flag, of_task):
    mistake(task, [flag], f"is of --task={of_task}", f"--task={task}")
