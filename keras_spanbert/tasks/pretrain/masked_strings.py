"""Strings to masked batches, which are fresh in each epoch of `fit`."""

from collections.abc import Callable

import keras
import numpy as np

from keras_spanbert import distribution
from keras_spanbert.data.masked_batches import EVALUATION_SEED, masked
from keras_spanbert.distribution import check_rows
from keras_spanbert.models import batches
from keras_spanbert.models.strings import as_strings, well_formed


class MaskedStringInputs:
    """What the pretrainer makes of strings: see `models.string_inputs.StringInputs`."""

    def preprocess(self, x, y=None, sample_weight=None, seed=(EVALUATION_SEED, 0)) -> tuple:
        """Strings, masked: see `SpanBertTask.preprocess`. The `seed` fixes the masks."""
        if y is not None or sample_weight is not None:
            raise ValueError(
                "Strings are labels and weights to themselves, so that `y` and `sample_weight` "
                f"must be None. Received: y={y!r:.80}, sample_weight={sample_weight!r:.80}"
            )
        self.check_preprocessor()
        return self.preprocessor(as_strings(x=x), seed=seed)

    def start_preprocessing(self, is_training: bool) -> Callable:
        first = self._steps_so_far if is_training else 0

        def mask(number, x, y, sample_weight):
            self.check_preprocessor()
            seed = self.preprocessor.masking.base_seed if is_training else EVALUATION_SEED
            return self.preprocess(x, y, sample_weight, seed=(seed, first + number))

        return mask

    def preprocess_rows(
        self, x, y, sample_weight, batch_size, shuffle, is_training, needs_labels=True
    ) -> tuple:
        # Batches and not arrays, so that masks are fresh in each epoch.
        if y is not None or sample_weight is not None:
            self.preprocess(x, y, sample_weight)  # Says so.
        texts = [well_formed(text) for text in as_strings(x=x)]
        batch_size = batch_size or 32
        if self.next_sentence and len(texts) % batch_size == 1 % batch_size:
            raise ValueError(
                "Batches must have 2 texts or more with `next_sentence`: half of the rows take "
                f"their second segment from another one. Received: batch_size={batch_size} of "
                f"{len(texts)} texts, which leaves one alone"
            )
        check_rows(len(texts), batch_size)
        try:
            import tensorflow as tf
        except ImportError:
            dataset = batches.Rows(texts, batch_size)
        else:
            dataset = tf.data.Dataset.from_tensor_slices(texts)
            dataset = dataset.shuffle(len(texts)) if shuffle else dataset
            dataset = dataset.batch(batch_size)
        return self._preprocessed(dataset, is_training=is_training)

    def preprocess_dataset(self, dataset, is_training: bool):
        return masked_strings(self, dataset, is_training)

    def string_callbacks(self) -> list[keras.callbacks.Callback]:
        return [CountSteps()]


def masked_strings(pretrainer, dataset, is_training: bool):
    """Batches of strings as the pretrainer's preprocessor masks them.

    Args:
        pretrainer: `SpanBertPretrainer`.
        dataset: `tf.data.Dataset` of strings `[B]`.
        is_training: bool. Whether masks go on from the steps so far, by the
            preprocessor's seed; else they are those of an evaluation.
    """
    import tensorflow as tf

    text, *others = batches.unpack(dataset.element_spec)
    is_text = getattr(text, "dtype", None) == tf.string and text.shape.rank == 1
    if not is_text or others != [None, None]:
        raise ValueError(
            "A dataset to pretrain on must give batches `[B]` of strings, or what the "
            f"preprocessor returns. Received: element_spec={dataset.element_spec}"
        )
    # Here and not in the constructor: a backbone's preset brings a
    # preprocessor with defaults of its own.
    pretrainer.check_preprocessor()
    packed = dataset.map(
        lambda *batch: pretrainer.preprocessor.pack(batch[0]), num_parallel_calls=tf.data.AUTOTUNE
    )
    if not is_training:
        return masked(packed, pretrainer.preprocessor, EVALUATION_SEED).prefetch(tf.data.AUTOTUNE)

    # Read whenever an iterator is made, at an epoch's begin, so that masks are fresh in
    # each, and in a run that goes on are those that it would have had.
    first_step = tf.data.Dataset.from_tensors(0).map(
        lambda _: tf.numpy_function(lambda: np.int64(pretrainer._steps_so_far), [], tf.int64)
    )
    seed = pretrainer.preprocessor.masking.base_seed
    steps = first_step.flat_map(lambda step: masked(packed, pretrainer.preprocessor, seed, step))
    steps = steps.apply(tf.data.experimental.assert_cardinality(dataset.cardinality()))
    return steps.prefetch(tf.data.AUTOTUNE)


class CountSteps(keras.callbacks.Callback):
    """Notes the steps of all calls of `fit`: within an epoch JAX's optimizer cannot be asked."""

    def set_model(self, model):
        super().set_model(model)
        # `self.model` would bring JAX's state up to date, which is dear at each step.
        self._trained = model

    def on_epoch_begin(self, epoch, logs=None):
        # An optimizer begins anew when the model is compiled again; one that was restored is ahead.
        iterations = int(distribution.to_numpy(self.model.optimizer.iterations))
        self._trained._steps_so_far = max(self._trained._steps_so_far, iterations)
        self._batches = 0

    def on_train_batch_end(self, batch, logs=None):
        # Several at once where the model has `steps_per_execution`.
        self._trained._steps_so_far += batch + 1 - self._batches
        self._batches = batch + 1
