# Continue from a checkpoint of another library. Run it from the root of a clone.

# %% convert
python -m keras_spanbert.checkpoints saved_models/encoder-novels for_transformers
ls for_transformers

# %% train
python train.py --preset=for_transformers --train_data=examples/data/lighthouse.txt \
  --document_boundary=line --sequence_length=64 --batch_size=16 --steps=10 --eval_steps=2 \
  --learning_rate=3e-4 --output=saved_models/continued
