# Continue from a checkpoint of another library. Run it from the root of a clone.

# %% write
python -c '
import keras_spanbert as ks

pretrainer = ks.SpanBertPretrainer.from_preset("saved_models/encoder-english", dtype="float32")
ks.checkpoints.to_huggingface(pretrainer, "out/english_bert")
'
ls out/english_bert

# %% convert
python -m keras_spanbert.checkpoints out/english_bert out/from_huggingface | tail -n 3
