"""The reference questions for multiple choice, in the format of the readers."""

import json
import pathlib

FOLDER = pathlib.Path("reference") / "finetuning" / "multiple_choice"


def questions(shared_data):
    """Returns `(prompts, choices, labels)` of ten questions of SWAG and ten of CODAH."""
    examples = json.loads((shared_data / FOLDER / "examples.json").read_text())
    prompts = [(e["sent1"], e["sent2"]) if e["sent2"] else e["sent1"] for e in examples]
    return prompts, [e["endings"] for e in examples], [e["label"] for e in examples]
