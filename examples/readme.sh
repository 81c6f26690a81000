# The first fine-tuning. Run it from the root of a clone.

# %% train
python train.py --task=classification --preset=saved_models/encoder-english \
  --train_data=examples/data/reviews_train.csv --eval_data=examples/data/reviews_dev.csv \
  --epochs=6 --eval_every=15 --batch_size=8 --learning_rate=2e-4 --output=out/reviews
