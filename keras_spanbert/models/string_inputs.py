"""`fit`, `evaluate` and `predict` on strings and arrays, for every task."""

import numbers
from collections.abc import Callable

import keras

from keras_spanbert import distribution
from keras_spanbert.checks import accepts_datasets, check_counts, check_number_or_none
from keras_spanbert.keras_private import build_training
from keras_spanbert.models import batches
from keras_spanbert.models.labels import check_label_arrays
from keras_spanbert.models.one_thread import one_thread, one_thread_on_all_backends


class StringInputs:
    """Mixin of tasks that converts all data that `fit` accepts to the model's arrays.

    A task can override how strings are converted: all rows at once (`preprocess`),
    or batch by batch (the methods after it).
    """

    @accepts_datasets
    def preprocess(self, x, y=None, sample_weight=None) -> tuple:
        """Converts strings to arrays with the preprocessor.

        Args:
            x: input of the preprocessor: all rows, or a batch of them.
            y: labels of the rows, or `None`.
            sample_weight: weights of the rows, or `None`.

        Returns:
            `(x, y, sample_weight)`. Items that are not given are `None`.
        """
        self.check_preprocessor()
        return keras.utils.unpack_x_y_sample_weight(self.preprocessor.call(x, y, sample_weight))

    def start_preprocessing(self, is_training: bool) -> Callable:
        """Returns the function that converts the batches of one pass over the data.

        Returns:
            Function of the batch's number, x, y and sample weight. It returns arrays
            as `preprocess` does.
        """
        return lambda number, x, y, sample_weight: self.preprocess(x, y, sample_weight)

    def preprocess_dataset(self, dataset, is_training: bool):
        """Returns a `tf.data.Dataset` that converts batches of strings to arrays."""
        import tensorflow as tf

        @tf.autograph.experimental.do_not_convert  # AutoGraph would change error messages.
        def preprocess(*batch):
            arrays = self.preprocess(*keras.utils.unpack_x_y_sample_weight(batch))
            return keras.utils.pack_x_y_sample_weight(*arrays)

        mapped = dataset.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE)
        return mapped.prefetch(tf.data.AUTOTUNE)

    def preprocess_rows(
        self, x, y, sample_weight, batch_size, shuffle, is_training, needs_labels=True
    ) -> tuple:
        """Converts rows of strings to arrays `(x, y, sample_weight)`, or to batches of them as `x`.

        Without `needs_labels`, as in `predict`, the rows keep their order.
        """
        return self.preprocess(x, y, sample_weight)

    def number_class_weight(self, class_weight: dict) -> dict:
        """Returns `class_weight` with the numbers of classes instead of their names.

        Raises:
            ValueError: if a key is neither a class name nor an integer, or the model
                does not support `class_weight`.
        """
        names = list(getattr(self.preprocessor, "label_names", None) or [])
        for key in class_weight:
            if key not in names and not isinstance(key, numbers.Integral):
                raise ValueError(
                    "The keys of `class_weight` must be class names or numbers. Received: "
                    f"{key!r}, with the class names {names}"
                )
        return {names.index(k) if k in names else k: w for k, w in class_weight.items()}

    def string_callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns the callbacks that `fit` adds if it is called on strings."""
        return []

    @accepts_datasets
    def _preprocess_inputs(
        self,
        x,
        y=None,
        sample_weight=None,
        batch_size=None,
        shuffle=None,
        is_training=False,
        needs_labels=True,
    ):
        """Converts x, y and sample weight of any kind to data that Keras accepts."""
        if batch_size is not None:
            check_counts(batch_size=batch_size)
        if batches.is_preprocessed(x):
            # Preprocessors return tuples.
            is_tuple = isinstance(x, tuple) and y is None
            arrays = batches.unpack(x) if is_tuple else (x, y, sample_weight)
            if needs_labels:
                check_label_arrays(self, *arrays)
            return arrays
        if not batches.is_stream(x):
            batches.check_rows(x)
            x, y, sample_weight = self.preprocess_rows(
                x, y, sample_weight, batch_size, shuffle, is_training, needs_labels
            )
            if not batches.is_stream(x):  # If a task returns batches, they include the labels.
                _check_labels(y, needs_labels)
            return x, y, sample_weight
        if y is not None or sample_weight is not None:
            raise ValueError(
                "`y` and `sample_weight` must be None, because batches include them. Received: "
                f"x of type {type(x).__name__}, y of type "
                f"{type(y).__name__}, sample_weight of type {type(sample_weight).__name__}"
            )

        def start():
            preprocess = self.start_preprocessing(is_training)

            def labelled(number, *batch):
                if batches.is_preprocessed(batch):
                    if needs_labels:
                        check_label_arrays(self, *batch)
                    return batch
                arrays = preprocess(number, *batch)
                _check_labels(arrays[1], needs_labels)
                return arrays

            return labelled

        def map_dataset(dataset):
            if batches.is_preprocessed(dataset.element_spec):
                return _check_dataset(self, dataset) if needs_labels else dataset
            mapped = self.preprocess_dataset(dataset, is_training)
            _check_labels(batches.unpack(mapped.element_spec)[1], needs_labels)
            return mapped

        return batches.preprocess_batches(x, start, map_dataset), None, None

    @one_thread_on_all_backends
    @accepts_datasets
    def fit(
        self,
        x=None,
        y=None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose="auto",
        callbacks=None,
        validation_split: float = 0.0,
        validation_data=None,
        shuffle: bool | None = None,
        class_weight=None,
        sample_weight=None,
        validation_batch_size: int | None = None,
        **kwargs,
    ) -> keras.callbacks.History:
        """Trains the model on strings or arrays.

        Args:
            x: strings, in the form that the class describes; the model's arrays; the
                output of its preprocessor; or batches of any of these, `x`,
                `(x, y)` or `(x, y, sample_weight)`, from a `tf.data.Dataset`, a
                `keras.utils.PyDataset`, a `torch.utils.data.DataLoader` or a
                generator. A column of Hugging Face `datasets` is like a list, and a
                whole `Dataset` like a list of dicts.
            y: labels, unless `x` includes them.
            class_weight: dict of class names or numbers to the weights of their rows.
                Defaults to `None`: all weights are 1.
            validation_split: float. Fraction of the rows to validate on, taken from
                the end. Defaults to `0.0`.
            validation_data: `(x, y)` or `(x, y, sample_weight)`, or batches. Accepts
                the same kinds of data as `x`. Defaults to `None`.
            shuffle: bool. Whether to shuffle the rows. Defaults to `None`: arrays
                and strings are shuffled, and so are the batches of a
                `keras.utils.PyDataset`.
            **kwargs: other arguments of `keras.Model.fit`. Arguments that are not
                listed here have the same meaning there.

        Raises:
            ValueError: if `x` is of another kind or has no rows, `x` has strings but
                the model has no preprocessor, a label is not one of the model's, or
                `class_weight` is given but the model does not support it.
        """
        check_counts(0, epochs=epochs)
        check_number_or_none(validation_split=validation_split)
        if validation_batch_size is not None:
            check_counts(validation_batch_size=validation_batch_size)
        if class_weight is not None:
            class_weight = self.number_class_weight(class_weight)
        if validation_split and validation_data is None and not batches.is_preprocessed(x):
            x, y, sample_weight, validation_data = _split(x, y, sample_weight, validation_split)
            validation_split = 0.0
        given = x
        x, y, sample_weight = self._preprocess_inputs(
            x, y, sample_weight, batch_size, shuffle, is_training=True
        )
        if x is not given and not batches.is_preprocessed(getattr(given, "element_spec", given)):
            callbacks = [*(callbacks or []), *self.string_callbacks()]
        if validation_data is not None:
            is_stream = batches.is_stream(validation_data)
            held_out = (validation_data,) if is_stream else batches.unpack(validation_data)
            size = validation_batch_size or batch_size
            validation_data = self._preprocess_inputs(*held_out, batch_size=size)
        if batches.is_stream(x):
            # Keras can shuffle only the batches of a `PyDataset`, and warns about other streams.
            is_shuffled = isinstance(given, keras.utils.PyDataset) if shuffle is None else shuffle
            shuffle = is_shuffled and isinstance(x, keras.utils.PyDataset)
        if not validation_split and kwargs.get("steps_per_epoch") is None:
            _check_shares(x, batch_size)
        if isinstance(validation_data, tuple):
            _check_shares(validation_data[0], validation_batch_size or batch_size)
        # keras-hub's `fit` is not used: its preprocessing has no seeds, and it requires tf.data or
        # grain even without a preprocessor.
        with distribution.even_batches(self):
            self._build_training(x, y, sample_weight)
            return keras.Model.fit(
                self,
                x,
                y,
                batch_size=batch_size,
                epochs=epochs,
                verbose=verbose,
                callbacks=callbacks,
                validation_split=validation_split,
                validation_data=validation_data,
                shuffle=True if shuffle is None else shuffle,
                class_weight=class_weight,
                sample_weight=sample_weight,
                validation_batch_size=validation_batch_size,
                **kwargs,
            )

    def _build_training(self, x, y, sample_weight):
        # TensorFlow traces the step only once if the model is built first. On several devices
        # Keras does this itself.
        if keras.backend.backend() != "tensorflow" or self.run_eagerly or not self.compiled:
            return
        if type(self).train_step is not keras.Model.train_step:
            return  # A custom train step may expect other batches.
        if self.distribute_strategy.num_replicas_in_sync == 1:
            batch = batches.batch_spec(x, y, sample_weight)
            if batch is not None:
                with self.distribute_strategy.scope():
                    build_training(self, batch)

    @one_thread_on_all_backends
    def evaluate(
        self,
        x=None,
        y=None,
        batch_size: int | None = None,
        verbose="auto",
        sample_weight=None,
        **kwargs,
    ):
        """Computes loss and metrics of data as in `fit`. See `keras.Model.evaluate`."""
        x, y, sample_weight = self._preprocess_inputs(x, y, sample_weight, batch_size)
        if kwargs.get("steps") is None:
            _check_shares(x, batch_size)
        with distribution.even_batches(self):
            return keras.Model.evaluate(
                self, x, y, batch_size, verbose=verbose, sample_weight=sample_weight, **kwargs
            )

    @one_thread
    def predict(self, x, batch_size: int | None = None, verbose="auto", **kwargs):
        """Returns the outputs for each row of data as in `fit`. See `keras.Model.predict`."""
        x, _, _ = self._preprocess_inputs(x, batch_size=batch_size, needs_labels=False)
        num_rows = None if batches.is_stream(x) else batches.num_rows(x)
        x = distribution.pad_to_batch_shards(x, num_rows)
        _check_shares(x, batch_size)
        with distribution.even_batches(self):
            found = keras.Model.predict(self, x, batch_size=batch_size, verbose=verbose, **kwargs)
        return keras.tree.map_structure(lambda array: array[:num_rows], found)

    # Keras's methods, for arrays that are already preprocessed. keras-hub's would preprocess them.
    @one_thread_on_all_backends
    def train_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """Trains on a batch of arrays: see `keras.Model.train_on_batch`."""
        batches.check_arrays(x)
        check_label_arrays(self, x, y, sample_weight)
        if self.compiled and not self.optimizer.built:
            self._build_training(x, y, sample_weight)
        return keras.Model.train_on_batch(self, x, y, sample_weight, *args, **kwargs)

    @one_thread_on_all_backends
    def test_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """Evaluates a batch of arrays: see `keras.Model.test_on_batch`."""
        batches.check_arrays(x)
        check_label_arrays(self, x, y, sample_weight)
        return keras.Model.test_on_batch(self, x, y, sample_weight, *args, **kwargs)

    @one_thread
    def predict_on_batch(self, x):
        """Predicts for a batch of arrays: see `keras.Model.predict_on_batch`."""
        batches.check_arrays(x)
        num_rows = batches.num_rows(x)
        found = keras.Model.predict_on_batch(self, distribution.pad_to_batch_shards(x, num_rows))
        return keras.tree.map_structure(lambda array: array[:num_rows], found)


def _check_labels(y, needs_labels):
    if needs_labels and y is None:
        raise ValueError("Training and evaluation on strings need labels. Received: y=None")


def _check_dataset(task, dataset):
    """Returns a dataset of arrays that fails where a label is not one of the task's."""
    import tensorflow as tf

    if not isinstance(dataset.element_spec, tuple) or len(dataset.element_spec) < 2:
        return dataset  # Without labels.

    @tf.autograph.experimental.do_not_convert
    def check(x, y, *sample_weight):
        return x, check_label_arrays(task, x, y, *(sample_weight or [None])), *sample_weight

    return dataset.map(check)


def _check_shares(x, batch_size):
    if not batches.is_stream(x):
        distribution.check_rows(batches.num_rows(x), batch_size)


def _split(x, y, sample_weight, share):
    """Splits off the last rows as validation data."""
    count = 0 if batches.is_stream(x) else batches.num_rows(x)
    first = int(count * (1.0 - share)) if 0.0 < share < 1.0 else 0
    if not 0 < first < count:
        raise ValueError(
            "`validation_split` must be in (0, 1) and leave rows to train and to validate on. "
            f"Received: validation_split={share} of {count} rows, x of type {type(x).__name__}"
        )
    given = [x, y, sample_weight]
    rest = tuple(batches.rows(value, slice(first, None)) for value in given)
    return *(batches.rows(value, slice(0, first)) for value in given), rest
