"""Files, labels and presets that do not fit end train.py with a one-line error that names them."""

import pytest
import small_runs
import tiny_answerer
import tiny_chooser
import tiny_classifier
import tiny_extractor
import tiny_tagger
from train_script import check_fails, save_encoder

from keras_spanbert import files

TEXTS, CHOICES, QA = "classification", "multiple_choice", "question_answering"
RELATIONS, WORDS = "relation_extraction", "token_classification"
FILES = {
    "one.csv": "text,label\nw0,a\nw1,a\n",
    "snli.csv": "text,label\nw0,neutral\nw1,-\n",
    "sst.tsv": "sentence\tlabel\nw0\t0\nw1\t1\n",
    "quiz.csv": "question,a,b,label\nit is,it,red,A\nit is,blue,and,B\n",
    "none.csv": "question,a,b,label\nit is,it,red,\n",
    "quiz.txt": "it is\n",
    "people.csv": "sentence,s0,s1,o0,o1,what\nann saw acme,0,3,8,12,none\n"
    "ann runs acme,0,3,9,13,head\nbob left ibex,0,3,9,13,former_head\n",
    "semeval.txt": '1\t"<e1>ann</e1> saw <e2>acme</e2>."\nOther\nComment:\n\n',
    "b_x.conll": "bob\tB-x\n",
    "plain.conll": "annie met bob.\n",
    "tagged/a.txt": "annie met.\n",
    "tagged/b.txt": "annie\tB-person\n",
    "story/blank.txt": " \n",
    "story/text.txt": "ann wrote it.",
    "other.jsonl": "",
    "pointer.csv": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
}
PEOPLE = [
    "--train_data=people.csv", "--text_column=sentence", "--label_column=what",
    "--subject_columns=s0,s1", "--object_columns=o0,o1",
]  # fmt: skip
AB = "--choice_columns=a,b"
# Task, name of its preset, flags, parts of the error.
MISTAKES = [
    (TEXTS, "encoder", ["--train_data=one.csv"], ["two or more labels", "only a"]),
    (TEXTS, "encoder", ["--train_data=one.csv", "--regression"], ["line 2", "finite number"]),
    (TEXTS, "encoder", ["--eval_data=one.csv"], ["give --train_data", "preset"]),
    (TEXTS, "encoder", ["--train_data=snli.csv", "--skip_label=-"], ["two or more labels"]),
    (TEXTS, "single", ["--eval_data=one.csv"], ["one.csv, line 2", "bad, good", "'a'"]),
    (TEXTS, "single", ["--eval_data=one.csv", "--regression"], ["with one output", "2 classes"]),
    (TEXTS, "single", ["--eval_data=one.csv", "--multi_label"], ["needs a multi-label preset"]),
    (TEXTS, "single", ["--dataset=sst-2", "--eval_data=sst.tsv"], ["of sst-2, 0, 1", "bad, good"]),
    (TEXTS, "multi", ["--eval_data=one.csv"], ["one.csv, line 2", "w0, w1"]),
    (TEXTS, "multi", ["--predict_data=one.csv", "--predictions=x.csv", "--label_separator=2"],
     ["--label_separator=2", "'w2'"]),
    (CHOICES, "encoder", ["--train_data=quiz.csv"], ["quiz.csv", "choice0"]),
    (CHOICES, "encoder", ["--train_data=quiz.csv", AB, "--label_column=right"], ["csv", "right"]),
    (CHOICES, "encoder", ["--train_data=none.csv", AB], ["none.csv, line 2", "must have a label"]),
    (CHOICES, "encoder", ["--train_data=quiz.txt", AB], ["quiz.txt", ".csv"]),
    (RELATIONS, "encoder", [*PEOPLE[:1], "--text_column=body"], ["people.csv, line 1", "no body"]),
    (RELATIONS, "encoder", ["--train_data=all.json,people.csv"], ["or give --dataset", "people"]),
    (RELATIONS, "encoder", [*PEOPLE, "--feature_mode=ner"], ["without --subject_type_column"]),
    (RELATIONS, "encoder", ["--train_data=semeval.txt", "--feature_mode=text_ner"],
     ["text with SemEval-2010 Task 8"]),
    (RELATIONS, "encoder", ["--train_data=part.json"], ["=ner needs", "=text needs no types"]),
    (RELATIONS, "encoder", ["--train_data=all.json", "--eval_data=odd.json"],
     ["odd.json, example 0", "'boss'"]),
    (RELATIONS, "encoder", [*PEOPLE, "--negative_label=nothing"],
     ["a relation of --train_data: former_head, head, none. Received: --negat"]),
    (RELATIONS, "preset", ["--eval_data=semeval.txt"], ["semeval.txt, id 1", "'Other'"]),
    (RELATIONS, "preset", ["--eval_data=dog.json"], ["dog.json, id 5-0", "`obj_type` 'DOG'"]),
    (WORDS, "preset", ["--eval_data=b_x.conll"], ["x.conll, line 1", "person, place", "B-x"]),
    (WORDS, "preset", ["--eval_data=plain.conll"], [".jsonl files with --text_column"]),
    (WORDS, "preset", ["--eval_data=dev.json"], ["dev.json", "must have a list of annotations"]),
    (WORDS, "preset", ["--predict_data=dev.json", "--predictions=b.jsonl"], ["a word per line"]),
    (WORDS, "preset", ["--predict_data=tagged/*", "--predictions=b.jsonl"], ["a.txt, line 1"]),
    (QA, "encoder", ["--predict_data=dev.json", "--question=who"], [".txt", "dev.json"]),
    (QA, "encoder", ["--train_data=one.csv"], ["must end in .json (SQuAD) or .jsonl", "one.csv"]),
    # The length is checked before the data.
    (TEXTS, "encoder", ["--train_data=quiz.txt", "--sequence_length=99"], ["the preset's 24"]),
    (TEXTS, "encoder", ["--train_data=pointer.csv"], ["pointer.csv, a pointer of Git LFS"]),
    (QA, "encoder", ["--predict_data=story/text.txt"], ["--question", "story/text.txt"]),
    (QA, "encoder", ["--train_data=dev.json", "--question=who"], ["--predict_data"]),
    (QA, "encoder", ["--predict_data=story/*", "--question= "],
     ["`--question` must be a question"]),
    (QA, "preset", ["--predict_data=story/*", "--question=who"], ["blank.txt", "must have words"]),
    (QA, "encoder", ["--export=answers", "--eval_data=dev.json"],
     ["trained head", "--train_data", "qa_outputs"]),
    (QA, "encoder", ["--train_data=dev.json,other.jsonl"], ["dev.json", "other.jsonl"]),
    (QA, "encoder", ["--train_data=dev.json", "--sequence_length=48"], ["_length", "24", "48"]),
    (QA, "encoder", ["--train_data=dev.json", "--batch_size=99999"], ["--batch_size", "99"]),
    (QA, "encoder", ["--train_data=misplaced.json", "--strict_answers"], ["question 0", "'bob'"]),
]  # fmt: skip
MODULES = {
    TEXTS: (tiny_classifier, ["--sequence_length=24"]),
    CHOICES: (tiny_chooser, ["--sequence_length=16"]),
    RELATIONS: (tiny_extractor, ["--sequence_length=16"]),
    WORDS: (tiny_tagger, ["--sequence_length=16"]),
    QA: (tiny_answerer, small_runs.SQUAD_SIZES[:3]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files, and presets in folders of their tasks."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    rows = tiny_extractor.examples(16, seed=5)
    files.write_json(folder / "all.json", rows)
    changes = {"odd": ("relation", "boss"), "part": ("obj_type", None), "dog": ("obj_type", "DOG")}
    for name, (key, value) in changes.items():
        files.write_json(folder / f"{name}.json", [{**row, key: value} for row in rows[:4]])
    small_runs.write_squad(folder / "dev.json", 4, seed=5)
    content = files.read_json(folder / "dev.json")
    question = content["data"][0]["paragraphs"][0]["qas"][0]
    question["answers"] = [{"text": "bob", "answer_start": 700}]
    files.write_json(folder / "misplaced.json", content)
    for task, (tiny, _) in MODULES.items():
        save_encoder(folder / task / "encoder", tiny.build().backbone, tiny.VOCABULARY)
        tiny.build().save_to_preset(folder / task / "preset")
    tiny_classifier.build().save_to_preset(folder / TEXTS / "single")
    tiny_classifier.build_multi_label().save_to_preset(folder / TEXTS / "multi")
    extractor = tiny_extractor.build("ner_text")
    extractor.preprocessor.adapt(rows)
    extractor.save_to_preset(folder / RELATIONS / "preset")
    return folder


@pytest.mark.once("torch")
@pytest.mark.parametrize("task, preset, flags, values", MISTAKES)
def test_mistakes_are_named(folder, capsys, caplog, monkeypatch, task, preset, flags, values):
    monkeypatch.chdir(folder)
    usual = [f"--task={task}", f"--preset={task}/{preset}", "--output=out", *MODULES[task][1]]
    check_fails(capsys, [*usual, *flags], *values)
    if task == CHOICES:  # Mistakes in the data are reported before a missing head.
        assert "random weights" not in caplog.text
    assert not (folder / "out").exists()
