"""The pages of models that predict a label for a text, a pair, a question or two spans."""

import gradio

from keras_spanbert.demo.layout import build, check_texts, text_box
from keras_spanbert.models.classifier import probabilities
from keras_spanbert.tasks.relation_extraction.sentences import SPANS, TYPES
from keras_spanbert.text.strings import replace_surrogates

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


def _labels(**kwargs):
    return gradio.Label(label="Probabilities", num_top_classes=MAX_LABELS, render=False, **kwargs)


def text_page(classifier, name: str):
    """Builds the page of a `SpanBertTextClassifier`."""

    def classify(text, second):
        (text,) = check_texts(text=text)
        second = replace_surrogates(second or "")
        found = classifier.classify(text, second or None)
        if classifier.is_regression:
            return f"{found['score']:.3f}"
        if classifier.multi_label:
            return ", ".join(found["labels"]) or "none", found["scores"]
        return found["scores"]

    if classifier.multi_label:
        # No heading with the most likely label, which may not fit the text.
        outputs = [text_box("", "Labels"), _labels(show_heading=False)]
    elif classifier.is_regression:
        outputs = [text_box("", "Number")]
    else:
        outputs = [_labels()]
    inputs = [
        text_box(REVIEWS[0], "Text", 4),
        text_box("", "Second text, for models of pairs", 2),
    ]
    examples = [[review] for review in REVIEWS]
    return build("Classify a text", name, classify, "Classify", inputs, outputs, examples)


def choice_page(chooser, name: str):
    """Builds the page of a `SpanBertMultipleChoice`."""

    def choose(context, question, choices):
        question, choices = check_texts(question=question, choice=choices)
        choices = [line.strip() for line in choices.splitlines() if line.strip()]
        if len(choices) < 2:
            raise gradio.Error("Two choices are needed, one per line.", print_exception=False)
        found = chooser.choose((replace_surrogates(context or ""), question), choices)
        # The page cannot show two equal choices.
        return dict(zip(choices, found["scores"]))

    first = next(iter(QUESTIONS))
    inputs = [
        text_box("", "Text that the question is about, if any", 4),
        text_box(first, "Question, or the text that the choices continue"),
        text_box(QUESTIONS[first], "Choices, one per line", 4),
    ]
    examples = [["", *question] for question in QUESTIONS.items()]
    return build("Choose an answer", name, choose, "Choose", inputs, [_labels()], examples)


def relation_page(extractor, name: str):
    """Builds the page of a `SpanBertRelationExtractor`."""
    preprocessor = extractor.preprocessor

    # The page's API has arguments of these names.
    def extract(text, subject, object, subject_type=None, object_type=None):
        types = (subject_type, object_type) if preprocessor.uses_types else ()
        text, subject, object = check_texts(text=text, subject=subject, object=object)
        spans = []
        for part in (subject, object):
            start = text.find(part)
            if start < 0:
                raise gradio.Error(f"{part!r} must occur in the text.", print_exception=False)
            spans.append((start, start + len(part)))
        columns = dict(zip(["text", *SPANS, *TYPES], [[x] for x in (text, *spans, *types)]))
        found = extractor.predict(columns, verbose=0)
        return dict(zip(extractor.relations, probabilities(found)[0].tolist()))

    first = next(iter(SENTENCES))
    inputs = [
        text_box(first, "Text", 4),
        text_box(SENTENCES[first][0], "Subject, as written in the text"),
        text_box(SENTENCES[first][1], "Object, as written in the text"),
    ]
    for role, kind in [("SUBJ", "subject"), ("OBJ", "object")] if preprocessor.uses_types else []:
        types = sorted(preprocessor.types(role))
        inputs.append(gradio.Dropdown(types, label=f"Type of the {kind}", render=False))
    examples = [[sentence, *spans] for sentence, spans in SENTENCES.items()]
    return build("Find the relation", name, extract, "Extract", inputs, [_labels()], examples)
