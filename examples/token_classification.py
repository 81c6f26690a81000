"""Token classification in Python. Run it from the root of a clone."""

# %% tag
import keras_spanbert as ks

tagger = ks.SpanBertTokenClassifier.from_preset("saved_models/entities-litbank", dtype="float32")
for entity in tagger.tag("The old captain left his ship in the harbor of Nantucket."):
    print(f"{entity['label']}  {entity['text']!r}  score {entity['score']:.2f}")

# %% words
print(tagger.predict_tags([["Bob", "lives", "in", "a", "small", "house", "."]]))

# %% fit
train = ks.data.columns.read_words("examples/data/orders_train.csv")
dev = ks.data.columns.read_words("examples/data/orders_dev.csv")
waiter = ks.SpanBertTokenClassifier.from_preset(
    "saved_models/encoder-english", labels=ks.data.conll.tag_names(train), dtype="float32"
)
waiter.compile(ks.AdamW(3e-4))
waiter.fit(train, batch_size=8, epochs=12, verbose=0)
print(f"F1 {waiter.evaluate_entities(dev)['f1']:.1f}")
for entity in waiter.tag("Bring the chicken soup to the garden."):
    print(f"{entity['label']}  {entity['text']!r}")
waiter.save_to_preset("out/my_waiter")

# %% transformers
ks.checkpoints.to_huggingface(waiter, "out/waiter_bert")
