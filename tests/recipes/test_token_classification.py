"""Files that `train.py --task=token_classification` reads and writes."""

import json
from types import SimpleNamespace

from keras_spanbert import files
from keras_spanbert.recipes import token_classification as recipe

MODEL = SimpleNamespace(
    kinds=("person", "place"), is_of_entities=True, preprocess=lambda examples: None
)
TAGS = [["B-person", "O", "O"], ["B-place", "I-place"]]


def predict(examples, tags=TAGS, **model):
    """Writes --predictions of a model with these answers."""
    answers = {"predict_tags": lambda *_: tags, "is_of_entities": True, **model}
    recipe.predict(SimpleNamespace(**answers), examples)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_tagged_words_in_txt_files_are_recognized(flags, folder, capsys):
    (folder / "a.txt").write_text("annie\tB-person\nmet\tO\nbob\tO\n\nnew\tO\nyork\tO\n")
    flags(predict_data="a.txt", predictions="b.jsonl")
    predict(recipe.read(["a.txt"], "predict_data", MODEL))
    assert "Wrote the tags of 2 sentences" in capsys.readouterr().out
    words = [["annie", "met", "bob"], ["new", "york"]]
    assert read_lines(folder / "b.jsonl") == [{"words": w, "tags": t} for w, t in zip(words, TAGS)]


def test_column_of_words(flags, folder, caplog):
    rows = "1 annie B-person\n2 met O\n3 bob U-person\n\n1 new B-place\n2 york L-place\n"
    (folder / "a.CONLL").write_bytes(rows.replace("\n", "\r").encode())
    flags(words_column=1, predictions="b.CSV")
    predict(recipe.read(["a.CONLL"], "eval_data", MODEL))
    rows = [{"words": "annie met bob", "tags": "B-person O O"}]
    assert files.read_csv("b.CSV") == [*rows, {"words": "new york", "tags": "B-place I-place"}]
    assert "only counts" not in caplog.text
    flags(words_column=0)
    recipe.read(["a.CONLL"], "predict_data", MODEL)
    assert "a.CONLL: the column of words only counts 1, 2, 3" in caplog.text


def test_predicted_entities_of_lines_can_be_trained_on(flags, folder, capsys):
    (folder / "a.txt").write_text("annie met bob.\n\nold rome, new york\n")
    flags(predict_data="a.txt", predictions="found.jsonl")
    rows = recipe.read(["a.txt"], "predict_data", MODEL)
    assert [row["line"] for row in rows] == [1, 3]
    entities = [[], [{"text": "new york", "label": "place", "start": 10, "end": 18}]]
    predict(rows, tag=lambda texts, batch_size: entities)
    assert "Wrote 1 entity of 2 texts" in capsys.readouterr().out
    assert read_lines(folder / "found.jsonl") == [
        {**row, "entities": found} for row, found in zip(rows, entities)
    ]
    flags(text_column="text")
    for model in [None, MODEL]:
        examples = recipe.read(["found.jsonl"], "train_data", model)
        assert recipe.model_arguments(examples) == {"labels": ["O", "B-place", "I-place"]}


def test_other_labels(flags, folder, capsys):
    (folder / "a.txt").write_text("bob\tNN\nmet\tVB\n\nann\tNN\nlives\tVB\nin\tIN\n")
    flags(labels_are_entities=False, predictions="tags.txt")
    examples = recipe.read(["a.txt"], "train_data", None)
    assert recipe.model_arguments(examples) == {"labels": ["IN", "NN", "VB"]}
    assert "3 labels: IN, NN, VB" in capsys.readouterr().out
    predict(examples, [["NN", "IN"], ["NN", "VB", "IN"]], is_of_entities=False)
    written = "bob\tNN\tNN\nmet\tVB\tIN\n\nann\tNN\tNN\nlives\tVB\tVB\nin\tIN\tIN\n\n"
    assert (folder / "tags.txt").read_text() == written
