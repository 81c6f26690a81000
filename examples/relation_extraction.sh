# Relation extraction: who founded which company. Run it from the root of a clone.

# %% data
head -n 4 examples/data/people_train.csv

# %% train
NAMES="--text_column=sentence --subject_columns=who_start,who_end --object_columns=what_start,what_end"
python train.py --task=relation_extraction --preset=saved_models/encoder-english \
  --train_data=examples/data/people_train.csv --eval_data=examples/data/people_dev.csv \
  $NAMES --negative_label=none --epochs=6 --batch_size=8 --learning_rate=2e-4 --output=saved_models/people

# %% predict
python train.py --task=relation_extraction --preset=saved_models/people $NAMES \
  --predict_data=examples/data/people_dev.csv --predictions=relations.csv
head -n 4 relations.csv
