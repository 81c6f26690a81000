"""A local web page to try models on: `python -m keras_spanbert.demo PRESET [PRESET ...]`.

PRESET is a model of question answering or coreference: a folder that `train.py`
or `save_to_preset` wrote, or a checkpoint with a head for one of them. With a
model of question answering, paste a passage, ask, and see the answers in the
passage and, below, the best of them with their scores and the characters that
they are. With one of coreference, paste a text, and see what in it is of the
same thing. Several models have a tab each. Takes the extra [demo].
"""

import argparse
import html
import os
import sys

# The page speaks to nobody but its user.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

_UNTRAINED = (
    "PRESET must answer questions or find coreference: train it first (train.py "
    "--task=question_answering or --task=coreference). Received: "
)
NUM_ANSWERS = 5
PASSAGE = (
    "The Amazon rainforest covers most of the Amazon basin of South America. The basin spans "
    "7,000,000 square kilometres, of which 5,500,000 are covered by the rainforest. Most of the "
    "forest lies in Brazil, with 60 per cent of it, followed by Peru with 13 per cent."
)
QUESTIONS = (
    "Which country has most of the rainforest?",
    "How many square kilometres does the basin span?",
)
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
# One colour, a shade for a score: red and green would read as wrong and right.
_COLOR, _FAINTEST, _STRONGEST = "59, 130, 246", 0.15, 0.6


def build_page(model, name: str = ""):
    """The page of a model.

    Args:
        model: `SpanBertQuestionAnswerer` or `SpanBertCoreferenceResolver`, with
            preprocessor.
        name: string. What the page calls the model. Defaults to `""`.

    Returns:
        `gradio.Blocks`.

    Example:
    ```python
    build_page(answerer).launch()
    ```
    """
    from keras_spanbert import SpanBertCoreferenceResolver

    is_resolver = isinstance(model, SpanBertCoreferenceResolver)
    return (_coreference_page if is_resolver else _answers_page)(model, name)


def _answers_page(answerer, name):
    import gradio

    from keras_spanbert.models.strings import well_formed

    def ask(passage, question):
        # JSON may hold lone surrogates, which nothing that comes back may.
        passage, question = well_formed(passage), well_formed(question)
        if not passage.strip() or not question.strip():
            raise gradio.Error("A passage and a question are needed.", print_exception=False)
        answers = answerer.answer(question, passage, top_k=NUM_ANSWERS)
        rows = [
            [answer["answer"] or "(no answer)", f"{answer['score']:.1%}", place(answer)]
            for answer in answers
        ]
        return to_html(highlight(passage, answers)), rows

    with gradio.Blocks(title="keras_spanbert: question answering") as page:
        gradio.HTML(_heading("Ask a passage", name))
        passage = gradio.Textbox(PASSAGE, label="Passage", lines=8, max_lines=20)
        question = gradio.Textbox(QUESTIONS[0], label="Question")
        button = gradio.Button("Ask", variant="primary")
        # Not `HighlightedText`, which breaks the line behind each answer.
        highlighted = gradio.HTML(
            label="Answers in the passage, the darker the better", show_label=True, container=True
        )
        best = gradio.Dataframe(
            headers=["Answer", "Score", "Characters"],
            label="Best answers; characters of the passage, counted from 0 up to the one behind",
            wrap=True,
        )
        gradio.Examples(
            [[PASSAGE, text] for text in QUESTIONS],
            [passage, question],
            [highlighted, best],
            fn=ask,
            cache_examples=False,
            run_on_click=True,
            example_labels=list(QUESTIONS),
            label="Examples: click one",
        )
        for asked in [button.click, question.submit]:
            asked(ask, [passage, question], [highlighted, best], api_name="ask")
    return page


def _coreference_page(resolver, name):
    import gradio

    from keras_spanbert.models.strings import well_formed
    from keras_spanbert.tasks.coreference import page as clusters_page

    def resolve(text):
        text = well_formed(text)
        if not text.strip():
            raise gradio.Error("A text is needed.", print_exception=False)
        (found,) = resolver.resolve([text], scores=True)
        return clusters_page.draw_clusters(text, found["clusters"])

    with gradio.Blocks(title="keras_spanbert: coreference") as page:
        gradio.HTML(_heading("Who is who in a text", name))
        text = gradio.Textbox(next(iter(TEXTS.values())), label="Text", lines=8, max_lines=20)
        button = gradio.Button("Resolve", variant="primary")
        clusters = gradio.HTML(
            label="What is of the same thing has the same number",
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
    return page


def _heading(title, name):
    model = f"<p>Model: <b>{html.escape(name)}</b></p>" if name else ""
    return f"<h1>{title}</h1>{model}"


def place(answer) -> str:
    return f"{answer['start']} to {answer['end']}" if answer["start"] >= 0 else ""


def highlight(passage, answers) -> list:
    """Pieces of the passage, each with its answer's score or `None`: the better one's of two."""
    taken = []
    for answer in answers:
        start, end = answer["start"], answer["end"]
        if start >= 0 and all(end <= other[0] or start >= other[1] for other in taken):
            taken.append((start, end, answer["score"]))
    pieces, at = [], 0
    for start, end, score in sorted(taken):
        pieces += [(passage[at:start], None), (passage[start:end], score)]
        at = end
    pieces.append((passage[at:], None))
    return [piece for piece in pieces if piece[0]]


def to_html(pieces) -> str:
    """The pieces as running text, those with a score marked in a shade of it."""
    shown = []
    for text, score in pieces:
        text = html.escape(text)
        if score is not None:
            shade = _FAINTEST + (_STRONGEST - _FAINTEST) * score
            style = f"background: rgba({_COLOR}, {shade:.2f}); color: inherit"
            text = f'<mark style="{style}" title="Score {score:.1%}">{text}</mark>'
        shown.append(text)
    style = "white-space: pre-wrap; overflow-wrap: anywhere"
    return f'<div style="{style}">{"".join(shown)}</div>'


def main(arguments=None, program: str = "python -m keras_spanbert.demo") -> int:
    parser = argparse.ArgumentParser(
        prog=program,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("presets", metavar="PRESET", nargs="+")
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860 on")
    args = parser.parse_args(arguments)
    try:
        import gradio
    except ImportError:
        return mistake("the page takes gradio (pip install keras-spanbert[demo])")

    try:
        models = [load(preset) for preset in args.presets]
    except (ValueError, OSError) as error:
        return mistake(str(error))
    names = [os.path.basename(os.path.normpath(preset)) for preset in args.presets]
    try:
        pages = [build_page(model, name) for model, name in zip(models, names)]
        # Two tabs of one name would be one.
        tabs = [f"{i}. {name}" for i, name in enumerate(names, 1)]
        page = pages[0] if len(pages) == 1 else gradio.TabbedInterface(pages, tabs)
        # Quiet: gradio's advice is about arguments that this command does not have.
        _, address, _ = page.launch(
            server_name=args.host, server_port=args.port, prevent_thread_lock=True, quiet=True
        )
    except OSError:
        return mistake(f"--port must be free. Received: --port={args.port} on {args.host}")
    print(f"The page is at {address}; Ctrl-C ends it", flush=True)
    page.block_thread()
    return 0


def load(preset: str):
    """The model of a preset or checkpoint, of the class that it has the head of.

    Raises:
        ValueError: where it has none, or no preprocessor.
    """
    import keras_spanbert as ks
    from keras_spanbert import formats
    from keras_spanbert.formats import keras_hub

    if "://" not in preset and not os.path.exists(preset):
        raise ValueError(f"PRESET must be a preset or a checkpoint. Received: {preset}")
    classes = [ks.SpanBertQuestionAnswerer, ks.SpanBertCoreferenceResolver]
    source = formats.open_source(preset)
    if isinstance(source, formats.Checkpoint):
        classes = [cls for cls in classes if cls.is_in(source)]
    elif name := keras_hub.task_class(source):
        classes = [cls for cls in classes if cls.__name__ == name]
    if not classes:
        raise ValueError(_UNTRAINED + preset)
    model = classes[0].from_preset(preset)
    if model.untrained_heads():
        raise ValueError(_UNTRAINED + preset)
    if model.preprocessor is None:
        raise ValueError(f"PRESET must have a preprocessor. Received: {preset}")
    return model


def mistake(message) -> int:
    print(f"keras_spanbert.demo: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
