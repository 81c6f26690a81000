# Pretraining on a text of your own. Run it from the root of a clone.

# %% data
head -n 1 examples/data/lighthouse.txt

# %% train
python train.py --preset=saved_models/encoder-english --train_data=examples/data/lighthouse.txt \
  --document_boundary=line --sequence_length=64 --batch_size=16 --steps=30 --learning_rate=3e-4 \
  --eval_every=10 --eval_steps=2 --output=out/lighthouse

# %% prepare
python train.py --task=prepare --preset=saved_models/encoder-english \
  --train_data=examples/data/lighthouse.txt --document_boundary=line --sequence_length=64 \
  --output=out/prepared
ls out/prepared
