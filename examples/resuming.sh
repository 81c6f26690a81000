# Resuming a run. Run it from the root of a clone.

# %% stop
timeout --signal=INT 60 python train.py --size=tiny --train_data=examples/data/lighthouse.txt \
  --document_boundary=line --sequence_length=64 --vocabulary_size=300 --batch_size=16 \
  --steps=100000 --checkpoint_every=20 --eval_steps=1 --output=saved_models/log || true

# %% resume
echo resume
