# Multiple choice: the right answer of several. Run it from the root of a clone.

# %% data
head -n 4 examples/data/quiz_train.csv

# %% train
python train.py --task=multiple_choice --preset=saved_models/encoder-english \
  --train_data=examples/data/quiz_train.csv --eval_data=examples/data/quiz_dev.csv \
  --choice_columns=choice0,choice1,choice2 \
  --epochs=6 --eval_every=15 --batch_size=6 --learning_rate=3e-4 --output=saved_models/quiz

# %% predict
python train.py --task=multiple_choice --preset=saved_models/quiz --choice_columns=choice0,choice1,choice2 \
  --predict_data=examples/data/quiz_dev.csv --predictions=choices.csv
head -n 4 choices.csv
