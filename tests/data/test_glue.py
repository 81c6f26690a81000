import collections
import gzip
import json
import re

import numpy as np
import pytest

from keras_spanbert.data import glue

RTE = "index\tsentence1\tsentence2\tlabel\n"


def write(folder, text, name="dev.tsv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


@pytest.mark.parametrize(
    "folder, task, split, rows, labels",
    [
        ("cola", "cola", "train", 8551, {"1": 6023, "0": 2528}),
        ("cola", "CoLA", "dev", 1043, {"1": 721, "0": 322}),
        ("cola", "cola", "test", 1063, {None: 1063}),
        ("sst2", "SST-2", "train", 67349, {"1": 37569, "0": 29780}),
        ("sst2", "sst2", "dev", 872, {"1": 444, "0": 428}),
        ("rte", "rte", "train", 2490, {"entailment": 1249, "not_entailment": 1241}),
        ("rte", "rte", "dev", 277, {"entailment": 146, "not_entailment": 131}),
        ("rte", "rte", "test", 3000, {None: 3000}),
        ("wnli", "wnli", "train", 635, {"1": 312, "0": 323}),
        ("wnli", "wnli", "dev", 71, {"1": 31, "0": 40}),
        ("wnli", "wnli", "test", 146, {None: 146}),
    ],
)
def test_published_numbers_of_rows(shared_data, folder, task, split, rows, labels):
    examples = glue.read(shared_data / "data" / folder, task, split)
    assert len(examples) == rows
    assert collections.Counter(example["label"] for example in examples) == labels
    assert len({example["id"] for example in examples}) == rows
    is_single = folder in ("cola", "sst2")
    assert all((example["text_pair"] is None) == is_single for example in examples)
    assert all(example["text"].strip() for example in examples)


def test_every_set_of_the_reference_is_read_as_the_released_code_does(shared_data):
    folder = shared_data / "reference" / "finetuning" / "classification"
    tasks = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["tasks"]
    compared = 0
    for task, content in tasks.items():
        regression = content["output"] == "regression"
        classes = glue.CLASSES[task]
        assert (list(classes) if classes else [None]) == content["labels"]
        for split, rows in content["sets"].items():
            examples = glue.read(folder / ("CoLA" if task == "cola" else task.upper()), task, split)
            assert len(examples) == len(rows)
            for example, row in zip(examples, rows):
                label = row["label"]
                if regression and label is not None:
                    label = float(label)
                assert example["text"] == row["text_a"]
                assert example["text_pair"] == row["text_b"]
                assert example["label"] == label
                compared += 1
    assert compared == 239


def test_diagnostic_set_is_a_task_too(shared_data, tmp_path):
    path = shared_data / "reference" / "finetuning" / "classification" / "MNLI"
    examples = glue.read(path, "ax", "test")
    assert examples == glue.read(path, "mnli", "ax")
    write(tmp_path, (path / "ax.tsv").read_bytes(), "diagnostic.tsv")
    assert glue.read(tmp_path, "AX", "test") == examples


def test_quotes_are_characters_and_line_ends_may_be_of_windows(tmp_path):
    text = "\ufeff" + RTE + '7\t"Yes", he said\t"No\tentailment\n\n8\tA\t\tnot_entailment\n'
    expected = [
        {"id": "7", "text": '"Yes", he said', "text_pair": '"No', "label": "entailment"},
        {"id": "8", "text": "A", "text_pair": "", "label": "not_entailment"},
    ]
    windows = text.replace("\n", "\r\n").encode()
    assert glue.read(write(tmp_path, windows), "rte", "dev") == expected
    packed = write(tmp_path, gzip.compress(windows), "dev.tsv.gz")
    assert glue.read([packed, packed], "rte", "dev") == expected * 2


def test_short_rows_of_qqp_are_counted_in_the_log(tmp_path, caplog):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    path = write(tmp_path, header + "1\t2\t3\tWhy\n4\t5\t6\tWhy?\tHow?\t1\n7\n")
    (example,) = glue.read(path, "qqp", "dev")
    assert example == {"id": "4", "text": "Why?", "text_pair": "How?", "label": "1"}
    (record,) = caplog.records
    assert f"Left out 2 rows of QQP with not enough columns, the first {path}, line 2" in (
        record.getMessage()
    )
    with pytest.raises(ValueError, match=r"line 2: a row must have as many cells.*Received: 4"):
        glue.read(path, "qqp", "dev", strict=True)


@pytest.mark.parametrize(
    "task, text, message",
    [
        ("rte", RTE + "1\ta\tb\n", "line 2: a row must have as many cells as the header, 4"),
        ("rte", RTE + "\n1\ta\tb\tc\tentailment\n", "line 3: .*Received: 5, "),
        ("rte", RTE + "1\ta\tb\tneutral\n", "label of rte must be one of entailment, .*'neutral'"),
        ("rte", RTE + "1\ta\tb\t\n", "label of rte must be .* Received: ''"),
        ("rte", "index\tsentence1\tsentence2\n", "line 1: .*Received: no label in "),
        ("rte", RTE.replace("index", "label") + "1\ta\tb\t0\n", "Received: no index in "),
        ("rte", "label\t" + RTE, "line 1: a column may stand once. Received: 'label' again"),
        ("rte", RTE, "must hold examples. Received: none"),
        ("rte", "", "a table must have a header. Received: an empty file"),
        ("cola", "gj04\t1\ta\n", r"line 1: a row of CoLA must have the 4 columns.*Received: 3"),
        ("cola", "gj04\t2\t\ta\n", "line 1: a label of cola must be one of 0, 1. Received: '2'"),
        ("mrpc", RTE, "line 1: the columns must include #1 String, #2 String, Quality."),
        (
            "sts-b",
            RTE.replace("label", "score") + "1\ta\tb\t5.1\n",
            "line 2: a label of sts-b must be a number from 0 to 5. Received: '5.1'",
        ),
        ("sts-b", RTE.replace("label", "score") + "1\ta\tb\tnan\n", "Received: 'nan'"),
        ("rte", RTE.encode() + b"1\ta\tb\xe9\tentailment\n", "line 2: text must be UTF-8."),
        ("rte", gzip.compress(RTE.encode())[:-9], "gzip file must be whole. Received: "),
    ],
)
def test_error_names_the_line_and_the_rule(tmp_path, task, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as error:
        glue.read(path, task, "dev")
    assert str(path) in str(error.value)


def test_unknown_task_split_and_folder_are_named(tmp_path):
    with pytest.raises(ValueError, match="`task` must be one of cola.*task='boolq'"):
        glue.read(tmp_path, "boolq", "dev")
    with pytest.raises(ValueError, match="one of train, dev_matched.*for mnli.*split='dev'"):
        glue.read(tmp_path, "mnli", "dev")
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path} must hold dev.tsv. Received: no")):
        glue.read(tmp_path, "rte", "dev")


# === Predictions ===


def test_predictions_are_written_as_the_site_takes_them(shared_data, tmp_path):
    examples = glue.read(shared_data / "data" / "rte", "rte", "test")
    path = tmp_path / glue.submission_name("rte")
    predictions = np.arange(len(examples)) % 2
    glue.write_predictions(path, "rte", examples, predictions)
    lines = path.read_text().splitlines()
    assert path.name == "RTE.tsv" and len(lines) == 3001
    assert lines[:3] == ["index\tprediction", "0\tentailment", "1\tnot_entailment"]
    names = ["entailment", "not_entailment"] * 1500
    glue.write_predictions(tmp_path / "names.tsv", "rte", examples, names)
    assert (tmp_path / "names.tsv").read_text().splitlines() == lines


def test_scores_are_written_with_six_decimals(tmp_path):
    examples = [{"id": "0"}, {"id": "1"}]
    glue.write_predictions(tmp_path / "a.tsv", "sts-b", examples, np.array([1 / 3, 5], "float32"))
    assert (tmp_path / "a.tsv").read_text() == "index\tprediction\n0\t0.333333\n1\t5.000000\n"


def test_names_of_files_to_submit():
    assert glue.submission_name("mnli", "test_matched") == "MNLI-m.tsv"
    assert glue.submission_name("mnli", "test_mismatched") == "MNLI-mm.tsv"
    assert glue.submission_name("mnli", "ax") == glue.submission_name("ax") == "AX.tsv"
    assert glue.submission_name("stsb") == "STS-B.tsv"
    with pytest.raises(ValueError, match="must be a test set. Received: split='dev'"):
        glue.submission_name("rte", "dev")


@pytest.mark.parametrize(
    "task, names, predictions, message",
    [
        ("rte", "ab", [0], "one for each example. Received: 1 for 2 examples"),
        ("rte", "aa", [0, 1], "An id may stand once. Received: 'a' again"),
        ("rte", "ab", [0, 2], "of entailment, not_entailment, or their indices. Received: 2"),
        ("rte", "ab", [0, "neutral"], "Received: 'neutral'"),
        ("sts-b", "ab", [0.5, float("nan")], "must be finite numbers. Received: nan"),
        ("sts-b", "ab", [0.5, "1"], "must be finite numbers. Received: '1'"),
    ],
)
def test_predictions_of_another_form_are_not_written(tmp_path, task, names, predictions, message):
    examples = [{"id": name} for name in names]
    with pytest.raises(ValueError, match=message):
        glue.write_predictions(tmp_path / "a.tsv", task, examples, predictions)
    assert not list(tmp_path.iterdir())
