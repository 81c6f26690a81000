"""`fit`, `evaluate` and `predict` on strings and arrays, for every task.

A batch is `x`, `(x, y)` or `(x, y, sample_weight)`, as in Keras. A model takes a dict with
`token_ids`. The preprocessor converts every other `x` to such a dict.
"""

import collections.abc
import copy

import keras
import numpy as np

from keras_spanbert import distribution
from keras_spanbert.checks import (
    accepts_datasets,
    check_counts,
    check_kind,
    check_none,
    check_number_or_none,
    to_lists,
)
from keras_spanbert.data.batches import Batches
from keras_spanbert.keras_private import build_training
from keras_spanbert.models.lora import forget_old_functions
from keras_spanbert.optional import tf
from keras_spanbert.text.labels import check_label_arrays
from keras_spanbert.text.strings import is_examples
from keras_spanbert.training.optimizer import WarnAfterDecay, check_ema

_RULE = (
    "at least one row of strings (lists or arrays of strings, see the class), a dict "
    "of the model's arrays, or batches of either in a `tf.data.Dataset` or a "
    "`keras.utils.PyDataset`. Other streams must have batches of the model's arrays"
)


def kind_of(x) -> str:
    """Returns what `x` is: the data of a call, or one of its batches.

    Returns:
        `"arrays"`: a dict of the model's arrays, or a tuple that begins with one.
        `"dataset"`: a `tf.data.Dataset`, or a distributed one.
        `"py_dataset"`: a `keras.utils.PyDataset`.
        `"stream"`: an iterator, or a stream of PyTorch or Grain.
        `"rows"`: everything else, which the preprocessor converts.
    """
    first = x[0] if isinstance(x, tuple) and x else x
    if isinstance(first, dict) and "token_ids" in first:
        return "arrays"
    if hasattr(x, "element_spec"):
        return "dataset"
    if isinstance(x, keras.utils.PyDataset):
        return "py_dataset"
    is_stream = isinstance(x, collections.abc.Iterator) or _is_of(x, "torch.utils.", "grain.")
    return "stream" if is_stream else "rows"


def _is_of(x, *packages):
    return any(f"{cls.__module__}.".startswith(packages) for cls in type(x).__mro__)


def unpack(batch) -> tuple:
    """Returns `(x, y, sample_weight)` of a batch.

    A list of examples, or a list or tuple of strings, is an `x` without labels. Any other tuple is
    `(x, y)`, even of two examples. Raises `ValueError` for a list of dicts that are no examples.
    """
    if not isinstance(batch, (list, tuple)) or all(isinstance(row, str) for row in batch):
        return batch, None, None
    if isinstance(batch, list) and is_examples(batch):
        if "token_ids" not in batch[0] and set.intersection(*map(set, batch)):
            return batch, None, None
        if len(batch) > 1:
            raise ValueError(
                "`(x, y)` must be a tuple. A list of dicts is a list of examples, which have keys "
                f"in common. Received: {batch!r:.200}"
            )
    return keras.utils.unpack_x_y_sample_weight(batch)


class StringInputs:
    """Mixin of tasks that converts all data that `fit` accepts to the model's arrays.

    A task can override how strings are converted: all rows at once (`preprocess`),
    or batch by batch (the methods after it). Their `mode` is `"fit"`, `"evaluate"` or `"predict"`.
    """

    # Classes of the callbacks that `fit` adds, unless it is called on arrays.
    string_callbacks: tuple = ()
    steps_so_far = 0  # If the steps of all calls of `fit` are counted.

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

    def preprocess_batch(self, x, y, sample_weight, number: int, mode: str) -> tuple:
        """Converts the strings of a batch of a `PyDataset` to arrays, as `preprocess` does.

        `number` is the batch's place in an evaluation, or in all training.
        """
        return self.preprocess(x, y, sample_weight)

    def preprocess_dataset(self, dataset, mode: str):
        """Returns a `tf.data.Dataset` that converts batches of strings to arrays."""
        shapes = [getattr(leaf, "shape", None) for leaf in tf.nest.flatten(dataset.element_spec)]
        if any(shape is not None and shape.rank == 0 for shape in shapes):  # `None` has no shape.
            raise ValueError(
                "A dataset must have batches of rows: call its `batch`. Received: "
                f"element_spec={dataset.element_spec}"
            )

        @tf.autograph.experimental.do_not_convert  # AutoGraph would change error messages.
        def preprocess(*batch):
            arrays = self.preprocess(*keras.utils.unpack_x_y_sample_weight(batch))
            return keras.utils.pack_x_y_sample_weight(*arrays)

        mapped = dataset.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE)
        return mapped.prefetch(tf.data.AUTOTUNE)

    def preprocess_rows(self, x, y, sample_weight, batch_size, shuffle, mode: str) -> tuple:
        """Converts rows of strings to arrays `(x, y, sample_weight)`, or to batches of them as `x`.

        For `predict`, the rows keep their order.
        """
        return self.preprocess(x, y, sample_weight)

    def number_class_weight(self, class_weight: dict) -> dict:
        """Returns `class_weight` with the numbers of classes instead of their names.

        Raises:
            ValueError: if the model does not support `class_weight`, or it is wrong.
        """
        raise ValueError(
            f"`class_weight` must be None for this {type(self).__name__}, whose rows do not have "
            f"one class each. Use `sample_weight`. Received: class_weight={class_weight!r:.80}"
        )

    def _prepare(
        self, kind, x, y=None, sample_weight=None, batch_size=None, shuffle=None, mode="evaluate"
    ):
        """Returns x, y and sample weight for Keras, and whether `x` has all rows as arrays.

        `kind` is that of `x`: see `kind_of`.
        """
        forget_old_functions(self)
        if batch_size is not None:
            check_counts(batch_size=batch_size)
        if kind == "arrays":
            if isinstance(x, tuple) and y is None:  # Preprocessors return tuples.
                x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(x)
            if isinstance(y, list) and not any(np.ndim(label) for label in y):
                y = np.array(y)  # Other lists have the labels of each output.
            if mode != "predict":
                check_label_arrays(self, x, y, sample_weight)
            return x, y, sample_weight, True
        if kind == "rows":
            check_kind("x", x, not isinstance(x, (str, bytes)) and _num_rows(x), _RULE)
            rows = x, y, sample_weight
            x, y, sample_weight = self.preprocess_rows(*rows, batch_size, shuffle, mode)
            has_all = isinstance(x, dict)
            if has_all:  # If a task returns batches, they include the labels.
                _check_labels(y, mode)
            return x, y, sample_weight, has_all
        reason = f"the batches of `x` ({type(x).__name__}) include it"
        check_none(reason, y=y, sample_weight=sample_weight)
        if kind == "stream":
            return _check_stream(x), None, None, False
        return self.preprocess_stream(kind, x, mode), None, None, False

    def preprocess_stream(self, kind: str, stream, mode: str = "evaluate"):
        """Returns a stream of the same `kind` with the batches converted to arrays."""
        if kind == "dataset":
            is_distributed = not hasattr(stream, "map")
            if kind_of(stream.element_spec) == "arrays":
                is_checked = mode != "predict" and not is_distributed
                return _check_dataset(self, stream) if is_checked else stream
            if is_distributed:
                raise ValueError(
                    "A dataset must be preprocessed before it is distributed. Received: "
                    f"{stream.element_spec}"
                )
            mapped = self.preprocess_dataset(stream, mode)
            _check_labels(unpack(mapped.element_spec)[1], mode)
            return mapped
        if isinstance(stream, _PyDataset):
            return stream  # Keras's `fit` evaluates the validation data that it was given.
        if kind_of(stream[0]) != "arrays":
            return _PyDataset(self, stream, mode)
        if stream.use_multiprocessing:  # Its processes cannot check labels.
            return stream
        settings = {name: getattr(stream, name) for name in ["workers", "max_queue_size"]}
        return _PyDataset(self, stream, mode, **settings)

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
            x: strings, in the form that the class describes; the model's arrays; the output of its
                preprocessor; or batches of any of these, `x`, `(x, y)` or `(x, y, sample_weight)`,
                from a `tf.data.Dataset` or a `keras.utils.PyDataset`. Other streams, such as a
                generator or `DataLoader(rows, collate_fn=model.preprocessor)`, have batches of the
                model's arrays. A column of Hugging Face `datasets` is like a list, and a whole
                `Dataset` like a list of dicts. The numbers of a `ClassLabel` are numbers of the
                model's classes, whatever its names are.
            y: labels, unless `x` includes them.
            class_weight: dict of class names or numbers to the weights of their rows,
                numbers of at least 0. Classes that it leaves out have weight 1.
                Defaults to `None`: all weights are 1.
            sample_weight: numbers of at least 0, the weights of the rows. As in Keras, the loss is
                the sum of weight x loss over the number of rows (labelled tokens, masked
                positions), which includes those of weight 0. Only padding is left out: rows that
                `Batches` adds, and, in the arrays of the token classifier and the pretrainer,
                labels of weight 0. Losses of an epoch do not depend on the batch size. Defaults to
                `None`: all weights are 1.
            validation_split: float. Fraction of the rows to validate on, taken from
                the end. Defaults to `0.0`.
            validation_data: `(x, y)` or `(x, y, sample_weight)`, or batches. Accepts
                the same kinds of data as `x`. Defaults to `None`.
            shuffle: bool. Whether to shuffle the rows. Defaults to `None`: arrays and strings are
                shuffled, and so are the batches of a `keras.utils.PyDataset`.
            **kwargs: other arguments of `keras.Model.fit`. Arguments that are not
                listed here have the same meaning there.

        Raises:
            ValueError: if `x` is of another kind or has no rows, `x` has strings but the model has
                no preprocessor, a label is not one of the model's, `class_weight` is given but the
                rows do not have one class each or come from a generator, or it has an unknown class
                or a weight that is not a number of at least 0.
        """
        check_counts(0, epochs=epochs)
        check_number_or_none(validation_split=validation_split)
        if validation_batch_size is not None:
            check_counts(validation_batch_size=validation_batch_size)
        kind = kind_of(x)
        if class_weight is not None:
            numbered = self.number_class_weight(class_weight)
            if kind == "stream":  # Keras's message has no names.
                raise ValueError(
                    "`class_weight` needs arrays, strings, a `tf.data.Dataset` or a "
                    "`keras.utils.PyDataset`. Batches of a generator, a `DataLoader` or Grain can "
                    "have a weight for each row instead, as `(x, y, sample_weight)`. Received: "
                    f"class_weight={class_weight!r:.80} with x of type {type(x).__name__}"
                )
            class_weight = numbered
        if kind != "arrays":
            if isinstance(callbacks, keras.callbacks.CallbackList):
                kinds = {type(callback) for callback in callbacks.callbacks}
                if missing := set(self.string_callbacks) - kinds:
                    names = ", ".join(sorted(cls.__name__ for cls in missing))
                    raise ValueError(
                        f"A `CallbackList` must have the callbacks of the model: {names}. Pass a "
                        "list of callbacks, to which `fit` adds them"
                    )
            else:
                callbacks = [callbacks or [], *(cls() for cls in self.string_callbacks)]
            if validation_split and validation_data is None:
                x, y, sample_weight, validation_data = _split(
                    kind, x, y, sample_weight, validation_split
                )
                validation_split = 0.0
        if shuffle is None:
            shuffle = not isinstance(x, Batches)  # They have an order of their own.
        given = x
        x, y, sample_weight, has_all = self._prepare(
            kind, x, y, sample_weight, batch_size, shuffle, "fit"
        )
        batches = next((each for each in (x, given) if isinstance(each, Batches)), None)
        arrays = (x, y, sample_weight) if batches is None else batches.arrays
        self.count_targets(*(arrays if kind_of(arrays) == "arrays" else [None]))
        if not has_all:
            # Keras can shuffle only the batches of a `PyDataset`, and warns about other streams.
            shuffle = shuffle and kind == "py_dataset"
        elif not validation_split and kwargs.get("steps_per_epoch") is None:
            distribution.check_even_rows(_num_rows(x), batch_size)
        if validation_data is not None:
            held_out = unpack(validation_data)
            size = validation_batch_size or batch_size
            *validation_data, is_whole = self._prepare(kind_of(held_out[0]), *held_out, size)
            validation_data = tuple(validation_data)
            if is_whole:
                distribution.check_even_rows(_num_rows(validation_data[0]), size)
        # keras-hub's `fit` is not used: its preprocessing has no seeds, and it requires tf.data or
        # grain even without a preprocessor.
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = [*keras.tree.flatten(callbacks or []), WarnAfterDecay()]
            check_ema(callbacks, self.optimizer)
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
                shuffle=shuffle,
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
        batch = x, y, sample_weight
        kind = kind_of(x)
        if kind in ("dataset", "py_dataset"):
            batch = x.element_spec if kind == "dataset" else x[0]
            batch = keras.utils.unpack_x_y_sample_weight(batch)
        # Batches of other streams could not be put back. They are no arrays. Keras
        # converts pandas objects to arrays. TensorFlow's placeholder for `None` has no dtype.
        are_arrays = all(
            leaf is None
            or isinstance(leaf, np.ndarray)
            or (type(leaf).__module__.startswith("tensorflow.") and hasattr(leaf, "dtype"))
            for leaf in keras.tree.flatten(batch)
        )
        if are_arrays and self.distribute_strategy.num_replicas_in_sync == 1:
            with self.distribute_strategy.scope():
                build_training(self, batch)

    @accepts_datasets
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
        x, y, sample_weight, has_all = self._prepare(kind_of(x), x, y, sample_weight, batch_size)
        if has_all and kwargs.get("steps") is None:
            distribution.check_even_rows(_num_rows(x), batch_size)
        with distribution.even_batches(self):
            return keras.Model.evaluate(
                self, x, y, batch_size, verbose=verbose, sample_weight=sample_weight, **kwargs
            )

    @accepts_datasets
    def predict(self, x, batch_size: int | None = None, verbose="auto", **kwargs):
        """Returns the outputs for each row of data as in `fit`. See `keras.Model.predict`."""
        x, _, _, has_all = self._prepare(kind_of(x), x, batch_size=batch_size, mode="predict")
        num_rows = None
        if has_all:
            num_rows = _num_rows(x)
            x = distribution.pad_to_batch_shards(x, num_rows)
            distribution.check_even_rows(_num_rows(x), batch_size)
        with distribution.even_batches(self):
            found = keras.Model.predict(self, x, batch_size=batch_size, verbose=verbose, **kwargs)
        return keras.tree.map_structure(lambda array: array[:num_rows], found)

    # Keras's methods, for arrays that are already preprocessed. keras-hub's would preprocess them.
    def _check_batch(self, x, *labels):
        forget_old_functions(self)
        rule = (
            "a dict of the model's arrays, which is the first result of `model.preprocess`. `fit`, "
            "`evaluate` and `predict` take strings"
        )
        check_kind("x", x, isinstance(x, dict) and "token_ids" in x, rule)
        if labels:
            check_label_arrays(self, x, *labels)

    def train_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """Trains on a batch of arrays: see `keras.Model.train_on_batch`."""
        self._check_batch(x, y, sample_weight)
        if self.compiled and not self.optimizer.built:
            self._build_training(x, y, sample_weight)
        return keras.Model.train_on_batch(self, x, y, sample_weight, *args, **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """Evaluates a batch of arrays: see `keras.Model.test_on_batch`."""
        self._check_batch(x, y, sample_weight)
        return keras.Model.test_on_batch(self, x, y, sample_weight, *args, **kwargs)

    def predict_on_batch(self, x):
        """Predicts for a batch of arrays: see `keras.Model.predict_on_batch`."""
        self._check_batch(x)
        num_rows = _num_rows(x)
        found = keras.Model.predict_on_batch(self, distribution.pad_to_batch_shards(x, num_rows))
        return keras.tree.map_structure(lambda array: array[:num_rows], found)


def _check_labels(y, mode):
    if mode != "predict" and y is None:
        raise ValueError("Training and evaluation on strings need labels. Received: y=None")


def _check_dataset(task, dataset):
    """Returns a dataset of arrays that fails where a label is not one of the task's."""
    if not isinstance(dataset.element_spec, tuple) or len(dataset.element_spec) < 2:
        return dataset  # Without labels.

    @tf.autograph.experimental.do_not_convert
    def check(x, y, *sample_weight):
        return x, check_label_arrays(task, x, y, *(sample_weight or [None])), *sample_weight

    return dataset.map(check)


def _split(kind, x, y, sample_weight, share):
    """Splits off the last rows as validation data."""
    count = _num_rows(x) if kind == "rows" else 0
    first = int(count * (1.0 - share)) if 0.0 < share < 1.0 else 0
    if not 0 < first < count:
        raise ValueError(
            "`validation_split` must be in (0, 1) and leave rows to train and to validate on. "
            f"Received: validation_split={share} of {count} rows, x of type {type(x).__name__}"
        )
    given = [x, y, sample_weight]
    rest = tuple(_rows(value, slice(first, None)) for value in given)
    return *(_rows(value, slice(0, first)) for value in given), rest


def _rows(value, part: slice):
    """Returns a slice of the rows of x, y or sample weight. In a dict, slices each column."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: _rows(column, part) for name, column in value.items()}
    if hasattr(value, "_fields"):  # A named tuple of examples, as a reader returns it.
        return type(value)(*(column[part] for column in value))
    return value[part]


def _num_rows(x) -> int:
    """Returns the number of rows of an `x` that is not a stream."""
    if isinstance(x, dict):  # A column that is not given can be `None`.
        x = next((column for column in x.values() if column is not None), ())
    column = x[0] if hasattr(x, "_fields") else x
    if hasattr(column, "nrows"):  # A ragged tensor.
        return int(column.nrows())
    try:
        return len(column)
    except TypeError:  # A number, or an array with no axes.
        return 0


def _check_stream(stream):
    """Returns a stream that raises `ValueError` if its first batch is not arrays.

    No batch is read before Keras asks for it, because a `DataLoader` may not begin again.
    """
    if isinstance(stream, collections.abc.Iterator):
        return _checked(stream)  # Keras takes generators only.
    if _is_of(stream, "grain."):  # It begins again for Keras too, and its iterators have a class.
        next(_checked(stream), None)
        return stream
    cls = type(stream)  # Keras looks at it, and at the attributes of a `DataLoader`.
    checked = copy.copy(stream)
    checked.__class__ = type(cls.__name__, (cls,), {"__iter__": lambda _: _checked(stream)})
    return checked


def _checked(stream):
    """Yields the batches of a stream."""
    for number, batch in enumerate(stream):
        x = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
        if number == 0 and kind_of(x) != "arrays":
            raise ValueError(
                "A stream that is no `tf.data.Dataset` or `keras.utils.PyDataset` must have "
                "batches of the model's arrays. The preprocessor makes them, as in `DataLoader("
                "rows, collate_fn=model.preprocessor)`, `grain_dataset.map(model.preprocessor)` or "
                f"`(model.preprocessor(*batch) for batch in batches)`. Received: {batch!r:.80}"
            )
        yield batch


class _PyDataset(keras.utils.PyDataset):
    """The batches of another `PyDataset`, converted to arrays and checked.

    Strings are preprocessed in the thread of the training loop.
    """

    # Keras's threads would fetch batches before `on_epoch_begin` and skip the batch that Keras used
    # to build the model. Its processes do not work with libraries that have their own threads.
    def __init__(self, task, source, mode, **kwargs):
        super().__init__(**kwargs)
        self._task = task
        self._source = source
        self._mode = mode
        self._first = task.steps_so_far if mode == "fit" else 0

    @property
    def num_batches(self):
        return self._source.num_batches

    def __getitem__(self, index):
        x, y, sample_weight = map(to_lists, unpack(self._source[index]))
        if kind_of(x) == "arrays":
            if self._mode != "predict":
                check_label_arrays(self._task, x, y, sample_weight)
        else:
            number = self._first + index
            arrays = self._task.preprocess_batch(x, y, sample_weight, number, self._mode)
            _check_labels(arrays[1], self._mode)
            x, y, sample_weight = keras.tree.map_structure(
                lambda array: None if array is None else keras.ops.convert_to_numpy(array), arrays
            )
        given = [value for value in (x, y, sample_weight) if value is not None]
        return tuple(given) if sample_weight is None else (x, y, sample_weight)

    def on_epoch_begin(self):
        self._source.on_epoch_begin()
        self._first = self._task.steps_so_far if self._mode == "fit" else 0

    def on_epoch_end(self):
        self._source.on_epoch_end()
