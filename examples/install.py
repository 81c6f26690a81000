"""Checks an installation. Run it from the root of a clone: `python examples/install.py`."""

# %% check
import keras_spanbert as ks

story = (
    "Anna met her brother Tom at the station in Leeds. "
    "He had lost his coat, and she gave him hers. "
    "The train to York left at noon. An old sailor sat by the window and told them about his ship."
)
resolver = ks.SpanBertCoreferenceResolver.from_preset(
    "saved_models/coreference-litbank", dtype="float32"
)
for cluster in resolver.resolve(story)["clusters"]:
    if len(cluster) > 1:
        print([mention["text"] for mention in cluster])
