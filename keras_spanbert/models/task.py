"""What the tasks share."""

import contextlib
import logging
import os
from collections.abc import Callable

import keras
import keras_hub

from keras_spanbert import distribution
from keras_spanbert.formats import keras_hub as presets
from keras_spanbert.layers.initializers import skip_initialization
from keras_spanbert.models import batches
from keras_spanbert.models.backbone import SpanBertBackbone, with_padding_mask
from keras_spanbert.models.checkpoint_entries import Part, checked_entries, load_entries
from keras_spanbert.models.from_preset import FromPreset

_LOG = logging.getLogger("keras_spanbert")


class SpanBertTask(FromPreset, keras_hub.models.Task):
    """A backbone with a head: loading of presets and checkpoints, and compiling.

    A task's class says what shared code must know of it:

    - `checkpoint_parts`: the tensors of its heads, as `Part`s.
    - `huggingface_class`: the class of `transformers` that it becomes.
    - `sharding_layout`: of its heads, for `keras.distribution.LayoutMap`.
    - `arguments_for`: its arguments for a checkpoint's settings.
    - `checkpoint_settings`: its settings for its own table of tensors.
    - `head_flops`: floating-point operations of its heads.
    - `preprocess`: strings to arrays, for `fit`, `evaluate` and `predict`.
    - `preprocess`: strings to arrays, for `fit`, `evaluate` and `predict`.
    - `serving_function`: its graph from strings to answers.
    - `scores`: labels of what an evaluation gives, by name; of `best_score`, a
      name among them, more is better.
    - `describe`: what a run shows of a row of its history.

    A constructor sets what `compile` reads before it calls `super().__init__`,
    which compiles. Names that begin with one underscore may be Keras's own.
    """

    backbone_cls = SpanBertBackbone
    checkpoint_parts: tuple[Part, ...] = ()
    huggingface_class: str | None = None
    sharding_layout: dict[str, tuple] = {}
    scores: dict[str, str] = {}
    best_score: str | None = None

    def __new__(cls, *args, **kwargs):
        # Before the constructor makes the first variable.
        distribution.add_layout(cls.sharding_layout)
        return super().__new__(cls, *args, **kwargs)

    @classmethod
    def from_keras_hub(cls, preset: str, load_weights: bool = True, **kwargs):
        """Loads a keras-hub preset, of this task or of another one: see `from_preset`."""
        is_own = presets.task_class(preset) == cls.__name__
        if load_weights and os.path.isdir(preset) and not is_own:
            _LOG.warning(
                "%s has no weights for the head of %s, which starts fresh", preset, cls.__name__
            )
        if presets.has_tokenizer(preset) and "preprocessor" not in kwargs:
            if presets.preprocessor_class(preset) != cls.preprocessor_cls.__name__:
                # Of another task's preset, with settings that fit the backbone.
                kwargs["preprocessor"] = cls.preprocessor_cls.from_preset(preset)
        # keras-hub's own default fails on what was saved with a mixed policy.
        kwargs.setdefault("dtype", keras.config.dtype_policy().name)
        return super().from_keras_hub(preset, load_weights=load_weights, **kwargs)

    @classmethod
    def from_checkpoint(cls, checkpoint, load_weights: bool = True, dtype=None, **kwargs):
        """The encoder and what a `formats.Checkpoint` has of the head: see `from_preset`."""
        parts = [cls.backbone_cls.checkpoint_part, *cls.checkpoint_parts]
        entries = checked_entries(checkpoint, parts)
        has_backbone = "backbone" in kwargs
        if not has_backbone:
            with skip_initialization() if load_weights else contextlib.nullcontext():
                arguments = cls.backbone_cls.arguments_for(checkpoint.config)
                kwargs["backbone"] = cls.backbone_cls(**arguments, dtype=dtype)
        kwargs = {**cls.arguments_for(checkpoint.config), **kwargs}
        if "preprocessor" not in kwargs:
            if checkpoint.vocabulary is None:
                _LOG.warning(
                    "%s has no vocabulary: the model has no preprocessor", checkpoint.source
                )
            else:
                # By the task's own arguments where they differ from the checkpoint's.
                arguments = cls.preprocessor_cls.arguments_for({**checkpoint.config, **kwargs})
                kwargs["preprocessor"] = cls.preprocessor_cls.from_checkpoint(
                    checkpoint, **arguments
                )
        task = cls(**kwargs)
        if load_weights:
            load_entries(checkpoint, entries, task, task.backbone, skip_backbone=has_backbone)
        return task

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        """Arguments that fit a checkpoint's settings."""
        return {}

    def checkpoint_settings(self) -> dict:
        """Settings of `transformers.BertConfig`, and others that its table of tensors needs."""
        return self.backbone.checkpoint_settings()

    def head_flops(self, num_predictions: int) -> float:
        """Floating-point operations of the heads for one sequence, forward.

        Args:
            num_predictions: int. Masked positions of a sequence, of tasks that
                have such.
        """
        return 0.0

    @classmethod
    def describe(cls, row: dict) -> str:
        """What a run shows of a row of its history."""
        shown = [f"{cls.scores[name]} {row[name]:.2f}" for name in cls.scores if name in row]
        return "  ".join([f"loss {row['loss']:.3f}", *shown])

    def serving_function(self, **kwargs) -> tuple[Callable, list[str]]:
        """The function of strings that a SavedModel serves, and its arguments' names."""
        raise ValueError(f"{type(self).__name__} has no export for serving. Received: {kwargs}")

    def check_preprocessor(self) -> None:
        """Raises a ValueError where strings cannot become inputs of the model."""
        if self.preprocessor is None:
            raise ValueError("Strings need a preprocessor. Received: preprocessor=None")
        longest = self.backbone.max_sequence_length
        if self.preprocessor.sequence_length > longest:
            raise ValueError(
                f"The preprocessor's `sequence_length` must be at most the model's {longest}. "
                f"Received: sequence_length={self.preprocessor.sequence_length}"
            )

    # === Strings to arrays ===
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

    def preprocess_rows(self, x, y, sample_weight, batch_size, shuffle, is_training) -> tuple:
        """Rows of strings as `(x, y, sample_weight)`: arrays, or batches of them as `x`."""
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
            x = batches.preprocessed(
                x,
                lambda: self.start_preprocessing(is_training),
                lambda dataset: self.preprocess_dataset(dataset, is_training),
            )
            return x, None, None
        if batches.is_preprocessed(x):
            # A tuple is what a preprocessor returns.
            return (
                batches.unpack(x) if isinstance(x, tuple) and y is None else (x, y, sample_weight)
            )
        batches.check_rows(x)
        x, y, sample_weight = self.preprocess_rows(
            x, y, sample_weight, batch_size or 32, shuffle, is_training
        )
        if needs_labels and y is None and not batches.is_stream(x):
            raise ValueError("Strings must have labels to train or evaluate on. Received: y=None")
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
        given = x
        if validation_split and validation_data is None and not batches.is_preprocessed(x):
            x, y, sample_weight, validation_data = _split(x, y, sample_weight, validation_split)
            validation_split = 0.0
        if not batches.is_preprocessed(x):
            callbacks = [*(callbacks or []), *self.string_callbacks()]
        x, y, sample_weight = self._preprocessed(
            x, y, sample_weight, batch_size, shuffle, is_training=True
        )
        if validation_data is not None:
            is_stream = batches.is_stream(validation_data)
            held_out = (validation_data,) if is_stream else batches.unpack(validation_data)
            size = validation_batch_size or batch_size
            validation_data = self._preprocessed(*held_out, batch_size=size)
        if batches.is_stream(x):
            # Keras shuffles the batches of a `PyDataset` alone, and warns about the others.
            is_shuffled = isinstance(given, keras.utils.PyDataset) if shuffle is None else shuffle
            shuffle = is_shuffled and isinstance(x, keras.utils.PyDataset)
        # Not keras-hub's `fit`: its preprocessing knows no seeds, and without a preprocessor it
        # still demands tf.data or grain.
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
        return keras.Model.evaluate(
            self, x, y, batch_size, verbose=verbose, sample_weight=sample_weight, **kwargs
        )

    def predict(self, x, batch_size: int | None = None, verbose="auto", **kwargs):
        """The outputs for each row, of what `fit` takes: see there and `keras.Model.predict`."""
        x, _, _ = self._preprocessed(x, batch_size=batch_size, needs_labels=False)
        return keras.Model.predict(self, x, batch_size=batch_size, verbose=verbose, **kwargs)

    # Keras's, for the batches of arrays that `fit` takes too: keras-hub's would preprocess them.
    train_on_batch = keras.Model.train_on_batch
    test_on_batch = keras.Model.test_on_batch
    predict_on_batch = keras.Model.predict_on_batch

    def compile(self, *, jit_compile="auto", **kwargs):
        if jit_compile == "auto" and _is_tensorflow_on_cpu():
            jit_compile = False  # XLA is slower there.
        # It knows the variables that were trainable when it was made.
        object.__setattr__(self, "_exchanging", None)
        super().compile(jit_compile=jit_compile, **kwargs)

    def __call__(self, inputs, *args, **kwargs):
        inputs = with_padding_mask(inputs)
        if kwargs.get("training") and distribution.num_torch_processes() > 1:
            tensors = keras.tree.flatten(inputs)
            if not any(isinstance(x, keras.KerasTensor) for x in tensors):
                return self._exchanging_module()(inputs, *args, **kwargs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None, mask=None, **kwargs):
        # JAX's steps come here.
        return super().call(with_padding_mask(inputs), training=training, mask=mask, **kwargs)

    def _exchanging_module(self):
        # In a list, since a module that holds itself cannot be walked.
        module = self.__dict__.get("_exchanging")
        if module is None:
            module = [distribution.with_exchanged_gradients(self, super().__call__)]
            object.__setattr__(self, "_exchanging", module)
        return module[0]

    def get_metrics_result(self):
        with distribution.summed_over_processes(self.metrics):
            return super().get_metrics_result()

    def compile_from_config(self, config):
        # Keras does so itself only where `compile` is not overridden.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    # A preset is for others: the optimizer's state, twice the weights, stays with the run.
    def save_task_weights(self, filepath):
        keras.saving.save_weights(self, filepath, objects_to_skip=self._not_of_the_head())

    def load_task_weights(self, filepath):
        keras.saving.load_weights(self, filepath, objects_to_skip=self._not_of_the_head())

    def _not_of_the_head(self):
        skipped = [self.backbone, *self.backbone.layers]
        return skipped if self.optimizer is None else [*skipped, self.optimizer]


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


def _is_tensorflow_on_cpu():
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU"))
