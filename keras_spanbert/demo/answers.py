"""The page of a model that answers questions."""

import gradio

from keras_spanbert.demo.marks import heading, to_html
from keras_spanbert.models.strings import well_formed

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
    """The page: see `keras_spanbert.demo.build_page`."""

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

    with gradio.Blocks(title="keras_spanbert: question answering") as blocks:
        gradio.HTML(heading("Ask a passage", name))
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
    return blocks


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
