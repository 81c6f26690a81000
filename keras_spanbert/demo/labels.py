"""The pages of models that predict a label for a text, a pair, a question or two spans."""

import gradio

from keras_spanbert.demo.highlighting import heading
from keras_spanbert.models.classifier import probabilities
from keras_spanbert.models.strings import replace_surrogates

MAX_LABELS = 10
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
    """Returns the texts of a page's boxes. Raises an error if one is empty."""
    # JSON may contain lone surrogates, which must not be sent back.
    texts = {name: replace_surrogates(text or "") for name, text in texts.items()}
    missing = next((name for name, text in texts.items() if not text.strip()), None)
    if missing is not None:
        raise gradio.Error(f"A {missing} is needed.", print_exception=False)
    return list(texts.values())


def _labels(**kwargs):
    return gradio.Label(label="Probabilities", num_top_classes=MAX_LABELS, **kwargs)


def text_page(classifier, name: str):
    """Builds the page of a `SpanBertTextClassifier`."""

    def classify(text, second):
        (text,) = _texts(text=text)
        second = replace_surrogates(second or "")
        found = classifier.classify(text, second or None)
        if classifier.is_regression:
            return f"{found['score']:.3f}"
        if classifier.multi_label:
            return ", ".join(found["labels"]) or "none", found["scores"]
        return found["scores"]

    with gradio.Blocks(title="keras_spanbert: classification") as blocks:
        gradio.HTML(heading("Classify a text", name))
        text = gradio.Textbox(REVIEWS[0], label="Text", lines=4, max_lines=20)
        second = gradio.Textbox("", label="Second text, for models of pairs", lines=2, max_lines=20)
        button = gradio.Button("Classify", variant="primary")
        if classifier.multi_label:
            # No heading with the most likely label, which may not fit the text.
            output = [gradio.Textbox(label="Labels"), _labels(show_heading=False)]
        else:
            output = gradio.Textbox(label="Number") if classifier.is_regression else _labels()
        gradio.Examples([[review] for review in REVIEWS], [text], label="Examples: click one")
        button.click(classify, [text, second], output, api_name="classify")
    return blocks


def choice_page(chooser, name: str):
    """Builds the page of a `SpanBertMultipleChoice`."""

    def choose(context, question, choices):
        question, choices = _texts(question=question, choice=choices)
        choices = [line.strip() for line in choices.splitlines() if line.strip()]
        if len(choices) < 2:
            raise gradio.Error("Two choices are needed, one per line.", print_exception=False)
        found = chooser.choose((replace_surrogates(context or ""), question), choices)
        # The page cannot show two equal choices.
        return dict(zip(choices, found["scores"]))

    with gradio.Blocks(title="keras_spanbert: multiple choice") as blocks:
        gradio.HTML(heading("Choose an answer", name))
        first = next(iter(QUESTIONS))
        context = gradio.Textbox("", label="Text that the question is about, if any", lines=4)
        question = gradio.Textbox(first, label="Question, or the text that the choices continue")
        choices = gradio.Textbox(QUESTIONS[first], label="Choices, one per line", lines=4)
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
    """Builds the page of a `SpanBertRelationExtractor`."""
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
                raise gradio.Error(f"{part!r} must occur in the text.", print_exception=False)
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
        gradio.HTML(heading("Find the relation", name))
        first = next(iter(SENTENCES))
        text = gradio.Textbox(first, label="Text", lines=4, max_lines=20)
        boxes = [
            text,
            gradio.Textbox(SENTENCES[first][0], label="Subject, as written in the text"),
            gradio.Textbox(SENTENCES[first][1], label="Object, as written in the text"),
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
