"""What the tasks share."""

import contextlib
import inspect
import logging
import os
import re
import zlib
from collections.abc import Callable

import keras
import keras_hub

from keras_spanbert import distribution
from keras_spanbert.formats import keras_hub as presets
from keras_spanbert.layers.initializers import skip_initialization
from keras_spanbert.layers.parts import policy_with_parts, with_parts
from keras_spanbert.models import batches
from keras_spanbert.models.backbone import SpanBertBackbone, named_inputs
from keras_spanbert.models.checkpoint_entries import Part, checked_entries, load_entries
from keras_spanbert.models.from_preset import FromPreset
from keras_spanbert.models.keras_export import KerasExport
from keras_spanbert.models.string_inputs import StringInputs
from keras_spanbert.models.torch_parameters import register_parameters

_LOG = logging.getLogger("keras_spanbert")


class SpanBertTask(StringInputs, FromPreset, KerasExport, keras_hub.models.Task):
    """A backbone with a head: loading of presets and checkpoints, and compiling.

    A task's class says what shared code must know of it:

    - `checkpoint_parts`: the tensors of its heads, as `Part`s; `parts_for`, where its
      arguments choose heads.
    - `huggingface_class`: the class of `transformers` that it becomes.
    - `sharding_layout`: of its heads, for `keras.distribution.LayoutMap`.
    - `arguments_for`: its arguments for a checkpoint's settings; `is_in`, whether a
      checkpoint has its head.
    - `checkpoint_settings`: its settings for its own table of tensors.
    - `head_flops`: floating-point operations of its heads.
    - `serving_function`: its graph from strings to answers, and
      `serving_endpoints` where it has several; `serves_heads`, whether that goes
      through its heads.
    - `preprocess`: strings to arrays, for `fit`, `evaluate` and `predict`.
    - `scores`: labels of what an evaluation gives, by name; of `best_score`, a
      name among them, more is better.
    - `progress_labels`: labels of compiled metrics that a run shows between evaluations.
    - `describe`: what a run shows of a row of its history.

    A constructor sets what `compile` reads before it calls `super().__init__`,
    which compiles. Names that begin with one underscore may be Keras's own.
    """

    backbone_cls = SpanBertBackbone
    checkpoint_parts: tuple[Part, ...] = ()
    huggingface_class: str | None = None
    sharding_layout: dict[str, tuple] = {}
    serves_heads = True
    scores: dict[str, str] = {}
    best_score: str | None = None
    progress_labels: dict[str, str] = {}

    def __new__(cls, *args, **kwargs):
        # Before the constructor makes the first variable.
        distribution.add_layout(cls.sharding_layout)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        register_parameters(self)
        self._initial_heads = self._head_checksums()

    @classmethod
    def from_keras_hub(cls, preset: str, load_weights: bool = True, **kwargs):
        """Loads a keras-hub preset, of this task or of another one: see `from_preset`."""
        saved_as = presets.registered_task(preset) or object
        if saved_as is not cls and issubclass(cls, saved_as) and issubclass(saved_as, SpanBertTask):
            return cls._from_parent(saved_as, preset, load_weights, **kwargs)
        is_own = issubclass(saved_as, cls)
        if load_weights and os.path.isdir(preset) and not is_own:
            _LOG.warning(
                "%s has no weights for the head of %s, which starts fresh", preset, cls.__name__
            )
        if presets.has_tokenizer(preset) and "preprocessor" not in kwargs:
            if presets.preprocessor_class(preset) != cls.preprocessor_cls.__name__:
                # Of another task's preset, with settings that fit the backbone.
                kwargs["preprocessor"] = cls.preprocessor_cls.from_preset(preset)
        name = (saved_as if is_own else cls).__name__
        kwargs.setdefault("dtype", presets.dtype_policy(preset, name))
        return super().from_keras_hub(preset, load_weights=load_weights, **kwargs)

    @classmethod
    def _from_parent(cls, parent, preset, load_weights, **kwargs):
        """An object of a subclass, with what a preset has of the class it was saved as."""
        known, all_names = (inspect.signature(c.__init__).parameters for c in (parent, cls))
        own = {n: kwargs.pop(n) for n in all_names if n in kwargs and n not in known}
        task = parent.from_keras_hub(preset, load_weights=load_weights, **kwargs)
        config = task.get_config()
        config.update(backbone=task.backbone, preprocessor=task.preprocessor, **own)
        found = cls(**config)
        heads = {layer.name: layer for layer in found.layers if layer is not task.backbone}
        for layer in task.layers if load_weights else []:
            if layer.name in heads:
                heads[layer.name].set_weights(layer.get_weights())
        return found

    @classmethod
    def from_checkpoint(cls, checkpoint, load_weights: bool = True, dtype=None, **kwargs):
        """The encoder and what a `formats.Checkpoint` has of the head: see `from_preset`."""
        parts = [cls.backbone_cls.checkpoint_part, *cls.parts_for(kwargs)]
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
    def is_in(cls, checkpoint) -> bool:
        """Whether a `formats.Checkpoint` has the head of this task."""
        return any(checkpoint.has(part.prefix) for part in cls.checkpoint_parts)

    @classmethod
    def parts_for(cls, arguments: dict) -> tuple[Part, ...]:
        """The tensors of the heads that arguments of the class choose."""
        return cls.checkpoint_parts

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

    def serving_function(self, **kwargs) -> tuple[Callable, list]:
        """The function of strings that a SavedModel serves, and its arguments' specifications."""
        raise ValueError(f"{type(self).__name__} has no export for serving. Received: {kwargs}")

    @classmethod
    def can_be_served(cls) -> bool:
        """Whether the class has something to serve."""
        own = cls.serving_function, cls.serving_endpoints
        return own != (SpanBertTask.serving_function, SpanBertTask.serving_endpoints)

    def serving_endpoints(self, **kwargs) -> dict[str, tuple[Callable, list]]:
        """What a SavedModel serves, by the names of its signatures."""
        return {"serving_default": self.serving_function(**kwargs)}

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

    def untrained_heads(self) -> list[str]:
        """Names of the heads that are as they were initialised: neither trained nor loaded."""
        now = self._head_checksums() if self._initial_heads else {}
        # What has changed once need not be looked at again.
        self._initial_heads = {n: c for n, c in self._initial_heads.items() if now.get(n) == c}
        return list(self._initial_heads)

    def warn_if_untrained(self) -> None:
        """Warns of heads that have learned nothing: what they give is random."""
        heads = self.untrained_heads()
        if heads:
            _LOG.warning(
                "WARNING: this %s has not been trained: what its %s gives is random. Call `fit`, "
                "or load a preset or checkpoint with a trained head",
                type(self).__name__,
                " and ".join(heads),
            )

    def save_to_preset(self, preset_dir, *args, **kwargs):
        self.warn_if_untrained()
        super().save_to_preset(preset_dir, *args, **kwargs)

    def _head_checksums(self):
        of_backbone = {id(weight) for weight in self.backbone.weights}
        checksums = {}
        for layer in self.layers:
            # Kernels alone: biases may be set to the unigram distribution.
            kernels = [w for w in layer.weights if id(w) not in of_backbone and len(w.shape) > 1]
            # Parts of what is spread over processes are on other hosts.
            if kernels and all(getattr(w.value, "is_fully_addressable", True) for w in kernels):
                bytes_of_each = (keras.ops.convert_to_numpy(w).tobytes() for w in kernels)
                checksums[layer.name] = zlib.crc32(b"".join(bytes_of_each))
        return checksums

    # Keras's, for the arrays that strings were made into: keras-hub's would preprocess them.
    def train_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """Trains on a batch of arrays: see `keras.Model.train_on_batch`."""
        batches.check_arrays(x)
        if self.compiled and not self.optimizer.built:
            self._build_training(x, y, sample_weight)
        return keras.Model.train_on_batch(self, x, y, sample_weight, *args, **kwargs)

    def test_on_batch(self, x, *args, **kwargs):
        """Evaluates a batch of arrays: see `keras.Model.test_on_batch`."""
        batches.check_arrays(x)
        return keras.Model.test_on_batch(self, x, *args, **kwargs)

    def predict_on_batch(self, x):
        """Predicts for a batch of arrays: see `keras.Model.predict_on_batch`."""
        batches.check_arrays(x)
        num_rows = batches.num_rows(x)
        found = keras.Model.predict_on_batch(self, distribution.padded_to_shards(x, num_rows))
        return keras.tree.map_structure(lambda array: array[:num_rows], found)

    def compile(self, *, jit_compile="auto", **kwargs):
        if jit_compile == "auto" and _is_tensorflow_on_cpu():
            jit_compile = False  # XLA is slower there.
        # It knows the variables that were trainable when it was made.
        object.__setattr__(self, "_exchanging", None)
        super().compile(jit_compile=jit_compile, **kwargs)

    def __call__(self, inputs, *args, **kwargs):
        inputs = named_inputs(self, inputs)
        if kwargs.get("training") and distribution.num_torch_processes() > 1:
            tensors = keras.tree.flatten(inputs)
            if not any(isinstance(x, keras.KerasTensor) for x in tensors):
                return self._exchanging_module()(inputs, *args, **kwargs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None, mask=None, **kwargs):
        # JAX's steps come here.
        return super().call(named_inputs(self, inputs), training=training, mask=mask, **kwargs)

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

    def get_config(self):
        config = super().get_config()
        # The heads' layers take their policies from the backbone's, by their paths.
        policy = policy_with_parts(self, self.backbone.dtype_policy)
        config["backbone"]["config"]["dtype"] = keras.dtype_policies.serialize(policy)
        return config

    def quantize(self, mode=None, config=None, filters=None, **kwargs) -> None:
        """Quantizes backbone and head: see `keras.Model.quantize`."""
        preprocessing = {id(layer) for layer in with_parts([self.preprocessor])}
        patterns = [filters] if isinstance(filters, str) else filters

        def is_chosen(layer):
            if id(layer) in preprocessing:  # Keras would ask of it to be built.
                return False
            if patterns is None or callable(patterns):
                return patterns is None or patterns(layer)
            return any(re.search(pattern, layer.name) for pattern in patterns)

        super().quantize(mode, config=config, filters=is_chosen, **kwargs)

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


def weights_of(loss, weights: dict[str, float]) -> dict[str, float] | None:
    """The weights of the outputs that `loss` has losses for; none where it is no dict."""
    return {n: w for n, w in weights.items() if n in loss} if isinstance(loss, dict) else None


def _is_tensorflow_on_cpu():
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU"))
