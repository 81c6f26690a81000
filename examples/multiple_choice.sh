# Multiple choice: the right answer of several. Run it from the root of a clone.

# %% data
head -n 3 examples/data/quiz_train.csv

# %% train
python train.py --task=multiple_choice --preset=saved_models/encoder-english \
  --train_data=examples/data/quiz_train.csv --eval_data=examples/data/quiz_dev.csv \
  --choice_columns=choice0,choice1,choice2 \
  --epochs=10 --eval_every=25 --batch_size=6 --learning_rate=3e-4 --output=out/quiz

# %% predict
python train.py --task=multiple_choice --preset=out/quiz --choice_columns=choice0,choice1,choice2 \
  --predict_data=examples/data/quiz_dev.csv --predictions=out/choices.csv
head -n 3 out/choices.csv
