"""The page of a model that answers questions."""

from keras_spanbert.demo.highlighting import to_html
from keras_spanbert.demo.layout import build, check_texts, html_box, table, text_box

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
        passage, question = check_texts(passage=passage, question=question)
        answers = answerer.answer(question, passage, top_k=NUM_ANSWERS)
        rows = [
            [
                answer["answer"] or "(no answer)",
                f"{answer['score']:.1%}",
                f"{answer['start']} to {answer['end']}" if answer["start"] >= 0 else "",
            ]
            for answer in answers
        ]
        return to_html(highlight(passage, answers)), rows

    question = text_box(QUESTIONS[0], "Question")
    best = table(
        ["Answer", "Score", "Characters"],
        "Best answers. Positions count characters from 0, and the end is exclusive",
    )
    return build(
        "Ask a passage",
        name,
        ask,
        "Ask",
        [text_box(PASSAGE, "Passage", 8), question],
        # `HighlightedText` would break the line after each answer.
        [html_box("Answers in the passage. Darker means better"), best],
        [[PASSAGE, text] for text in QUESTIONS],
        list(QUESTIONS),
        submit=question,
    )


def highlight(passage, answers) -> list:
    """Returns pieces `(text, score)` of the passage. The score is `None` outside of answers.

    If answers overlap, only the best of them is highlighted.
    """
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
