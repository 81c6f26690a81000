# The files of a run. Run it from the root of a clone.

# %% train
python train.py --task=classification --preset=saved_models/encoder-english \
  --train_data=examples/data/reviews_train.csv --eval_data=examples/data/reviews_dev.csv \
  --epochs=5 --batch_size=8 --learning_rate=2e-4 --output=out/files | grep Wrote

# %% history
cut -d, -f1,8- out/files/history.csv | head -n 3

# %% metrics
grep -v seconds out/files/metrics.json
