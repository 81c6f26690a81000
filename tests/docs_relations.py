"""Small files of relations with the names used in docs/."""

import csv
import json

import keras_spanbert as ks
from keras_spanbert.data import tacred

RELATIONS = {"saw": "no_relation", "runs": "per:employee_of", "left": "per:former_employee_of"}
NAMES = ["Ann", "Bob", "Eve"]


def write_all(root, backbone, tokenizer):
    """Writes files of TACRED and SemEval, columns, and a preset with their types."""
    rows = [(who, verb, what) for who in NAMES for verb in RELATIONS for what in ["Acme", "Ibex"]]
    for name, part in [("train.json", rows), ("dev.json", rows[:4])]:
        (root / name).write_text(json.dumps([_example(i, *row) for i, row in enumerate(part)]))
    for name, part in [("TRAIN_FILE.TXT", rows), ("TEST_FILE_FULL.TXT", rows[:4])]:
        (root / name).write_text("".join(_block(i + 1, *row) for i, row in enumerate(part)))
    with open(root / "people.csv", "w", newline="") as file:
        writer = csv.writer(file)
        header = "sentence who_start who_end what_start what_end relation".split()
        writer.writerow(header)
        for who, verb, what in rows:
            text = f"{who} {verb} {what}."
            relation = "none" if verb == "saw" else verb
            at = text.index(what)
            writer.writerow([text, 0, len(who), at, at + len(what), relation])
    preprocessor = ks.SpanBertRelationExtractorPreprocessor(tokenizer, 64)
    preprocessor.adapt(tacred.read(root / "train.json"))
    extractor = ks.SpanBertRelationExtractor(backbone, list(RELATIONS.values()), preprocessor)
    extractor.save_to_preset(root / "saved_models" / "relations")


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
