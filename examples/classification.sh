# Classification: labels for texts. Run it from the root of a clone.

# %% data
head -n 5 examples/data/reviews_train.csv

# %% train
python train.py --task=classification --preset=saved_models/encoder-english \
  --train_data=examples/data/reviews_train.csv --eval_data=examples/data/reviews_dev.csv \
  --epochs=5 --batch_size=8 --learning_rate=2e-4 --output=saved_models/reviews

# %% predict
python train.py --task=classification --preset=saved_models/reviews \
  --predict_data=examples/data/reviews_dev.csv --predictions=labels.csv
head -n 4 labels.csv
