# The cost of a training step. Run it from the root of a clone.

# %% train
python train.py --size=mini --train_data=examples/data/lighthouse.txt --document_boundary=line \
  --vocabulary_size=300 --sequence_length=64 --batch_size=8 --steps=20 --eval_every=10 --eval_steps=1 \
  --output=saved_models/cost
head -n 1 saved_models/cost/history.csv | cut -d, -f1-8
