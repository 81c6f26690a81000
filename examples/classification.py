"""Classification in Python. Run it from the root of a clone."""

# %% fit
import keras_spanbert as ks

train = ks.data.columns.read_texts("examples/data/reviews_train.csv")
dev = ks.data.columns.read_texts("examples/data/reviews_dev.csv")
print(train[0])
classifier = ks.SpanBertTextClassifier.from_preset(
    "saved_models/encoder-english", class_names=["bad", "good"], dtype="float32"
)
classifier.compile(ks.AdamW(2e-4))
classifier.fit(train, batch_size=8, epochs=4, verbose=0)
print(f"accuracy {classifier.evaluate_texts(dev)['accuracy']:.1f}")
classifier.save_to_preset("out/my_classifier")

# %% classify
for found in classifier.classify(["What a lovely meal!", "The toilet was dirty."]):
    print(found["label"], f"{found['score']:.2f}")

# %% labels
tagger = ks.SpanBertTextClassifier.from_preset(
    "saved_models/encoder-english",
    class_names=["food", "room"],
    multi_label=True,
    dtype="float32",
)
labels_of = {
    "Good soup in a dark room.": ["food", "room"],
    "A clean room.": ["room"],
    "A dark room.": ["room"],
    "A fine soup.": ["food"],
    "Cold soup.": ["food"],
    "Thank you.": [],
}
tagger.compile(ks.AdamW(2e-4))
tagger.fit(list(labels_of), list(labels_of.values()), epochs=20, verbose=0)
print([found["labels"] for found in tagger.classify(["A good soup.", "A cold room."])])

# %% transformers
ks.checkpoints.to_huggingface(classifier, "out/reviews_bert")
