"""The presets of a clone. Run it from the root of a clone: `python examples/readme.py`."""

# %% try
import keras_spanbert as ks

story = open("examples/data/story.txt").read()
resolver = ks.SpanBertCoreferenceResolver.from_preset("saved_models/coreference-litbank")
for cluster in resolver.resolve(story)["clusters"][:2]:
    print([mention["text"] for mention in cluster])
answerer = ks.SpanBertQuestionAnswerer.from_preset("saved_models/question-answering-squad")
print(answerer.answer("When did the train leave?", story)[0]["answer"])
pretrainer = ks.SpanBertPretrainer.from_preset("saved_models/encoder-english")
print([found["text"] for found in pretrainer.fill("She wrote a [MASK] to her mother.", top_k=3)[0]])
