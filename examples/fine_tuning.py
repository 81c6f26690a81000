"""Fine-tuning with LoRA in Python. Run it from the root of a clone."""

# %% lora
import keras_spanbert as ks

train = ks.data.columns.read_texts("examples/data/reviews_train.csv")
dev = ks.data.columns.read_texts("examples/data/reviews_dev.csv")
classifier = ks.SpanBertTextClassifier.from_preset(
    "saved_models/encoder-english", class_names=["bad", "good"], dtype="float32"
)
classifier.backbone.enable_lora(rank=8)
trained = sum(weight.numpy().size for weight in classifier.trainable_weights)
print(f"{trained:,} of {classifier.count_params():,} parameters are trained")
classifier.compile(ks.AdamW(2e-3))
classifier.fit(train, batch_size=8, epochs=8, verbose=0)
print(f"accuracy {classifier.evaluate_texts(dev)['accuracy']:.1f}")
classifier.save_to_preset("out/my_lora")
