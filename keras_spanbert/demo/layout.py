"""The layout that the pages share."""

import html

import gradio

from keras_spanbert.text.strings import replace_surrogates


def build(
    title: str,
    name: str,
    function,
    button: str,
    inputs: list,
    outputs: list,
    examples: list,
    labels: list[str] | None = None,
    submit=None,
):
    """Builds a page, `gradio.Blocks`, of inputs, a button, outputs and examples.

    The button calls `function` of the inputs' values, whose name is also its name in the page's
    API. `examples` are rows of values for the first inputs. With `labels`, the texts of the
    examples, a click on one also calls the function, as does the enter key in the text box
    `submit`.
    """
    with gradio.Blocks(title=f"keras_spanbert: {title}") as blocks:
        model = f"<p>Model: <b>{html.escape(name)}</b></p>" if name else ""
        gradio.HTML(f"<h1>{title}</h1>{model}")
        for component in inputs:
            component.render()
        click = gradio.Button(button, variant="primary").click
        for component in outputs:
            component.render()
        runs = {"outputs": outputs, "fn": function, "run_on_click": True} if labels else {}
        gradio.Examples(
            examples,
            inputs[: len(examples[0])],
            cache_examples=False,
            example_labels=labels,
            label="Examples: click one",
            **runs,
        )
        for event in [click, submit.submit] if submit else [click]:
            event(function, inputs, outputs, api_name=function.__name__)
    return blocks


# === Components, which `build` renders ===


def text_box(value: str, label: str, lines: int = 1):
    return gradio.Textbox(value, label=label, lines=lines, max_lines=20, render=False)


def html_box(label: str, **kwargs):
    return gradio.HTML(
        label=label, show_label=True, container=True, padding=True, render=False, **kwargs
    )


def table(headers: list[str], label: str):
    return gradio.Dataframe(headers=headers, label=label, wrap=True, render=False)


def check_texts(**texts) -> list[str]:
    """Returns the texts of a page's boxes. Raises an error if one is empty."""
    # JSON may contain lone surrogates, which must not be sent back.
    texts = {name: replace_surrogates(text or "") for name, text in texts.items()}
    for name, text in texts.items():
        if not text.strip():
            raise gradio.Error(f"The {name} must not be empty.", print_exception=False)
    return list(texts.values())
