"""Files and a preset for short runs of `--task=question_answering`."""

import json

import keras
import numpy as np
from train_script import save_encoder

import keras_spanbert as ks

NAMES = ["ann", "bob", "eve", "ida"]
WORDS = ["wrote", "read", "sold", "it", "and"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, *WORDS, "who", "."]
SIZES = ["--sequence_length=24", "--doc_stride=8", "--max_question_length=6", "--batch_size=16"]


def write_squad(path, count, seed, unanswerable=0):
    """Writes contexts that mention a name, and questions that ask for it."""
    rng = np.random.default_rng(seed)
    paragraphs = []
    for i in range(count):
        words = [str(word) for word in rng.choice(WORDS, 9)]
        answers = []
        if i >= unanswerable:
            place, name = int(rng.integers(9)), str(rng.choice(NAMES))
            words[place] = name
            answers = [{"text": name, "answer_start": " ".join(words).index(name)}]
        question = {"id": f"{seed}-{i}", "question": "who wrote it", "answers": answers}
        paragraphs.append({"context": " ".join(words) + ".", "qas": [question]})
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(content))
    return path


def save_preset(folder):
    """Writes the preset of an encoder without a question answering head."""
    keras.utils.set_random_seed(3)
    backbone = ks.SpanBertBackbone(
        len(VOCABULARY), 2, 4, 32, 64, dropout=0.0, max_sequence_length=24
    )
    return save_encoder(folder, backbone, VOCABULARY)
