"""The page of a token classification model."""

from keras_spanbert.demo.highlighting import to_html
from keras_spanbert.demo.layout import build, check_texts, html_box, table, text_box

TEXTS = (
    "Captain Grey left the ship in the harbour of Lisbon and took a carriage to the old church, "
    "where his daughter was waiting for the doctor.",
    "Ann Lee of the University of Oslo flew from London to Lima with Acme Airways.",
)


def page(tagger, name: str):
    """Builds the page: see `keras_spanbert.demo.build_page`."""

    def tag(text):
        (text,) = check_texts(text=text)
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

    rows = table(
        ["Text", "Label", "Score", "Characters"],
        "Entities in order. Positions count characters from 0, and the end is exclusive",
    )
    return build(
        "Find names in a text",
        name,
        tag,
        "Find",
        [text_box(TEXTS[0], "Text", 6)],
        [html_box("Entities. Darker means more certain"), rows],
        [[example] for example in TEXTS],
    )
