"""The same batches as a `tf.data.Dataset` and as a `keras.utils.PyDataset`."""

import keras
import tensorflow as tf

KINDS = ["dataset", "py_dataset"]


class Batches(keras.utils.PyDataset):
    def __init__(self, batches, **kwargs):
        super().__init__(**kwargs)
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def stream(kind, batches):
    """A stream of batches, nests of lists or arrays."""
    if kind == "dataset":
        as_arrays = [keras.tree.map_structure_up_to(_outline(b), tf.constant, b) for b in batches]
        datasets = [tf.data.Dataset.from_tensors(b) for b in as_arrays]
        joined = datasets[0]
        for dataset in datasets[1:]:
            joined = joined.concatenate(dataset)
        return joined
    # With several threads, Keras drops the batch that it uses to build the model.
    are_strings = not hasattr(keras.tree.flatten(batches)[0], "dtype")
    return Batches(batches, workers=2 if are_strings else 1)


def _outline(batch):
    """Converts lists, which are columns, to arrays."""
    if isinstance(batch, dict):
        return {name: _outline(value) for name, value in batch.items()}
    return tuple(map(_outline, batch)) if isinstance(batch, tuple) else 0
