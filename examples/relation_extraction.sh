# Relation extraction: who founded which company. Run it from the root of a clone.

# %% data
head -n 4 examples/data/people_train.csv

# %% train
FLAGS="--text_column=sentence --subject_columns=who_start,who_end --object_columns=what_start,what_end"
python train.py --task=relation_extraction --preset=saved_models/encoder-english \
  --train_data=examples/data/people_train.csv --eval_data=examples/data/people_dev.csv \
  $FLAGS --negative_label=none --epochs=15 --eval_every=15 --batch_size=8 --learning_rate=2e-4 --output=out/people

# %% predict
python train.py --task=relation_extraction --preset=out/people $FLAGS \
  --predict_data=examples/data/people_dev.csv --predictions=out/relations.csv
head -n 4 out/relations.csv
