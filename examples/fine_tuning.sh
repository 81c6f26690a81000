# Several runs, and LoRA. Run it from the root of a clone.

# %% plan
cat examples/data/rates.json

# %% lora
python train.py --lora_rank=8 --learning_rate=2e-3 --epochs=8 --eval_every=20 --batch_size=8 \
  --task=classification --preset=saved_models/encoder-english \
  --train_data=examples/data/reviews_train.csv --eval_data=examples/data/reviews_dev.csv \
  --output=out/reviews_lora | grep -E "^step|parameters|score"
