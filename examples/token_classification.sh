# Token classification: people and places, or labels of your own. Run it from the root of a clone.

# %% tag
python train.py --task=token_classification --preset=saved_models/entities-litbank \
  --predict_data=examples/data/story.txt --predictions=people.jsonl
head -n 3 people.jsonl

# %% data
head -n 4 examples/data/orders_train.csv

# %% train
python train.py --task=token_classification --preset=saved_models/encoder-english \
  --train_data=examples/data/orders_train.csv --eval_data=examples/data/orders_dev.csv \
  --epochs=8 --batch_size=8 --learning_rate=2e-4 --output=saved_models/orders

# %% predict
cat examples/data/orders.txt
python train.py --task=token_classification --preset=saved_models/orders \
  --predict_data=examples/data/orders.txt --predictions=found.jsonl
cat found.jsonl
