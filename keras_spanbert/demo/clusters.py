"""The page of a coreference model."""

from keras_spanbert.demo.layout import build, check_texts, html_box, text_box
from keras_spanbert.tasks.coreference import page as clusters_page

TEXTS = {
    "A letter": (
        "Ann told her brother Bob that his letter had come. She had read it on the train, and so "
        'had the conductor, who gave it back to her. "I think," said Bob, "that he knew me."'
    ),
    "Two friends": (
        "The old painter and his friend lived by the river. It flooded their house each spring, "
        "and each spring the two of them carried its chairs up the hill. The friend's daughter "
        "helped them; she was stronger than her father."
    ),
}


def page(resolver, name: str):
    """Builds the page: see `keras_spanbert.demo.build_page`."""

    def resolve(text):
        (text,) = check_texts(text=text)
        (found,) = resolver.resolve([text], scores=True)
        return clusters_page.draw_clusters(text, found["clusters"])

    clusters = html_box(
        "Mentions of the same person, place or thing have the same number",
        apply_default_css=False,
    )
    first = next(iter(TEXTS.values()))
    return build(
        "Who is who in a text",
        name,
        resolve,
        "Resolve",
        [text_box(first, "Text", 8)],
        [clusters],
        [[example] for example in TEXTS.values()],
        list(TEXTS),
    )
