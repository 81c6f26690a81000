# Recipes of train.py. Run it from the root of a clone.

# %% patience
python train.py --task=classification --preset=saved_models/encoder-english \
  --train_data=examples/data/reviews_train.csv --eval_data=examples/data/reviews_dev.csv \
  --epochs=20 --patience=2 --batch_size=8 --learning_rate=2e-4 --output=out/early \
  | grep Stopping

# %% small
python train.py --task=prepare --train_data=examples/data/lighthouse.txt \
  --document_boundary=line --vocabulary_size=300 --sequence_length=64 --output=out/lighthouse_blocks
python train.py --flagfile=configs/spanbert_base.cfg --train_data=out/lighthouse_blocks \
  --size=tiny --sequence_length=64 --dtype=float32 --batch_size=8 \
  --steps=10 --warmup_steps=2 --eval_every=5 --output=out/lighthouse_model | grep step
