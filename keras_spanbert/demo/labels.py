"""The pages of models that give a text, a pair, a question or two spans one of several labels."""

import gradio

from keras_spanbert.demo.marks import heading
from keras_spanbert.models.classifier import probabilities
from keras_spanbert.models.strings import well_formed

MOST_LABELS = 10
REVIEWS = ("A fine film, and two hours well spent.", "Two long hours that end where they began.")
QUESTIONS = {
    "What does a bird build?": "a nest\na bridge\na clock",
    "The guitarist sits down. She": "plays a slow song.\nis a chair.\neats the strings.",
}
SENTENCES = {
    "The fire was caused by the storm.": ("fire", "storm"),
    "Ann Lee runs the company Acme.": ("Ann Lee", "Acme"),
}


def _texts(**texts):
    """The texts of a page's boxes, of which none may be empty."""
    # JSON may hold lone surrogates, which nothing that comes back may.
    texts = {name: well_formed(text or "") for name, text in texts.items()}
    missing = next((name for name, text in texts.items() if not text.strip()), None)
    if missing is not None:
        raise gradio.Error(f"A {missing} is needed.", print_exception=False)
    return list(texts.values())


def _labels():
    return gradio.Label(label="Probabilities", num_top_classes=MOST_LABELS)


def text_page(classifier, name: str):
    """The page of a `SpanBertTextClassifier`."""

    def classify(text, second):
        (text,) = _texts(text=text)
        second = well_formed(second or "")
        found = classifier.classify(text, second or None)
        return f"{found['score']:.3f}" if classifier.is_regression else found["scores"]

    with gradio.Blocks(title="keras_spanbert: classification") as blocks:
        gradio.HTML(heading("Classify a text", name))
        text = gradio.Textbox(REVIEWS[0], label="Text", lines=4, max_lines=20)
        second = gradio.Textbox("", label="Second text, of models of pairs", lines=2, max_lines=20)
        button = gradio.Button("Classify", variant="primary")
        output = gradio.Textbox(label="Number") if classifier.is_regression else _labels()
        gradio.Examples([[review] for review in REVIEWS], [text], label="Examples: click one")
        button.click(classify, [text, second], output, api_name="classify")
    return blocks


def choice_page(chooser, name: str):
    """The page of a `SpanBertMultipleChoice`."""

    def choose(context, question, choices):
        question, choices = _texts(question=question, choice=choices)
        choices = [line.strip() for line in choices.splitlines() if line.strip()]
        if len(choices) < 2:
            raise gradio.Error("Two choices are needed, a line each.", print_exception=False)
        found = chooser.choose((well_formed(context or ""), question), choices)
        # Of equal choices a page can show one.
        return dict(zip(choices, found["scores"]))

    with gradio.Blocks(title="keras_spanbert: multiple choice") as blocks:
        gradio.HTML(heading("Choose an answer", name))
        first = next(iter(QUESTIONS))
        context = gradio.Textbox("", label="Text that the question is about, if any", lines=4)
        question = gradio.Textbox(first, label="Question, or the beginning of each choice")
        choices = gradio.Textbox(QUESTIONS[first], label="Choices, a line each", lines=4)
        button = gradio.Button("Choose", variant="primary")
        output = _labels()
        gradio.Examples(
            [list(pair) for pair in QUESTIONS.items()],
            [question, choices],
            label="Examples: click one",
        )
        button.click(choose, [context, question, choices], output, api_name="choose")
    return blocks


def relation_page(extractor, name: str):
    """The page of a `SpanBertRelationExtractor`."""
    preprocessor = extractor.preprocessor
    types = {
        kind: sorted(
            symbol.partition("=")[2]
            for symbol in preprocessor.symbols
            if symbol.startswith(f"{start}=")
        )
        for kind, start in [("subject", "SUBJ"), ("object", "OBJ")]
    }

    def extract(text, subject, object, subject_type=None, object_type=None):
        text, subject, object = _texts(text=text, subject=subject, object=object)
        spans = []
        for part in (subject, object):
            start = text.find(part)
            if start < 0:
                raise gradio.Error(f"{part!r} must stand in the text.", print_exception=False)
            spans.append((start, start + len(part)))
        found = extractor.predict(
            {
                "text": [text],
                "subject": [spans[0]],
                "object": [spans[1]],
                **(
                    {"subject_type": [subject_type], "object_type": [object_type]}
                    if preprocessor.uses_types
                    else {}
                ),
            },
            verbose=0,
        )
        return dict(zip(extractor.relations, probabilities(found)[0].tolist()))

    with gradio.Blocks(title="keras_spanbert: relation extraction") as blocks:
        gradio.HTML(heading("What is one to the other?", name))
        first = next(iter(SENTENCES))
        text = gradio.Textbox(first, label="Text", lines=4, max_lines=20)
        boxes = [
            text,
            gradio.Textbox(SENTENCES[first][0], label="Subject, as it stands in the text"),
            gradio.Textbox(SENTENCES[first][1], label="Object, as it stands in the text"),
        ]
        examples = [[sentence, *spans] for sentence, spans in SENTENCES.items()]
        of_types = []
        if preprocessor.uses_types:
            for kind, known in types.items():
                label = f"Type of the {kind}"
                of_types.append(gradio.Dropdown(known, label=label))
        button = gradio.Button("Extract", variant="primary")
        output = _labels()
        gradio.Examples(examples, boxes, label="Examples: click one")
        button.click(extract, [*boxes, *of_types], output, api_name="extract")
    return blocks
