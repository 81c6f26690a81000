"""The page of a token classification model."""

import gradio

from keras_spanbert.demo.highlighting import heading, to_html
from keras_spanbert.models.strings import replace_surrogates

TEXTS = (
    "Captain Grey left the ship in the harbour of Lisbon and took a carriage to the old church, "
    "where his daughter was waiting for the doctor.",
    "Ann Lee of the University of Oslo flew from London to Lima with Acme Airways.",
)


def page(tagger, name: str):
    """Builds the page: see `keras_spanbert.demo.build_page`."""

    def tag(text):
        # JSON may contain lone surrogates, which must not be sent back.
        text = replace_surrogates(text or "")
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
            label="Entities. Darker means more certain",
            show_label=True,
            container=True,
            padding=True,
        )
        rows = gradio.Dataframe(
            headers=["Text", "Label", "Score", "Characters"],
            label="Entities in order. Positions count characters from 0, and the end is exclusive",
            wrap=True,
        )
        gradio.Examples([[example] for example in TEXTS], [text], label="Examples: click one")
        button.click(tag, text, [shown, rows], api_name="tag")
    return blocks
