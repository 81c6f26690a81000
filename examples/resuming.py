"""Checkpoints of a run in Python. Run it from the root of a clone."""

# %% checkpoint
import keras_spanbert as ks

corpus = ks.Corpus("examples/data/lighthouse.txt", document_boundary="line")
tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(200))
preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=64)
sizes = ks.SpanBertBackbone.SIZES["tiny"]
backbone = ks.SpanBertBackbone(tokenizer.vocabulary_size(), **sizes)
pretrainer = ks.SpanBertPretrainer(backbone)
pretrainer.compile(ks.AdamW(1e-3))
stream = ks.TrainingStream(corpus, preprocessor, batch_size=16, seed=1)
checkpoint = ks.TrainingCheckpoint("out/my_checkpoints", every=10, data=stream)
pretrainer.fit(stream.dataset(), steps_per_epoch=10, epochs=2, callbacks=[checkpoint], verbose=0)
print("newest checkpoint", checkpoint.newest)
