"""What the tasks share."""

import json
import logging
import os

import keras
import keras_hub

from keras_spanbert.models.backbone import with_padding_mask
from keras_spanbert.models.preprocessor import is_of
from keras_spanbert.training import distribution


class SpanBertTask(keras_hub.models.Task):
    """A backbone with a head: loading of presets and checkpoints, and compiling."""

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Loads a preset or another library's checkpoint.

        Heads that it lacks start fresh, and the log says so.

        Args:
            preset: string. See `SpanBertBackbone.from_preset`.
            load_weights: bool. Defaults to `True`.
            **kwargs: arguments of the class in place of the preset's, and
                `dtype`, by default Keras's dtype policy; for checkpoints also
                `vocabulary`, a file, and for fairseq's `num_heads`.

        Returns:
            The task.

        Raises:
            ValueError: where `preset` is none of these or damaged.

        Example:
        ```python
        pretrainer = keras_spanbert.SpanBertPretrainer.from_preset("saved_models/pretrain")
        ```
        """
        from keras_spanbert.checkpoints import sources

        source = sources.open_source(preset, **sources.pop_options(kwargs))
        if not isinstance(source, str):
            return source.task(cls, load_weights, **kwargs)
        if load_weights and os.path.isdir(source) and not is_preset_of(cls, source):
            logging.getLogger("keras_spanbert").warning(
                "%s has no weights for the head of %s, which starts fresh", preset, cls.__name__
            )
        if os.path.isfile(os.path.join(source, "tokenizer.json")):
            # Of another task's preset, with settings that fit the backbone.
            if "preprocessor" not in kwargs and not is_of(cls.preprocessor_cls, source):
                kwargs["preprocessor"] = cls.preprocessor_cls.from_preset(source)
        # keras-hub's own default fails on what was saved with a mixed policy.
        kwargs.setdefault("dtype", keras.config.dtype_policy().name)
        return super().from_preset(source, load_weights, **kwargs)

    @classmethod
    def arguments_for(cls, config):
        """Arguments that fit a checkpoint's settings: see `SpanBertPreprocessor`."""
        return {}

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

    def load_task_weights(self, filepath):
        # The file also holds the optimizer's state, which Keras restores only
        # where an optimizer with as many variables is built.
        import h5py

        with h5py.File(filepath) as file:
            num_saved = len(file.get("optimizer/vars", ()))
        skip = list(self.backbone._flatten_layers())
        if self.optimizer is not None:
            if num_saved > 2:  # More than the step and the learning rate.
                self.optimizer.build(self.trainable_variables)
            if num_saved != len(self.optimizer.variables):
                skip.append(self.optimizer)
        keras.saving.load_weights(self, filepath, objects_to_skip=skip)


def is_preset_of(cls, folder):
    """Whether a preset is one of the task `cls`."""
    path = os.path.join(folder, "task.json")
    if not os.path.isfile(path):
        return False
    with open(path, encoding="utf-8") as file:
        return json.load(file).get("class_name") == cls.__name__


def _is_tensorflow_on_cpu():
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU"))
