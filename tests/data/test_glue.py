import json
import re

import pytest
from data_files import write

from keras_spanbert.data import glue

RTE = "index\tsentence1\tsentence2\tlabel\n"
STS_B = "index\tsentence1\tsentence2\tscore\n"


def test_reference_files_are_read_like_the_released_code(shared_data):
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
                label = float(label) if regression and label is not None else label
                texts = (row["text_a"], row["text_b"])
                assert (example["text"], example["text_pair"], example["label"]) == (*texts, label)
                compared += 1
    assert compared == 239


def test_diagnostic_set(shared_data, tmp_path):
    path = shared_data / "reference" / "finetuning" / "classification" / "MNLI"
    examples = glue.read(path, "ax", "test")
    assert examples == glue.read(path, "mnli", "ax")
    write(tmp_path / "diagnostic.tsv", (path / "ax.tsv").read_bytes())
    assert glue.read(tmp_path, "AX", "test") == examples


def test_quotes_are_characters_and_blanks_around_labels_are_removed(tmp_path):
    text = RTE + '7\t"Yes", he said\t"No\tentailment \n\n8\tA\t\tnot_entailment\n'
    expected = [
        {"id": "7", "text": '"Yes", he said', "text_pair": '"No', "label": "entailment"},
        {"id": "8", "text": "A", "text_pair": "", "label": "not_entailment"},
    ]
    path = write(tmp_path / "dev.tsv", text)
    assert glue.read([path, path], "rte", "dev") == expected * 2


def test_pairs_of_mnli_without_agreement_are_left_out(tmp_path, caplog):
    header = "index\tsentence1\tsentence2\tgold_label\n"
    path = write(tmp_path / "dev.tsv", header + "0\ta\tb\t-\n1\tc\td\tneutral\n")
    (example,) = glue.read(path, "mnli", "dev_matched")
    assert example == {"id": "1", "text": "c", "text_pair": "d", "label": "neutral"}
    assert "Left out 1 row of MNLI with the label -, on which the annotators" in caplog.text
    with pytest.raises(ValueError, match="line 2: a label of mnli must be one of.*'-'"):
        glue.read(path, "mnli", "dev_matched", strict=True)


def test_short_rows_of_qqp_are_logged(tmp_path, caplog):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    path = write(tmp_path / "dev.tsv", header + "1\t2\t3\tWhy\n4\t5\t6\tWhy?\tHow?\t1\n7\n")
    (example,) = glue.read(path, "qqp", "dev")
    assert example == {"id": "4", "text": "Why?", "text_pair": "How?", "label": "1"}
    (record,) = caplog.records
    assert f"Left out 2 rows of QQP with too few columns. The first is {path}, line 2" in (
        record.getMessage()
    )
    with pytest.raises(ValueError, match=r"line 2: a row must have 6 cells.*Received: 4"):
        glue.read(path, "qqp", "dev", strict=True)


@pytest.mark.parametrize(
    "task, text, message",
    [
        ("rte", RTE + "1\ta\tb\n", ", line 2: a row must have 4 cells .index, "),
        ("rte", RTE + "1\ta\tb\tneutral\n", ".* of rte must be one of entailment, .*'neutral'"),
        ("rte", "index\tsentence1\tsentence2\n", ", line 1: .*Received: no label in "),
        ("cola", "gj04\t1\ta\n", ", line 1: a row must have 4 cells .source, label.*: 3"),
        ("mrpc", RTE, ", line 1: the columns must include #1 String, #2 String, Quality."),
        ("sts-b", STS_B + "1\ta\tb\t5.1\n", ", line 2: .* a number from 0 to 5.*'5.1'"),
        ("sts-b", STS_B + "1\ta\tb\t0_4\n", ", line 2: .* a number from 0 to 5.*'0_4'"),
    ],
)  # fmt: skip
def test_errors_name_the_line(tmp_path, task, text, message):
    path = write(tmp_path / "dev.tsv", text)
    with pytest.raises(ValueError, match=f"{path}{message}"):
        glue.read(path, task, "dev")


def test_unknown_task_split_and_folder(tmp_path):
    with pytest.raises(ValueError, match="`task` must be one of cola.*task='boolq'"):
        glue.read(tmp_path, "boolq", "dev")
    with pytest.raises(ValueError, match="one of train, dev_matched.*for mnli.*split='dev'"):
        glue.read(tmp_path, "mnli", "dev")
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path} must contain dev.tsv")):
        glue.read(tmp_path, "rte", "dev")
