"""The page of a model that tags words."""

import gradio

from keras_spanbert.demo.marks import heading, to_html
from keras_spanbert.models.strings import well_formed

TEXTS = (
    "Ann Lee of the University of Oslo flew from London to Lima with Acme Airways.",
    "My brother watched The Long Road on his new Pico tablet in Paris.",
)


def page(tagger, name: str):
    """The page: see `keras_spanbert.demo.build_page`."""

    def tag(text):
        # JSON may hold lone surrogates, which nothing that comes back may.
        text = well_formed(text or "")
        if not text.strip():
            raise gradio.Error("A text is needed.", print_exception=False)
        found = tagger.tag(text)
        pieces, at = [], 0
        for entity in found:
            pieces += [(text[at : entity["start"]], None)]
            pieces += [(entity["text"], entity["score"], entity["label"])]
            at = entity["end"]
        pieces.append((text[at:], None))
        rows = [
            [e["text"], e["label"], f"{e['score']:.1%}", f"{e['start']} to {e['end']}"]
            for e in found
        ]
        return to_html(piece for piece in pieces if piece[0]), rows

    with gradio.Blocks(title="keras_spanbert: token classification") as blocks:
        gradio.HTML(heading("Find names in a text", name))
        text = gradio.Textbox(TEXTS[0], label="Text", lines=6, max_lines=20)
        button = gradio.Button("Find", variant="primary")
        shown = gradio.HTML(
            label="What was found, the surer the darker", show_label=True, container=True
        )
        rows = gradio.Dataframe(
            headers=["Text", "Label", "Score", "Characters"],
            label="In order; characters of the text, counted from 0 up to the one behind",
            wrap=True,
        )
        gradio.Examples([[example] for example in TEXTS], [text], label="Examples: click one")
        button.click(tag, text, [shown, rows], api_name="tag")
    return blocks
