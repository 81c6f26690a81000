# Entity masks from the command line. Run it from the root of a clone.

# %% entities
python train.py --task=prepare --span_annotator=saved_models/entities-litbank \
  --train_data=examples/data/story.txt --document_boundary=line --output=out/prepared_spans | tail -n 1
python train.py --masking_scheme=entity --train_data=out/prepared_spans --steps=20 --batch_size=8 \
  --output=out/entity_masks | tail -n 1
