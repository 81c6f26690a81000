"""Multiple choice in Python. Run it from the root of a clone."""

# %% fit
import keras_spanbert as ks

choices = ["choice0", "choice1", "choice2"]
train = ks.data.columns.read_choices("examples/data/quiz_train.csv", choices=choices)
dev = ks.data.columns.read_choices("examples/data/quiz_dev.csv", choices=choices)
chooser = ks.SpanBertMultipleChoice.from_preset("saved_models/encoder-english", dtype="float32")
chooser.compile(ks.AdamW(ks.LinearWarmupDecay(3e-4, warmup_steps=3, total_steps=50)))
chooser.fit(train, batch_size=6, epochs=10, verbose=0)
print(f"accuracy {chooser.evaluate_choices(dev)['accuracy']:.1f}")
chooser.save_to_preset("out/my_chooser")

# %% choose
found = chooser.choose("The bus came.", ["The driver sold tickets.", "The soup was cold."])
print(found["choice"], [round(score, 2) for score in found["scores"]])
