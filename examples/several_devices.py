"""Training on all devices. Run it from the root of a clone, or with `torchrun`."""

# %% distribute
import keras_spanbert as ks

distribution = ks.distribute()  # Before anything else touches the backend.
corpus = ks.Corpus("examples/data/lighthouse.txt", document_boundary="line")
tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(200))
preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=64)
corpus = corpus.prepared(preprocessor)
counts, _ = corpus.token_counts()
# Random tokens are drawn from these counts, not from the batch, so a process needs only its rows.
stream = ks.TrainingStream(corpus, preprocessor, batch_size=16, seed=1, unigram_counts=counts)
with distribution.scope():
    sizes = ks.SpanBertBackbone.SIZES["tiny"]
    backbone = ks.SpanBertBackbone(tokenizer.vocabulary_size(), **sizes)
    pretrainer = ks.SpanBertPretrainer(backbone)
    pretrainer.compile(ks.AdamW(1e-3))
pretrainer.fit(distribution.dataset(stream), steps_per_epoch=10, verbose=0)
if distribution.is_main:
    pretrainer.save_to_preset("out/my_model")
    print("devices:", distribution.num_devices)
