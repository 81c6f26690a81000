# Classification: labels for texts. Run it from the root of a clone.

# %% data
head -n 3 examples/data/reviews_train.csv

# %% train
python train.py --task=classification --preset=saved_models/encoder-english \
  --train_data=examples/data/reviews_train.csv --eval_data=examples/data/reviews_dev.csv \
  --epochs=5 --batch_size=8 --learning_rate=2e-4 --output=out/classifier

# %% predict
python train.py --task=classification --preset=out/classifier \
  --predict_data=examples/data/reviews_dev.csv --predictions=out/labels.csv
head -n 3 out/labels.csv
