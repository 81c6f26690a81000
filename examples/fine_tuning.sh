# Several runs: seeds and learning rates. Run it from the root of a clone.

# %% plan
cat examples/data/rates.json

# %% compare
spanbert-compare examples/data/rates.json rates --num_seeds=2

# %% predict
python train.py --task=classification --preset=rates/2e-4/seed-0/train \
  --predict_data=examples/data/reviews_dev.csv --predictions=best.csv
head -n 3 best.csv
