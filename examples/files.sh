# The files of a run. Run it from the root of a clone.

# %% train
python train.py --task=classification --preset=saved_models/question-answering-squad \
  --train_data=examples/data/reviews_train.csv --eval_data=examples/data/reviews_dev.csv \
  --epochs=2 --batch_size=8 --learning_rate=2e-4 --output=saved_models/two_epochs
ls saved_models/two_epochs

# %% history
cut -d, -f1,8- saved_models/two_epochs/history.csv

# %% metrics
grep -v seconds saved_models/two_epochs/metrics.json

# %% run
sed -n '/"given"/,$p' saved_models/two_epochs/run.json
