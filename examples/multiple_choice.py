"""Multiple choice in Python. Run it from the root of a clone."""

# %% fit
import keras_spanbert as ks

choices = ["choice0", "choice1", "choice2"]
train = ks.data.columns.read_choices("examples/data/quiz_train.csv", choices=choices)
dev = ks.data.columns.read_choices("examples/data/quiz_dev.csv", choices=choices)
print(train[0])
chooser = ks.SpanBertMultipleChoice.from_preset("saved_models/encoder-english", dtype="float32")
chooser.compile(ks.AdamW(ks.LinearWarmupDecay(3e-4, warmup_steps=3, total_steps=30)))
chooser.fit(train, batch_size=6, epochs=6, verbose=0)
print(f"accuracy {chooser.evaluate_choices(dev)['accuracy']:.1f}")
chooser.save_to_preset("my_chooser")

# %% choose
found = chooser.choose("Who drives a bus?", ["A driver.", "A spoon.", "A tree."])
print(found["choice"], [round(score, 2) for score in found["scores"]])

# %% contexts
questions = ["Who has a dog?", "What does she do?"]
choices = [["Ann.", "Bob.", "Eve."], ["She sings.", "She sleeps."]]
contexts = ["Ann has a dog, Bob a cat.", ""]  # The second question has none.
for found in chooser.choose(questions, choices, contexts):
    print(found["choice"], len(found["scores"]))
