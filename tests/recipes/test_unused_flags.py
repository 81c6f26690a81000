"""Each flag of train.py is read in a run, or refused if it is given."""

import json
import re
import shutil

import pytest
import task_files
from absl import flags
from absl.testing import flagsaver
from train_script import check_flags_only, run_in_process

from keras_spanbert.recipes import checks, fit, run
from keras_spanbert.recipes.flags import own_flags
from keras_spanbert.recipes.recipe import NAMES

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

SHORT = ["--steps=1", "--batch_size=2"]
SMALL = [*SHORT, "--eval_steps=1", "--sequence_length=16", "--min_block_tokens=4"]
TEXTS = "--train_data=texts/*.txt"
CELLS = ["--text_column=text", "--label_column=label", "--id_column=text"]
PEOPLE = [
    "--text_column=sentence", "--subject_columns=who_start,who_end",
    "--object_columns=what_start,what_end",
]  # fmt: skip
MENTIONS = ["--max_spans_in_memory=100", "--document_genre=nw", "--encoding_errors=replace"]
# Runs by task: the preset, and flags that have an effect.
RUNS = {
    "pretrain": [
        (None, [TEXTS, *SMALL, "--vocabulary_size=200", "--held_out=0.2", "--size=mini"]),
        (None, ["--train_data=lines.jsonl", *SMALL, "--vocabulary=vocab.txt", "--cross_documents"]),
        (None, [TEXTS, "--eval_data=held_out/*.txt", *SMALL, "--document_boundary=line"]),
        (None, ["--train_data=prepared", *SMALL, "--damaged_shards=skip", "--dropout=0.2"]),
        ("mine", ["--train_data=prepared", *SMALL, "--eval_data=more/*.txt", "--mask_rate=0.2"]),
    ],
    "prepare": [
        (None, [TEXTS, "--vocabulary_size=200", "--lowercase", "--held_out=0", "--shards=1"]),
        ("mine", ["--train_data=lines.jsonl", "--encoding_errors=replace", "--cross_documents"]),
    ],
    "question_answering": [
        ("mine", ["--train_data=train-v1.1.json", *SHORT, "--doc_stride=20", "--strict_answers"]),
        ("mine", ["--train_data=dev-v1.1.json", "--eval_data=dev-v1.1.json", *SHORT]),
        ("answers", ["--eval_data=dev-v1.1.json", "--max_answer_length=5", "--batch_size=2"]),
        ("answers", ["--predict_data=dev-v1.1.json", "--predictions=a.json"]),
        ("answers", ["--predict_data=story.txt", "--question=who", "--encoding_errors=replace"]),
        ("answers", ["--export=served", "--max_answer_length=5"]),
    ],
    "classification": [
        ("mine", ["--train_data=reviews.csv", *SHORT, *CELLS, "--seed=1"]),
        ("mine", ["--train_data=RTE/train.tsv", "--dataset=rte", *SHORT, "--eval_every=1"]),
        ("mine", ["--train_data=tags.csv", "--multi_label", "--label_separator=|", *SHORT]),
        ("mine", ["--train_data=tags_dev.jsonl", "--multi_label", *SHORT]),
        ("classifier", ["--eval_data=reviews_dev.csv", "--selection_metric=macro_f1"]),
        ("classifier", ["--predict_data=reviews.csv", "--predictions=a.csv", *CELLS]),
        ("classifier", ["--export=served"]),
    ],
    "relation_extraction": [
        ("mine", ["--train_data=train.json", "--eval_data=dev.json", *SHORT]),
        ("mine", ["--train_data=train.json", "--dataset=tacred", "--feature_mode=text", *SHORT]),
        ("mine", ["--train_data=people.csv", "--negative_label=none", *PEOPLE, *SHORT]),
        ("relations", ["--eval_data=dev.json", "--dataset=tacred"]),
        ("relations", ["--predict_data=dev.json", "--predictions=a.csv"]),
        ("relations", ["--export=served"]),
    ],
    "multiple_choice": [
        ("mine", ["--train_data=quiz_train.csv", "--id_column=question", *SHORT]),
        ("mine", ["--train_data=codah/train.tsv", "--dataset=codah", *SHORT]),
        ("choices", ["--eval_data=quiz_dev.csv", "--choice_columns=choice0,choice1,choice2"]),
        ("choices", ["--predict_data=quiz_dev.csv", "--predictions=a.csv"]),
        ("choices", ["--export=served"]),
    ],
    "token_classification": [
        ("mine", ["--train_data=wnut17train.conll,words.jsonl", *SHORT, "--words_column=words"]),
        ("mine", ["--train_data=spans.jsonl", "--text_column=text", *SHORT, "--id_column=text"]),
        ("entities", ["--eval_data=words.jsonl", "--label_column=tags", "--batch_size=2"]),
        ("entities", ["--predict_data=spans.jsonl", "--predictions=a.jsonl", *CELLS[::2]]),
        ("entities", ["--predict_data=words.jsonl", "--predictions=a.conll"]),
        ("entities", ["--export=served"]),
    ],
    "coreference": [
        ("mine", ["--train_data=train.conll", "--ffnn_size=8", "--steps=1", "--batch_size=1"]),
        ("resolver", ["--train_data=train.conll", "--eval_data=dev.conll", "--steps=1"]),
        ("resolver", ["--eval_data=dev.conll", "--max_spans_in_memory=100"]),
        ("resolver", ["--predict_data=dev.conll", "--predictions=a.jsonlines"]),
        ("resolver", ["--predict_data=story.txt", "--html=a.html", *MENTIONS]),
        ("resolver", ["--export=served"]),
    ],
}
CASES = [
    pytest.param(task, preset, given, id=f"{task}-{i}")
    for task, runs in RUNS.items()
    for i, (preset, given) in enumerate(runs)
]
# Other errors that say when a flag applies.
REFUSED = (
    "`--{0}` must be (left out|given)|`--{0}` must be .* prepared corpus|--{0}.* needs? |"
    "--{0}.* (cannot both be|must be) given"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small files of all formats."""
    root = tmp_path_factory.mktemp("files") / "files"
    task_files.write_all(root)
    text = "Ann read the letter in the house. Then Ann wrote a long letter to Bob."
    rows = {
        "lines": [{"text": text}] * 8,
        "words": [{"words": ["Ann", "left"], "tags": ["B-person", "O"]}] * 4,
        "spans": [{"text": f"Ann {i}", "entities": [{"start": 0, "end": 3, "label": "person"}]}
                  for i in range(4)],
    }  # fmt: skip
    for name, lines in rows.items():
        (root / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    run_in_process(
        "--task=prepare", f"--train_data={root / 'texts'}/*.txt", f"--output={root / 'prepared'}",
        f"--vocabulary={root / 'vocab.txt'}", "--sequence_length=16", "--min_block_tokens=4",
    )  # fmt: skip
    return root


@pytest.fixture
def read_flags(monkeypatch):
    """The names of the flags that are read after the checks."""
    found, cls = set(), type(flags.FLAGS)
    checked, attribute, item = run.check_flags, cls.__getattr__, cls.__getitem__

    def check_flags(argv):
        chosen = checked(argv)
        found.clear()
        return chosen

    monkeypatch.setattr(run, "check_flags", check_flags)
    monkeypatch.setattr(cls, "__getattr__", lambda s, name: found.add(name) or attribute(s, name))
    monkeypatch.setattr(cls, "__getitem__", lambda s, name: found.add(name) or item(s, name))
    return found


def other_value(flag):
    """Returns a flag with a valid value that is not its default, as typed."""
    values = {"int": "3", "float": "0.5"}
    if flag.flag_type() == "string enum":
        return f"--{flag.name}={[x for x in flag.parser.enum_values if x != flag.default][-1]}"
    if flag.boolean:
        return f"--{'no' if flag.default else ''}{flag.name}"
    return f"--{flag.name}={values.get(flag.flag_type(), 'x,y')}"


def test_each_task_has_runs():
    assert set(RUNS) == set(NAMES)


@pytest.mark.long
@pytest.mark.once("torch")
@pytest.mark.parametrize(("task", "preset", "given"), CASES)
def test_each_flag_is_read_or_refused(
    files, tmp_path, monkeypatch, read_flags, task, preset, given
):
    shutil.copytree(files, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(fit, "export_saved_model", lambda *_, **__: None)
    given = [f"--task={task}", *([f"--preset=saved_models/{preset}"] if preset else []), *given]
    with flagsaver.flagsaver():
        run.run_recipe(run.parse_flags(["train.py", *given, "--output=out"]))
        read = set(read_flags)  # Before the flags are restored.
    names = {flag.split("=")[0].removeprefix("--") for flag in given}
    assert not names - read, "given without effect"
    monkeypatch.chdir(files)  # Without what the run wrote.
    for name, typed in [(f.name, other_value(f)) for f in own_flags() if f.name not in read]:
        with flagsaver.flagsaver():
            run.parse_flags(["train.py", *given, typed])
            is_refused = name in [unused for unused, _ in checks.unused_flags()]
        with pytest.raises(ValueError) as error:
            check_flags_only(*given, "--output=out", typed)
            raise AssertionError(f"--{name} is neither read nor refused: see `checks.Condition`")
        # Other checks come first, some of which also say when a flag applies.
        assert is_refused or re.search(REFUSED.format(name), str(error.value)), error.value
