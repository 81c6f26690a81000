"""The page of a model that answers questions."""

import gradio

from keras_spanbert.demo.highlighting import heading, to_html
from keras_spanbert.models.strings import replace_surrogates

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


def page(answerer, name: str):
    """Builds the page: see `keras_spanbert.demo.build_page`."""

    def ask(passage, question):
        # JSON may contain lone surrogates, which must not be sent back.
        passage, question = replace_surrogates(passage), replace_surrogates(question)
        if not passage.strip() or not question.strip():
            raise gradio.Error("A passage and a question are needed.", print_exception=False)
        answers = answerer.answer(question, passage, top_k=NUM_ANSWERS)
        rows = [
            [answer["answer"] or "(no answer)", f"{answer['score']:.1%}", format_position(answer)]
            for answer in answers
        ]
        return to_html(highlight(passage, answers)), rows

    with gradio.Blocks(title="keras_spanbert: question answering") as blocks:
        gradio.HTML(heading("Ask a passage", name))
        passage = gradio.Textbox(PASSAGE, label="Passage", lines=8, max_lines=20)
        question = gradio.Textbox(QUESTIONS[0], label="Question")
        button = gradio.Button("Ask", variant="primary")
        # `HighlightedText` would break the line after each answer.
        highlighted = gradio.HTML(
            label="Answers in the passage. Darker means better",
            show_label=True,
            container=True,
            padding=True,
        )
        best = gradio.Dataframe(
            headers=["Answer", "Score", "Characters"],
            label="Best answers. Positions count characters from 0, and the end is exclusive",
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
    return blocks


def format_position(answer) -> str:
    return f"{answer['start']} to {answer['end']}" if answer["start"] >= 0 else ""


def highlight(passage, answers) -> list:
    """Returns pieces `(text, score)` of the passage. The score is `None` outside of answers."""
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
