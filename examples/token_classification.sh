# Token classification: people and places, or labels of your own. Run it from the root of a clone.

# %% data
head -n 3 examples/data/orders_train.csv

# %% train
python train.py --task=token_classification --preset=saved_models/encoder-english \
  --train_data=examples/data/orders_train.csv --eval_data=examples/data/orders_dev.csv \
  --epochs=16 --eval_every=16 --batch_size=8 --learning_rate=3e-4 --output=out/orders

# %% predict
python train.py --task=token_classification --preset=out/orders \
  --predict_data=examples/data/orders.txt --predictions=out/found.jsonl
cat examples/data/orders.txt
