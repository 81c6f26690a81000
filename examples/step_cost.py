"""The cost of a training step. Run it from the root of a clone."""

# %% cost
import keras_spanbert as ks
from keras_spanbert.runs.cost import InputWait, StepCost, step_flops

corpus = ks.Corpus("examples/data/lighthouse.txt", document_boundary="line")
tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(200))
preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=64)
sizes = ks.SpanBertBackbone.SIZES["tiny"]
pretrainer = ks.SpanBertPretrainer(ks.SpanBertBackbone(tokenizer.vocabulary_size(), **sizes))
pretrainer.compile()
wait = InputWait()
dataset = wait.timed(corpus.training_dataset(preprocessor, batch_size=16, seed=1))
pretrainer.fit(dataset, steps_per_epoch=5, verbose=0)  # The first step compiles.

flops = step_flops(pretrainer, 16, 64, preprocessor.masking.num_predictions(64))
print(f"{flops / 1e9:.2f} GFLOP per step")
cost = StepCost(flops, wait=wait)
start = cost.now()
pretrainer.fit(dataset, steps_per_epoch=10, verbose=0)
print(*cost.figures(start, steps=10))
