# Resuming a run. Run it from the root of a clone.

# %% stop
mkdir -p out
python train.py --train_data=examples/data/lighthouse.txt --document_boundary=line \
  --vocabulary_size=300 --batch_size=8 --steps=600 --eval_every=200 --eval_steps=2 \
  --checkpoint_every=200 --output=out/log > out/log.txt &
until [ -d out/log/checkpoints/step-200 ]; do sleep 0.1; done
kill -9 $!  # As in a crash.
ls out/log/checkpoints

# %% resume
python train.py --resume --output=out/log | grep -E "^(Continuing|step)"
