"""The page of a pretrained model: it fills the blanks of a text."""

import math

import gradio

from keras_spanbert.demo.highlighting import heading
from keras_spanbert.models.strings import replace_surrogates

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

    with gradio.Blocks(title="keras_spanbert: fill in the blanks") as blocks:
        gradio.HTML(heading("Fill in the blanks", name))
        text = gradio.Textbox(TEXTS[0], label="Text with [MASK] for each missing token", lines=4)
        button = gradio.Button("Fill", variant="primary")
        candidates = gradio.Dataframe(
            headers=["Blank", "Candidate", "MLM", "SBO"],
            label="Best candidates for each blank, with their probability under each head",
            wrap=True,
        )
        gradio.Examples([[example] for example in TEXTS], [text], label="Examples: click one")
        for event in [button.click, text.submit]:
            event(fill, text, candidates, api_name="fill")
    return blocks


def _probability(log_probability: float | None) -> str:
    """Returns the probability as text, empty if the model does not have the head."""
    return "" if log_probability is None else f"{math.exp(log_probability):.1%}"
