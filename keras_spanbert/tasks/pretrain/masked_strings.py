"""Converts strings to masked batches, with new masks in each epoch of `fit`."""

import keras
import numpy as np

from keras_spanbert.checks import accepts_datasets
from keras_spanbert.data.batches import Batches
from keras_spanbert.data.training_stream import EVALUATION_SEED
from keras_spanbert.distribution import check_even_rows
from keras_spanbert.text.strings import as_strings, replace_surrogates


class CountSteps(keras.callbacks.Callback):
    """Counts the steps of all calls of `fit`.

    On JAX, the optimizer's `iterations` have no value within an epoch.
    """

    def set_model(self, model):
        super().set_model(model)
        # `self.model` would update JAX's state, which is slow at each step.
        self._trained = model

    def on_epoch_begin(self, epoch, logs=None):
        # A recompiled model has a new optimizer. A restored optimizer is ahead.
        optimizer = self.model.optimizer
        updates = int(keras.ops.convert_to_numpy(optimizer.iterations))
        steps = updates * (optimizer.gradient_accumulation_steps or 1)
        self._trained.steps_so_far = max(self._trained.steps_so_far, steps)
        self._batches = 0

    def on_train_batch_end(self, batch, logs=None):
        # With `steps_per_execution`, Keras calls this once for several batches.
        self._trained.steps_so_far += batch + 1 - self._batches
        self._batches = batch + 1


class MaskedStringInputs:
    """Converts strings to the pretrainer's inputs: see `models.fit_strings.StringInputs`."""

    string_callbacks = (CountSteps,)

    @accepts_datasets
    def preprocess(self, x, y=None, sample_weight=None, seed=(EVALUATION_SEED, 0)) -> tuple:
        """Masks strings: see `SpanBertTask.preprocess`. The `seed` determines the masks."""
        self.check_preprocessor()
        return self.preprocessor.call(as_strings("x", x), y, sample_weight, seed=seed)

    def preprocess_batch(self, x, y, sample_weight, number: int, is_training: bool) -> tuple:
        self.check_preprocessor()
        seed = self.preprocessor.masking.base_seed if is_training else EVALUATION_SEED
        return self.preprocess(x, y, sample_weight, seed=(seed, number))

    def preprocess_rows(
        self, x, y, sample_weight, batch_size, shuffle, is_training, needs_labels=True
    ) -> tuple:
        # Batches instead of arrays, so that masks are new in each epoch.
        if y is not None or sample_weight is not None:
            return self.preprocess(x, y, sample_weight)  # Raises an error.
        texts = [replace_surrogates(text) for text in as_strings("x", x)]
        batch_size = batch_size or 32
        if self.next_sentence and (len(texts) - 1) % batch_size == 0:
            raise ValueError(
                "Batches must have at least 2 texts with `next_sentence`, because half of the rows "
                f"take their second segment from another row. Received: batch_size={batch_size} of "
                f"{len(texts)} texts, which leaves one alone"
            )
        check_even_rows(len(texts), batch_size)
        shuffle = is_training and shuffle
        try:
            import tensorflow as tf
        except ImportError:
            # Keras's `set_random_seed` determines the order.
            seed, texts = int(np.random.randint(2**31)), np.array(texts, object)
            rows = Batches(texts, batch_size, seed, whole_epochs=True, shuffle=shuffle, pad=False)
            return self.preprocess_stream("py_dataset", rows, is_training), None, None
        dataset = tf.data.Dataset.from_tensor_slices(texts)
        dataset = dataset.shuffle(len(texts)) if shuffle else dataset
        return self.preprocess_dataset(dataset.batch(batch_size), is_training), None, None

    def preprocess_dataset(self, dataset, is_training: bool):
        import tensorflow as tf

        text, *others = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
        is_text = getattr(text, "dtype", None) == tf.string and text.shape.rank == 1
        if not is_text or others != [None, None]:
            raise ValueError(
                "A dataset for pretraining must have batches `[B]` of strings, or results of the "
                f"preprocessor. Received: element_spec={dataset.element_spec}"
            )
        # Checked here and not in the constructor, because a backbone's preset comes with
        # a preprocessor that has default settings.
        self.check_preprocessor()
        seed = self.preprocessor.masking.base_seed if is_training else EVALUATION_SEED

        @tf.autograph.experimental.do_not_convert  # AutoGraph would change error messages.
        def preprocess(number, batch):
            text, *_ = keras.utils.unpack_x_y_sample_weight(batch)
            return self.preprocessor.call(text, seed=tf.stack([np.int64(seed), number]))

        # Read when an iterator is created, at the start of an epoch. Masks are then new in
        # each epoch, and a resumed run gets the same masks as an uninterrupted one.
        first_step = tf.data.Dataset.from_tensors(np.int64(0))
        if is_training:
            first_step = first_step.map(
                lambda _: tf.numpy_function(lambda: np.int64(self.steps_so_far), [], tf.int64)
            )
        steps = first_step.flat_map(
            lambda first: dataset.enumerate(first).map(
                preprocess, tf.data.AUTOTUNE, deterministic=True
            )
        )
        # The number of batches of a text file is unknown until it has been read.
        if (num_batches := int(dataset.cardinality())) != tf.data.UNKNOWN_CARDINALITY:
            steps = steps.apply(tf.data.experimental.assert_cardinality(num_batches))
        return steps.prefetch(tf.data.AUTOTUNE)
