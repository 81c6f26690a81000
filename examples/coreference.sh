# Coreference: who is who in a story. Run it from the root of a clone: `bash examples/coreference.sh`.

# %% clusters
python train.py --task=coreference --preset=saved_models/coreference-litbank \
  --predict_data=examples/data/story.txt --html=story.html

# %% data
head -n 1 examples/data/stories_train.jsonlines

# %% train
python train.py --task=coreference --preset=saved_models/coreference-litbank \
  --train_data=examples/data/stories_train.jsonlines --eval_data=examples/data/stories_dev.jsonlines \
  --epochs=2 --learning_rate=1e-5 --head_learning_rate=1e-4 --output=saved_models/stories

# %% predict
python train.py --task=coreference --preset=saved_models/stories \
  --predict_data=examples/data/story.txt --predictions=clusters.jsonl
python -m json.tool clusters.jsonl | sed -n 1,24p
