"""Pretraining in Python. Run it from the root of a clone."""

# %% fill
import keras_spanbert as ks

pretrainer = ks.SpanBertPretrainer.from_preset("saved_models/encoder-english", dtype="float32")
sentence = "She opened the [MASK] and read the letter."
for candidate in pretrainer.fill(sentence, top_k=3)[0]:
    print(f"{candidate['text']}  MLM {candidate['mlm']:.2f}  SBO {candidate['sbo']:.2f}")

# %% strings
with open("examples/data/lighthouse.txt") as file:
    lines = file.read().splitlines()
log = "I lit the [MASK] at eight in the evening."
preset = "saved_models/encoder-english"
preprocessor = ks.SpanBertPretrainerPreprocessor.from_preset(preset, sequence_length=64)
pretrainer = ks.SpanBertPretrainer.from_preset(preset, preprocessor=preprocessor, dtype="float32")
print(pretrainer.fill(log)[0][0]["text"])
pretrainer.compile(ks.AdamW(3e-4))
pretrainer.fit(lines, batch_size=16, epochs=4, verbose=0)
print(pretrainer.fill(log)[0][0]["text"])
pretrainer.save_to_preset("out/my_pretrainer")

# %% scratch
corpus = ks.Corpus("examples/data/lighthouse.txt", document_boundary="line", held_out=0.1)
tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(200))
preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=64)
small = ks.SpanBertPretrainer(
    ks.SpanBertBackbone(tokenizer.vocabulary_size(), **ks.SpanBertBackbone.SIZES["tiny"]),
    preprocessor,
)
small.compile(ks.AdamW(ks.LinearWarmupDecay(1e-3, warmup_steps=5, total_steps=40)))
history = small.fit(
    corpus.training_dataset(preprocessor, batch_size=16, seed=1),
    steps_per_epoch=20,
    epochs=2,
    verbose=0,
).history
print([round(loss, 1) for loss in history["loss"]])
