"""Fine-tuning with LoRA in Python. Run it from the root of a clone."""

# %% lora
import keras_spanbert as ks

train = ks.data.columns.read_texts("examples/data/reviews_train.csv")
dev = ks.data.columns.read_texts("examples/data/reviews_dev.csv")


def load():
    return ks.SpanBertTextClassifier.from_preset(
        "saved_models/encoder-english", class_names=["bad", "good"], dtype="float32"
    )


classifier = load()
classifier.backbone.enable_lora(rank=8)
trained = sum(weight.numpy().size for weight in classifier.trainable_weights)
print(f"{trained:,} of {classifier.count_params():,} parameters are trained")
classifier.compile(ks.AdamW(2e-3))
classifier.fit(train, batch_size=8, epochs=8, verbose=0)
print(f"accuracy {classifier.evaluate_texts(dev)['accuracy']:.1f}")

# %% save
import os

classifier.backbone.save_lora_weights("reviews.lora.h5")
classifier.save_task_weights("reviews.weights.h5")
print(f"{os.path.getsize('reviews.lora.h5') / 1e6:.1f} MB")

again = load()
again.backbone.load_lora_weights("reviews.lora.h5")
again.load_task_weights("reviews.weights.h5")
again.merge_lora()  # For example before `again.quantize("int8")`.
print(again.classify("What a lovely meal!")["label"])
