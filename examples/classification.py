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
classifier.save_to_preset("my_classifier")

# %% classify
for found in classifier.classify(["What a lovely meal!", "The toilet was dirty."]):
    print(found["label"], f"{found['score']:.2f}")

# %% lists
classifier.fit(["A fine soup.", "A cold soup."], ["good", "bad"], verbose=0)

# %% pairs
pairs = {"text": ["It rains.", "It rains."], "text_pair": ["It is wet.", "It is dry."]}
entailment = ks.SpanBertTextClassifier.from_preset(
    "saved_models/encoder-english", class_names=["no", "yes"], dtype="float32"
)
entailment.fit(pairs, ["yes", "no"], verbose=0)

# %% labels
tagger = ks.SpanBertTextClassifier.from_preset(
    "saved_models/encoder-english",
    class_names=["food", "room"],
    multi_label=True,
    dtype="float32",
)
texts = ["Cold soup in a dark room.", "A clean room.", "Thank you."]
tagger.fit(texts, [["food", "room"], ["room"], []], verbose=0)

# %% transformers
ks.checkpoints.to_huggingface(classifier, "reviews_bert")  # A BertForSequenceClassification.
