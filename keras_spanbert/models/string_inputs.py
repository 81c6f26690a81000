"""`fit`, `evaluate` and `predict` on strings, as on arrays, for every task."""

from collections.abc import Callable

import keras

from keras_spanbert import distribution
from keras_spanbert.keras_private import build_training
from keras_spanbert.models import batches


class StringInputs:
    """The part of a task that turns what `keras.Model.fit` takes into its arrays.

    A task overrides how its strings become arrays: all at once (`preprocess`), or
    batch by batch (the methods behind it).
    """

    def preprocess(self, x, y=None, sample_weight=None) -> tuple:
        """Strings as arrays, by the preprocessor.

        Args:
            x: what the preprocessor takes, all rows or a batch of them.
            y: labels of the rows, or `None`.
            sample_weight: weights of the rows, or `None`.

        Returns:
            `(x, y, sample_weight)`, `None` for what there is not.
        """
        self.check_preprocessor()
        return keras.utils.unpack_x_y_sample_weight(self.preprocessor.call(x, y, sample_weight))

    def start_preprocessing(self, is_training: bool) -> Callable:
        """Begins a pass over batches: gives the function of a batch's number and its parts."""
        return lambda number, x, y, sample_weight: self.preprocess(x, y, sample_weight)

    def preprocess_dataset(self, dataset, is_training: bool):
        """A `tf.data.Dataset` of batches of strings as one of arrays."""
        return batches.map_dataset(dataset, self.start_preprocessing(is_training))

    def preprocess_rows(
        self, x, y, sample_weight, batch_size, shuffle, is_training, needs_labels=True
    ) -> tuple:
        """Rows of strings as `(x, y, sample_weight)`: arrays, or batches of them as `x`.

        Without `needs_labels`, to predict, they stay in their order.
        """
        return self.preprocess(x, y, sample_weight)

    def string_callbacks(self) -> list[keras.callbacks.Callback]:
        """What `fit` on strings needs to be told of."""
        return []

    def _preprocessed(
        self,
        x,
        y=None,
        sample_weight=None,
        batch_size=None,
        shuffle=None,
        is_training=False,
        needs_labels=True,
    ):
        """x, y and sample weight of any kind as Keras takes them."""
        if batches.is_stream(x):
            if y is not None or sample_weight is not None:
                raise ValueError(
                    "Batches hold their labels and weights, so that `y` and `sample_weight` must "
                    f"be None. Received: x of type {type(x).__name__}, y of type "
                    f"{type(y).__name__}, sample_weight of type {type(sample_weight).__name__}"
                )

            def start():
                preprocess = self.start_preprocessing(is_training)

                def labelled(*batch):
                    arrays = preprocess(*batch)
                    _check_labels(arrays[1], needs_labels)
                    return arrays

                return labelled

            def map_dataset(dataset):
                mapped = self.preprocess_dataset(dataset, is_training)
                _check_labels(batches.unpack(mapped.element_spec)[1], needs_labels)
                return mapped

            return batches.preprocessed(x, start, map_dataset), None, None
        if batches.is_preprocessed(x):
            # A tuple is what a preprocessor returns.
            return (
                batches.unpack(x) if isinstance(x, tuple) and y is None else (x, y, sample_weight)
            )
        batches.check_rows(x)
        x, y, sample_weight = self.preprocess_rows(
            x, y, sample_weight, batch_size, shuffle, is_training, needs_labels
        )
        if not batches.is_stream(x):  # Batches that a task makes of rows hold labels of its own.
            _check_labels(y, needs_labels)
        return x, y, sample_weight

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
        """Trains the model, on strings as on arrays.

        Args:
            x: strings, as the class names them; the model's arrays; what its
                preprocessor returns; or batches of any of these, `x`, `(x, y)`
                or `(x, y, sample_weight)`: a `tf.data.Dataset`, a
                `keras.utils.PyDataset`, a `torch.utils.data.DataLoader` or a
                generator.
            y: labels, where `x` needs such.
            validation_split: float. Share of the last rows to validate on.
                Defaults to `0.0`.
            validation_data: `(x, y)` or `(x, y, sample_weight)`, or batches;
                of any kind that `x` may be. Defaults to `None`.
            shuffle: bool. Whether rows come in random order. Defaults to
                `None`: where they are arrays, or become such once.
            **kwargs: these arguments and the others are `keras.Model.fit`'s.

        Raises:
            ValueError: where `x` is of another kind or has no rows, or is
                strings and the model has no preprocessor for them.
        """
        if validation_split and validation_data is None and not batches.is_preprocessed(x):
            x, y, sample_weight, validation_data = _split(x, y, sample_weight, validation_split)
            validation_split = 0.0
        given = x
        x, y, sample_weight = self._preprocessed(
            x, y, sample_weight, batch_size, shuffle, is_training=True
        )
        if x is not given and not batches.is_preprocessed(given):
            callbacks = [*(callbacks or []), *self.string_callbacks()]
        if validation_data is not None:
            is_stream = batches.is_stream(validation_data)
            held_out = (validation_data,) if is_stream else batches.unpack(validation_data)
            size = validation_batch_size or batch_size
            validation_data = self._preprocessed(*held_out, batch_size=size)
        if batches.is_stream(x):
            # Keras shuffles the batches of a `PyDataset` alone, and warns about the others.
            is_shuffled = isinstance(given, keras.utils.PyDataset) if shuffle is None else shuffle
            shuffle = is_shuffled and isinstance(x, keras.utils.PyDataset)
        if not validation_split and kwargs.get("steps_per_epoch") is None:
            _check_shares(x, batch_size)
        if isinstance(validation_data, tuple):
            _check_shares(validation_data[0], validation_batch_size or batch_size)
        # Not keras-hub's `fit`: its preprocessing knows no seeds, and without a preprocessor it
        # still demands tf.data or grain.
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
        # So that TensorFlow traces a step once; of several devices Keras does so itself.
        if keras.backend.backend() != "tensorflow" or self.run_eagerly or not self.compiled:
            return
        if type(self).train_step is not keras.Model.train_step:
            return  # Whose batches may be others.
        if self.distribute_strategy.num_replicas_in_sync == 1:
            batch = batches.like_a_batch(x, y, sample_weight)
            if batch is not None:
                with self.distribute_strategy.scope():
                    build_training(self, batch)

    def evaluate(
        self,
        x=None,
        y=None,
        batch_size: int | None = None,
        verbose="auto",
        sample_weight=None,
        **kwargs,
    ):
        """Evaluates loss and metrics, of what `fit` takes: see there and `keras.Model.evaluate`."""
        x, y, sample_weight = self._preprocessed(x, y, sample_weight, batch_size)
        if kwargs.get("steps") is None:
            _check_shares(x, batch_size)
        with distribution.even_batches(self):
            return keras.Model.evaluate(
                self, x, y, batch_size, verbose=verbose, sample_weight=sample_weight, **kwargs
            )

    def predict(self, x, batch_size: int | None = None, verbose="auto", **kwargs):
        """The outputs for each row, of what `fit` takes: see there and `keras.Model.predict`."""
        x, _, _ = self._preprocessed(x, batch_size=batch_size, needs_labels=False)
        num_rows = None if batches.is_stream(x) else batches.num_rows(x)
        x = distribution.padded_to_shards(x, num_rows)
        _check_shares(x, batch_size)
        with distribution.even_batches(self):
            found = keras.Model.predict(self, x, batch_size=batch_size, verbose=verbose, **kwargs)
        return keras.tree.map_structure(lambda array: array[:num_rows], found)


def _check_labels(y, needs_labels):
    if needs_labels and y is None:
        raise ValueError("Strings must have labels to train or evaluate on. Received: y=None")


def _check_shares(x, batch_size):
    if not batches.is_stream(x):
        distribution.check_rows(batches.num_rows(x), batch_size)


def _split(x, y, sample_weight, share):
    """The first rows of each, and the last ones as validation data."""
    count = 0 if batches.is_stream(x) else batches.num_rows(x)
    first = int(count * (1.0 - share))
    if not 0 < first < count:
        raise ValueError(
            "`validation_split` must be a share in (0, 1) of rows that leaves some on either side. "
            f"Received: validation_split={share} of {count} rows, x of type {type(x).__name__}"
        )
    given = [x, y, sample_weight]
    rest = tuple(batches.rows(value, slice(first, None)) for value in given)
    return *(batches.rows(value, slice(0, first)) for value in given), rest
