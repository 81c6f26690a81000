"""Coreference in Python. Run it from the root of a clone: `python examples/coreference.py`."""

# %% resolve
import keras_spanbert as ks

resolver = ks.SpanBertCoreferenceResolver.from_preset(
    "saved_models/coreference-litbank", dtype="float32"
)
text = (
    "Anna met her brother Tom at the station in Leeds. "
    "He had lost his coat, and she gave him hers. "
    "The train to York left at noon. An old sailor sat by the window and told them about his ship."
)
for cluster in resolver.resolve(text)["clusters"]:
    print([(mention["text"], mention["start"], mention["end"]) for mention in cluster])

# %% scores
found = resolver.resolve(text, scores=True, min_link_score=0.5)
mention = found["clusters"][0][1]
print(f"{mention['text']} refers to {mention['antecedent']}: {mention['link_score']:.2f}")

# %% mentions
names = ["Anna", "Tom", "He", "him"]
mentions = [(text.index(name), text.index(name) + len(name)) for name in names]
for cluster in resolver.resolve(text, mentions=mentions)["clusters"]:
    print([mention["text"] for mention in cluster])

# %% evaluate
documents = ks.data.coreference.read("examples/data/stories_dev.jsonlines")
print(f"average F1 {resolver.evaluate_clusters(documents)['average_f1']:.1f}")

# %% fit
resolver.compile(ks.TwoRateAdam(1e-5, 1e-4, heads=resolver.head_names()))
resolver.fit(ks.data.coreference.read("examples/data/stories_train.jsonlines"), verbose=0)
resolver.save_to_preset("out/my_resolver")
