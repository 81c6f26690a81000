"""Small data and flags for runs of `train.py` of each task, for tests."""

import json

import keras
import tiny_answerer
import tiny_chooser
import tiny_classifier
import tiny_extractor
import tiny_tagger
from train_script import save_encoder

from keras_spanbert import files
from keras_spanbert.data import coreference

SQUAD_SIZES = [
    "--sequence_length=24", "--doc_stride=8", "--max_question_length=6", "--batch_size=16",
]  # fmt: skip


def classification(folder):
    rows = zip(*tiny_classifier.rows(12))
    path = folder / "rows.csv"
    files.write_csv(path, [{"text": text, "label": label} for text, label in rows])
    return path, tiny_classifier, ["--sequence_length=24"]


def relation_extraction(folder):
    path = folder / "rows.json"
    path.write_text(json.dumps(tiny_extractor.examples(12)))
    return path, tiny_extractor, ["--dataset=tacred", "--sequence_length=16"]


def multiple_choice(folder):
    rows = [
        {"question": x["prompt"], "choices": x["choices"], "label": x["label"]}
        for x in tiny_chooser.examples(12)
    ]
    files.write_json_lines(folder / "rows.jsonl", rows)
    return folder / "rows.jsonl", tiny_chooser, ["--choice_columns=choices"]


def token_classification(folder):
    rows = [{"words": x["words"], "labels": x["tags"]} for x in tiny_tagger.examples(12)]
    files.write_json_lines(folder / "rows.jsonl", rows)
    return folder / "rows.jsonl", tiny_tagger, ["--label_column=labels", "--sequence_length=16"]


def coreference_resolution(folder):
    document = {
        "part": "0",
        "sentences": [["w0", "w1", "w0", "w2"]] * 6,
        "speakers": [["-"] * 4] * 6,
    }
    clusters = [[[0, 0], [2, 2], [20, 20]]]
    documents = [{**document, "doc_key": f"nw/{i}_0", "clusters": clusters} for i in range(4)]
    coreference.write_conll(folder / "rows.conll", documents, [clusters] * 4)
    flags = [
        "--sequence_length=16", "--max_span_width=2", "--ffnn_size=8", "--coref_depth=1",
        "--head_learning_rate=1e-2", "--max_top_antecedents=6", "--max_training_segments=1",
        "--genres=nw",
    ]  # fmt: skip
    return folder / "rows.conll", tiny_classifier, flags


def write_squad(path, count, seed, unanswerable=0):
    """Writes contexts that mention a name, except the first ones, and questions that ask for it."""
    paragraphs = []
    for i, (question, context, answer) in enumerate(zip(*tiny_answerer.examples(count, seed=seed))):
        if i < unanswerable:
            context = context.replace(answer["text"], "it")
        qa = {"id": f"{seed}-{i}", "question": question, "answers": [answer][i < unanswerable :]}
        paragraphs.append({"context": context, "qas": [qa]})
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(content))
    return path


def question_answering(folder):
    return write_squad(folder / "data.json", 12, seed=1), tiny_answerer, SQUAD_SIZES


TASKS = {
    "classification": classification,
    "relation_extraction": relation_extraction,
    "multiple_choice": multiple_choice,
    "token_classification": token_classification,
    "coreference": coreference_resolution,
    "question_answering": question_answering,
}


def start(task, folder):
    """Writes data and the preset of an encoder. Returns the encoder and flags of a run."""
    path, tiny, flags = TASKS[task](folder)
    keras.utils.set_random_seed(1)
    backbone = tiny.build().backbone
    preset = save_encoder(folder / "preset", backbone, tiny.VOCABULARY)
    flags = [f"--task={task}", f"--preset={preset}", f"--train_data={path}", *flags]
    return backbone, [*flags, f"--eval_data={path}", "--batch_size=4"]
