# Coreference: who is who in a story. Run it from the root of a clone: `bash examples/coreference.sh`.

# %% clusters
mkdir -p out
python train.py --task=coreference --preset=saved_models/coreference-litbank \
  --predict_data=examples/data/story.txt --html=out/story.html | head -n 6

# %% data
head -n 1 examples/data/stories_train.jsonlines

# %% train
python train.py --task=coreference --preset=saved_models/coreference-litbank \
  --train_data=examples/data/stories_train.jsonlines --eval_data=examples/data/stories_dev.jsonlines \
  --epochs=2 --learning_rate=1e-5 --head_learning_rate=1e-4 --output=out/stories

# %% predict
python train.py --task=coreference --preset=out/stories \
  --predict_data=examples/data/story.txt --predictions=out/clusters.jsonl | tail -n 1
python -m json.tool out/clusters.jsonl | sed -n 1,12p
