"""Relation extraction in Python. Run it from the root of a clone."""

# %% fit
import keras_spanbert as ks

columns = {
    "text": "sentence",
    "subject": ("who_start", "who_end"),
    "object": ("what_start", "what_end"),
}
train = ks.data.columns.read_relations("examples/data/people_train.csv", **columns)
dev = ks.data.columns.read_relations("examples/data/people_dev.csv", **columns)
extractor = ks.SpanBertRelationExtractor.from_preset(
    "saved_models/encoder-english",
    relations=["none", "founded", "works_for"],  # The scores leave out the first one.
    preprocessor=ks.SpanBertRelationExtractorPreprocessor.from_preset(
        "saved_models/encoder-english", sequence_length=64, mode="text"
    ),
    dtype="float32",
)
extractor.compile(ks.AdamW(2e-4))
extractor.fit(train, batch_size=8, epochs=10, verbose=0)
print(f"F1 {extractor.evaluate_relations(dev)['f1']:.1f}")
extractor.save_to_preset("out/my_extractor")

# %% extract
text = "Ann Berg founded Acme with her sister."
print(extractor.extract(text, (0, 8), (17, 21))["relation"])
