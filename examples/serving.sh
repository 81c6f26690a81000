# Serving: a SavedModel that takes strings. Run it from the root of a clone.

# %% export
python train.py --task=question_answering --preset=saved_models/question-answering-squad \
  --export=served/answers
ls served/answers/1
