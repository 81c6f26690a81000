"""Makes `import keras_spanbert.data.swag` work: see `choices.ChoiceBenchmark`."""

from keras_spanbert.data.choices import swag

read, write_predictions = swag.read, swag.write_predictions
