# Continue from a checkpoint of another library. Run it from the root of a clone.

# %% write
python -c '
import keras_spanbert as ks

pretrainer = ks.SpanBertPretrainer.from_preset("saved_models/encoder-english", dtype="float32")
ks.checkpoints.to_huggingface(pretrainer, "english_bert")
'
ls english_bert

# %% convert
python -m keras_spanbert.checkpoints english_bert saved_models/from_huggingface | tail -n 4

# %% train
python train.py --preset=english_bert --train_data=examples/data/lighthouse.txt \
  --document_boundary=line --sequence_length=64 --batch_size=16 --steps=10 --eval_steps=2 \
  --learning_rate=3e-4 --output=saved_models/continued
