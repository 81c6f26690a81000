# Several devices: two processes of PyTorch on one machine. Run it from the root of a clone.

# %% torchrun
export KERAS_BACKEND=torch
torchrun --nproc_per_node=2 train.py --preset=saved_models/encoder-english \
  --train_data=examples/data/lighthouse.txt --document_boundary=line --sequence_length=64 \
  --batch_size=16 --steps=6 --eval_steps=1 --output=out/two_devices | grep "^step"
