"""Files and a preset for short runs of `--task=question_answering`."""

import json

from tiny_answerer import VOCABULARY, build, examples
from train_script import save_encoder

SIZES = ["--sequence_length=24", "--doc_stride=8", "--max_question_length=6", "--batch_size=16"]


def write_squad(path, count, seed, unanswerable=0):
    """Writes contexts that mention a name, except the first ones, and questions that ask for it."""
    paragraphs = []
    for i, (question, context, answer) in enumerate(zip(*examples(count, seed=seed))):
        if i < unanswerable:
            context = context.replace(answer["text"], "it")
        qa = {"id": f"{seed}-{i}", "question": question, "answers": [answer][i < unanswerable :]}
        paragraphs.append({"context": context, "qas": [qa]})
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(content))
    return path


def save_preset(folder):
    """Writes the preset of an encoder without a question answering head."""
    return save_encoder(folder, build().backbone, VOCABULARY)
