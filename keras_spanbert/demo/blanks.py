"""The page of a pretrained model: it fills the blanks of a text."""

import math

import gradio

from keras_spanbert.demo.layout import build, table, text_box
from keras_spanbert.text.strings import replace_surrogates

NUM_CANDIDATES = 5
TEXTS = (
    "She opened the [MASK] and looked out at the garden.",
    "He took off his [MASK] and sat down by the [MASK] .",
    "The captain walked slowly up the [MASK] [MASK] .",
)


def page(pretrainer, name: str):
    """Builds the page: see `keras_spanbert.demo.build_page`."""

    def fill(text):
        text = replace_surrogates(text or "")
        try:
            blanks = pretrainer.fill(text, top_k=NUM_CANDIDATES)
        except ValueError as error:
            raise gradio.Error(str(error), print_exception=False) from error
        return [
            [i, candidate["text"], _probability(candidate["mlm"]), _probability(candidate["sbo"])]
            for i, candidates in enumerate(blanks, start=1)
            for candidate in candidates
        ]

    text = text_box(TEXTS[0], "Text with [MASK] for each missing token", 4)
    candidates = table(
        ["Blank", "Candidate", "MLM", "SBO"],
        "Best candidates for each blank, with their probability under each head",
    )
    examples = [[example] for example in TEXTS]
    return build(
        "Fill in the blanks", name, fill, "Fill", [text], [candidates], examples, submit=text
    )


def _probability(log_probability: float | None) -> str:
    """Returns the probability as text, empty if the model does not have the head."""
    return "" if log_probability is None else f"{math.exp(log_probability):.1%}"
