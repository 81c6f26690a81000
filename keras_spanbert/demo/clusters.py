"""The page of a coreference model."""

import gradio

from keras_spanbert.demo.highlighting import heading
from keras_spanbert.models.strings import replace_surrogates
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
        text = replace_surrogates(text)
        if not text.strip():
            raise gradio.Error("A text is needed.", print_exception=False)
        (found,) = resolver.resolve([text], scores=True)
        return clusters_page.draw_clusters(text, found["clusters"])

    with gradio.Blocks(title="keras_spanbert: coreference") as blocks:
        gradio.HTML(heading("Who is who in a text", name))
        text = gradio.Textbox(next(iter(TEXTS.values())), label="Text", lines=8, max_lines=20)
        button = gradio.Button("Resolve", variant="primary")
        clusters = gradio.HTML(
            label="Mentions of the same person, place or thing have the same number",
            show_label=True,
            container=True,
            padding=True,
            apply_default_css=False,
            js_on_load=f"{clusters_page.SCRIPT}watch('value', () => light((chosen = null)));",
        )
        gradio.Examples(
            [[example] for example in TEXTS.values()],
            text,
            clusters,
            fn=resolve,
            cache_examples=False,
            run_on_click=True,
            example_labels=list(TEXTS),
            label="Examples: click one",
        )
        button.click(resolve, text, clusters, api_name="resolve")
    return blocks
