"""A web page for each task, with Gradio: `python examples/demo.py [PRESET ...]`.

Without arguments, it shows the presets of the project, and a classifier of reviews that it trains
in about ten seconds. Run it from the root of a clone, after `pip install -e ".[demo]"`.
"""

import json
import math
import os
import sys
from functools import partial

import gradio
import keras

import keras_spanbert as ks
from keras_spanbert.tasks.coreference.page import draw_clusters

PRESETS = [
    "saved_models/coreference-litbank",
    "saved_models/question-answering-squad",
    "saved_models/entities-litbank",
    "saved_models/encoder-english",
]
STORY = (
    "Ann told her brother Bob that his letter had come. She had read it on the train, and so had "
    'the conductor, who gave it back to her. "I think," said Bob, "that he knew me."'
)
PASSAGE = (
    "The Amazon rainforest covers most of the Amazon basin of South America. The basin spans "
    "7,000,000 square kilometres, of which 5,500,000 are covered by the rainforest. Most of the "
    "forest lies in Brazil, with 60 per cent of it, followed by Peru with 13 per cent."
)
VOYAGE = (
    "Captain Grey left the ship in the harbour of Lisbon and took a carriage to the old church, "
    "where his daughter was waiting for the doctor."
)


def page(function, inputs, outputs, examples):
    """Returns a page that shows the result of its first example at the start.

    `inputs` are labels of text boxes, `outputs` components by their labels.
    """
    boxes = [gradio.Textbox(value, label=label) for label, value in zip(inputs, examples[0])]
    found = function(*examples[0])
    values = found if len(outputs) > 1 else [found]
    results = [make(value, label=label) for (label, make), value in zip(outputs.items(), values)]
    return gradio.Interface(function, boxes, results, examples=examples, flagging_mode="never")


def coreference(resolver):
    def resolve(text):
        return draw_clusters(text, resolver.resolve(text, scores=True)["clusters"])

    return page(resolve, ["Text"], {"Clusters": gradio.HTML}, [[STORY], [PASSAGE]])


def answers(answerer):
    def ask(question, passage):
        found = answerer.answer(question, passage, top_k=5)
        best = {"entity": "answer", "start": found[0]["start"], "end": found[0]["end"]}
        scores = {answer["answer"] or "no answer": answer["score"] for answer in reversed(found)}
        return scores, {"text": passage, "entities": [best] if best["start"] >= 0 else []}

    questions = ["Which country has most of the rainforest?", "How large is the basin?"]
    examples = [[question, PASSAGE] for question in questions]
    outputs = {"Answers": gradio.Label, "The best answer": gradio.HighlightedText}
    return page(ask, ["Question", "Passage"], outputs, examples)


def entities(tagger):
    def tag(text):
        found = [{**entity, "entity": entity["label"]} for entity in tagger.tag(text)]
        rows = [[entity["text"], entity["label"], f"{entity['score']:.1%}"] for entity in found]
        return {"text": text, "entities": found}, rows

    table = partial(gradio.Dataframe, headers=["Entity", "Label", "Score"])
    outputs = {"Entities": gradio.HighlightedText, "In order": table}
    return page(tag, ["Text"], outputs, [[VOYAGE], [STORY]])


def labels(classifier):
    def classify(text):
        return classifier.classify(text)["scores"]

    texts = ["The room was clean and the soup was good.", "We waited an hour, and it was cold."]
    return page(classify, ["Text"], {"Labels": gradio.Label}, [[text] for text in texts])


def relations(extractor):
    def extract(text, subject, object):
        spans = [(start := text.index(part), start + len(part)) for part in (subject, object)]
        found = extractor.extract(text, *spans)
        return {found["relation"]: found["score"]}

    examples = [["Ann Lee founded the company Acme.", "Ann Lee", "Acme"]]
    return page(extract, ["Text", "Subject", "Object"], {"Relation": gradio.Label}, examples)


def blanks(pretrainer):
    def fill(text):
        return [
            [number, candidate["text"], *(f"{math.exp(candidate[h]):.1%}" for h in ("mlm", "sbo"))]
            for number, candidates in enumerate(pretrainer.fill(text, top_k=5), 1)
            for candidate in candidates
        ]

    table = partial(gradio.Dataframe, headers=["Blank", "Candidate", "MLM", "SBO"])
    texts = ["She opened the [MASK] and looked out at the garden.", "He took off his [MASK] ."]
    label = "Text with [MASK] for each missing token"
    return page(fill, [label], {"Candidates": table}, [[text] for text in texts])


PAGES = {
    ks.SpanBertCoreferenceResolver: coreference,
    ks.SpanBertQuestionAnswerer: answers,
    ks.SpanBertTokenClassifier: entities,
    ks.SpanBertTextClassifier: labels,
    ks.SpanBertRelationExtractor: relations,
    ks.SpanBertPretrainer: blanks,
}


def load(preset):
    with open(f"{preset}/task.json") as file:
        cls = getattr(ks, json.load(file)["class_name"])
    return cls.from_preset(preset, dtype="float32")


def train_classifier():
    """Returns a classifier of reviews, trained for about ten seconds."""
    keras.utils.set_random_seed(1)
    reviews = ks.data.columns.read_texts("examples/data/reviews_train.csv")
    classifier = ks.SpanBertTextClassifier.from_preset(
        "saved_models/encoder-english", class_names=["bad", "good"], dtype="float32"
    )
    classifier.compile(ks.AdamW(2e-4))
    classifier.fit(reviews, batch_size=8, epochs=4, verbose=0)
    return classifier


def main():
    models = {preset: load(preset) for preset in sys.argv[1:] or PRESETS}
    if not sys.argv[1:]:
        models["reviews"] = train_classifier()
    pages = [PAGES[type(model)](model) for model in models.values()]
    names = [f"{i}. {os.path.basename(name)}" for i, name in enumerate(models, 1)]
    gradio.TabbedInterface(pages, names, title="keras_spanbert").launch(show_error=True)


if __name__ == "__main__":
    main()
