"""Base class of the fine-tuning and pretraining tasks."""

import inspect
import zlib
from collections.abc import Callable

import keras
import keras_hub

from keras_spanbert import distribution
from keras_spanbert.checks import check_in
from keras_spanbert.keras_losses import TargetLossModel
from keras_spanbert.keras_private import forget_metrics
from keras_spanbert.layers.layout import add_layout
from keras_spanbert.layers.sublayers import config_of, policy_with_quantization, skip_initialization
from keras_spanbert.models import lora
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.checkpoint_entries import Checkpoint, TensorGroup
from keras_spanbert.models.fit_strings import StringInputs
from keras_spanbert.models.keras_model import KerasModel, one_thread, with_one_thread
from keras_spanbert.optional import tf
from keras_spanbert.training.optimizer import AdamW
from keras_spanbert.wording import LOG

if keras.backend.backend() == "torch":
    from keras_spanbert.models.torch_step import TorchStep


@with_one_thread
class SpanBertTask(StringInputs, TargetLossModel, KerasModel, keras_hub.models.Task):
    """A backbone with a head, which loads presets and checkpoints and compiles itself.

    A task's class defines what shared code needs to know about it:

    - `tensor_groups`: the tensors of its heads, as `TensorGroup`s. `tensor_groups_for`,
      if its arguments choose the heads.
    - `huggingface_class`: the corresponding class of `transformers`.
    - `sharding_layout`: layout of its heads, for `keras.distribution.LayoutMap`.
    - `arguments_in`: its arguments for a checkpoint. `is_in`: whether a checkpoint
      contains its head.
    - `checkpoint_settings`: its settings for `transformers` and its `tensor_groups`.
    - `head_flops`: floating-point operations of its heads.
    - `serving_function`: its graph from strings to answers, and `serving_endpoints` if it has
      several. `serves_heads`: whether the graph uses its heads.
    - `preprocess`: strings to arrays, for `fit`, `evaluate` and `predict`.
    - `label_limits`: the values of labels in arrays.
    - `weights_mark_targets` and `divides_by_rows`: see `TargetLossModel`.
    - `config_names`: its arguments that `get_config` saves from attributes of the same name.
    - `scores`: labels of the evaluation's scores in percent, by name.
    - `best_score`: name of the score used to select the best checkpoint. Higher is better.
    - `loss_unit`: the unit of the training loss, for plots.
    - `progress_labels`: labels of compiled metrics that a run shows between evaluations.
    - `describe`: text that a run shows for a row of its history.
    - `default_optimizer`, `default_loss`, `default_loss_weights` and
      `default_metrics`: for `compile`.

    `super().__init__` compiles the model, so a constructor first sets the attributes
    that `compile` reads. Keras may use names that begin with one underscore.
    """

    backbone_cls = SpanBertBackbone
    tensor_groups: tuple[TensorGroup, ...] = ()
    huggingface_class: str | None = None
    sharding_layout: dict[str, tuple] = {}
    serves_heads = True
    config_names: tuple[str, ...] = ()
    scores: dict[str, str] = {}
    best_score: str | None = None
    loss_unit: str = "nats"
    progress_labels: dict[str, str] = {}
    optimizer = None  # Keras sets it in `compile`.

    def __setattr__(self, name, value):
        if name == "backbone":
            is_backbone = isinstance(value, keras_hub.models.Backbone)
            check_in("backbone", value, is_backbone, "a `SpanBertBackbone`")
            pooled = getattr(value, "pooled_output", False)
            rule = "False: tasks that need a pooler have their own"
            check_in("backbone.pooled_output", pooled, not pooled, rule)
            # Must run before the constructor creates the first variable.
            add_layout(self.sharding_layout)
        if name == "preprocessor":
            is_right = value is None or isinstance(value, keras_hub.models.Preprocessor)
            check_in("preprocessor", value, is_right, "a preprocessor or None")
            # Keras must not track the preprocessor: `quantize` would need its layers to be built.
            object.__setattr__(self, "_preprocessor", value)
            self.set_up_preprocessor()
        else:
            super().__setattr__(name, value)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._initial_heads = self._head_checksums()

    @classmethod
    def from_source(cls, source, load_weights: bool = True, dtype=None, **kwargs):
        """Builds the task of a `Preset` or `Checkpoint`: see `from_preset`.

        The head is new if the source has another task's or none.
        """
        names, saved_as = inspect.signature(cls.__init__).parameters, source.task or object
        if saved_as is not cls and issubclass(cls, saved_as) and issubclass(saved_as, SpanBertTask):
            known = inspect.signature(saved_as.__init__).parameters
            own = {n: kwargs[n] for n in names if n in kwargs and n not in known}
            # The rate is also that of the backbone.
            rest = {n: value for n, value in kwargs.items() if n not in own or n == "dropout"}
            task = saved_as.from_source(source, load_weights, dtype=dtype, **rest)
            return task.rebuilt(cls, None if load_weights else (), **own)
        rates = {n: kwargs.get(n) for n in ["dropout", "attention_dropout"]}
        kwargs = {n: value for n, value in kwargs.items() if n not in rates or n in names}
        arguments, has_backbone = source.arguments_of(cls, **kwargs), "backbone" in kwargs
        if not has_backbone:
            rates = {n: rate for n, rate in rates.items() if rate is not None}
            with skip_initialization(load_weights):
                arguments["backbone"] = source.backbone(cls, dtype=dtype, **rates)
        if "preprocessor" not in kwargs:
            of_class, own = cls.preprocessor_cls, source.saved(cls)
            was_none = own and not own.get("preprocessor") and source.saved(of_class)
            arguments["preprocessor"] = None
            if source.has_vocabulary and not was_none:
                arguments["preprocessor"] = of_class.from_source(source, arguments)
            elif own is None:
                LOG.warning("%s has no vocabulary: the model has no preprocessor", source.name)
        task = source.build(cls, arguments)
        if load_weights:
            source.load_weights(task, keeps_backbone=has_backbone)
        return task

    def rebuilt(self, cls=None, layers=None, **changes):
        """Returns a model with this one's backbone, preprocessor and config, except for changes.

        `cls` is its class, by default this one. `layers` are the layers of the heads to copy the
        weights of, by default those that both models have.
        """
        parts = {"backbone": self.backbone, "preprocessor": self.preprocessor}
        other = (cls or type(self)).from_config({**self.get_config(), **parts, **changes})
        mine, theirs = self.head_layers(), other.head_layers()
        copied = (mine.keys() & theirs.keys()).intersection(mine if layers is None else layers)
        for name in copied:
            theirs[name].set_weights(mine[name].get_weights())
        untrained = copied.intersection(self.untrained_heads())
        if untrained:  # A copy of random weights is random too.
            now = other._head_checksums()
            other._initial_heads.update({n: now[n] for n in untrained.intersection(now)})
        return other

    def new_copy(self):
        """Returns a copy of this model with new weights, and with LoRA if this model has it."""
        copy = type(self).from_config(self.get_config())
        copy.preprocessor = self.preprocessor  # The config has no vocabulary.
        if layers := lora.lora_layers(self.backbone):
            copy.backbone.enable_lora(layers[0].lora_rank, sorted({x.name for x in layers}))
        return copy

    def head_layers(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers with weights outside the backbone, by name."""
        return {x.name: x for x in self.layers if x.weights and x is not self.backbone}

    @classmethod
    def is_in(cls, checkpoint: Checkpoint) -> bool:
        """Returns whether a checkpoint contains the head of this task."""
        return any(checkpoint.has(group.prefix) for group in cls.tensor_groups)

    @classmethod
    def tensor_groups_for(cls, arguments: dict) -> tuple[TensorGroup, ...]:
        """Returns the tensors of the heads that arguments of the class choose."""
        return cls.tensor_groups

    @classmethod
    def arguments_in(cls, checkpoint: Checkpoint) -> dict:
        """Returns the arguments of the class that fit a checkpoint."""
        return {}

    def checkpoint_settings(self) -> dict:
        """Returns the settings for `transformers.BertConfig` and for the `tensor_groups`."""
        return self.backbone.checkpoint_settings()

    def head_flops(self, num_predictions: int) -> float:
        """Returns the FLOPs of the heads for one sequence in the forward pass.

        Args:
            num_predictions: int. Number of masked positions per sequence. Used
                only by tasks with masked positions.
        """
        return 0.0

    def describe(self, row: dict) -> str:
        """Returns the text that a run shows for a row of its history."""
        name = self.best_score
        shown = [f"{self.scores[name]} {row[name]:.2f}"] if name in row else []
        return "  ".join([f"loss {row['loss']:.3f}", *shown])

    def serving_function(self, **kwargs) -> tuple[Callable, list]:
        """Returns the function of strings that a SavedModel serves, and its input specs."""
        raise ValueError(f"{type(self).__name__} has no export for serving. Received: {kwargs}")

    @classmethod
    def can_be_served(cls) -> bool:
        """Returns whether the class defines a serving function."""
        own = cls.serving_function, cls.serving_endpoints
        return own != (SpanBertTask.serving_function, SpanBertTask.serving_endpoints)

    def serving_endpoints(self, **kwargs) -> dict[str, tuple[Callable, list]]:
        """Returns the functions that a SavedModel serves, by signature name."""
        return {"serving_default": self.serving_function(**kwargs)}

    def set_up_preprocessor(self) -> None:
        """Sets or checks what the preprocessor, if there is one, shares with the model.

        Does nothing by default. A constructor sets what this method reads before the preprocessor.
        """

    def check_preprocessor(self) -> None:
        """Raises a `ValueError` if strings cannot become inputs of the model."""
        if self.preprocessor is None:
            raise ValueError("Strings need a preprocessor. Received: preprocessor=None")
        self.set_up_preprocessor()  # As in `get_config`.
        longest, length = self.backbone.max_sequence_length, self.preprocessor.sequence_length
        rule = f"at most the model's {longest}"
        check_in("preprocessor.sequence_length", length, length <= longest, rule)

    @one_thread
    def untrained_heads(self) -> list[str]:
        """Returns the names of heads that have neither been trained nor loaded."""
        now = self._head_checksums() if self._initial_heads else {}
        # A head that has changed once is not checked again.
        self._initial_heads = {n: c for n, c in self._initial_heads.items() if now.get(n) == c}
        return list(self._initial_heads)

    def warn_if_untrained(self) -> None:
        """Warns if heads are untrained, because their output is random."""
        heads = self.untrained_heads()
        if heads:
            LOG.warning(
                "This %s has not been trained: the output of its %s is random. Call `fit`, "
                "or load a preset or checkpoint with a trained head",
                type(self).__name__,
                " and ".join(heads),
            )

    def _head_checksums(self):
        of_backbone = {id(weight) for weight in self.backbone.weights}
        checksums = {}
        for layer in self.layers:
            # Only kernels: biases may be initialized to the unigram distribution.
            kernels = [w for w in layer.weights if id(w) not in of_backbone and len(w.shape) > 1]
            # Weights that are sharded over processes are partly on other hosts.
            if kernels and all(getattr(w.value, "is_fully_addressable", True) for w in kernels):
                bytes_of_each = (keras.ops.convert_to_numpy(w).tobytes() for w in kernels)
                checksums[layer.name] = zlib.crc32(b"".join(bytes_of_each))
        return checksums

    def compile(
        self,
        optimizer="auto",
        loss="auto",
        *,
        loss_weights="auto",
        weighted_metrics="auto",
        jit_compile="auto",
        **kwargs,
    ):
        """Configures training.

        Args:
            optimizer: `"auto"`, a Keras optimizer or its name. Defaults to
                `"auto"`, AdamW with the task's learning rate (see the class), weight
                decay 0.01 and gradients clipped to norm 1.
            loss: `"auto"`, a loss, or a dict of losses by output. Defaults to
                `"auto"`, the task's loss.
            loss_weights: `"auto"` or a dict. Defaults to `"auto"`, the task's
                weights, or none if `loss` is not a dict.
            weighted_metrics: `"auto"`, a list, or a dict by output. Defaults to
                `"auto"`, the task's metrics.
            jit_compile: `"auto"` or bool. Defaults to `"auto"`: Keras's choice, except on
                TensorFlow without a GPU or TPU, where XLA is slower and not used, and on PyTorch,
                which compiles the transformer layers on GPUs and replays training steps there as
                CUDA graphs. With `True` it compiles the layers on CPUs too.
            **kwargs: see `keras.Model.compile`.
        """
        self._given_jit_compile = jit_compile
        loss = self.default_loss() if loss == "auto" else loss
        if loss_weights == "auto":
            weights = self.default_loss_weights() if isinstance(loss, dict) else {}
            loss_weights = {n: w for n, w in weights.items() if n in loss} or None
        if jit_compile == "auto" and keras.backend.backend() == "tensorflow":
            if not any(map(tf.config.list_logical_devices, ["GPU", "TPU"])):
                jit_compile = False  # XLA is slower on CPUs.
        if keras.backend.backend() == "torch":
            import torch

            compiles = torch.cuda.is_available() if jit_compile == "auto" else bool(jit_compile)
            self._compiles_steps = compiles and not kwargs.get("run_eagerly")
            # PyTorch's compiler takes minutes for Keras's code of a whole step.
            for layer in self.backbone.transformer_layers:
                layer.compiles = compiles
            jit_compile = False
        if weighted_metrics == "auto":
            weighted_metrics = self.default_metrics()
        forget_metrics(self)
        # The old module holds the variables that were trainable when it was created.
        object.__setattr__(self, "_ddp", None)
        object.__setattr__(self, "_torch_step", None)
        super().compile(
            optimizer=self.default_optimizer() if optimizer == "auto" else optimizer,
            loss=loss,
            loss_weights=loss_weights,
            weighted_metrics=weighted_metrics,
            jit_compile=jit_compile,
            **kwargs,
        )

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns the default optimizer of `compile`."""
        return AdamW(2e-5)

    def default_loss(self):
        """Returns the default loss of `compile`, or a dict of losses by output."""

    def default_loss_weights(self) -> dict[str, float]:
        """Returns the default weights of the losses by output."""
        return {}

    def label_limits(self, x) -> dict[str, tuple]:
        """Returns the rules for labels that are already arrays.

        Args:
            x: the model's arrays, or tensors of a graph.

        Returns:
            Dict from an output's name, `""` for a single output, to the number of its
            classes and the rule for messages. The number can differ by row: `[N]`.
        """
        return {}

    def default_metrics(self) -> list | dict | None:
        """Returns the default weighted metrics of `compile`."""

    # TensorFlow and JAX have steps and metrics for several devices.
    if keras.backend.backend() == "torch":

        def call(self, inputs, training=None, mask=None, **kwargs):
            call = super().call
            if training and distribution.num_torch_processes() > 1:
                # Kept in a list, because a module that contains itself cannot be traversed.
                module = self.__dict__.get("_ddp") or [distribution.wrap_in_ddp(self, call)]
                object.__setattr__(self, "_ddp", module)
                (call,) = module
            return call(inputs, training=training, mask=mask, **kwargs)

        def train_step(self, *args):
            step = TorchStep.of(self, self.__dict__.get("_torch_step"), self._compiles_steps)
            object.__setattr__(self, "_torch_step", step)  # Keras tracks usual attributes.
            return super().train_step(*args) if step is None else step(self, *args)

        def get_metrics_result(self):
            with distribution.sync_metrics(self.metrics):
                return super().get_metrics_result()

    def get_config(self):
        self.set_up_preprocessor()  # It may have been set up for another model since.
        config = super().get_config()
        # The layers of the heads take their policies from the backbone's policy map, by path.
        policy = policy_with_quantization(self, self.backbone.dtype_policy)
        config["backbone"]["config"]["dtype"] = keras.dtype_policies.serialize(policy)
        return {**config, **config_of(self, self.config_names)}

    def get_compile_config(self):
        # Keras saves what `jit_compile` became on this backend and device.
        config = super().get_compile_config()
        return config and {**config, "jit_compile": self._given_jit_compile}

    def compile_from_config(self, config):
        # Keras does this only if `compile` is not overridden.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    # Presets leave out the optimizer's state, which is twice as large as the weights.
    def save_task_weights(self, filepath):
        self.warn_if_untrained()
        keras.saving.save_weights(self, filepath, objects_to_skip=self._trackables_outside_heads())

    def load_task_weights(self, filepath):
        keras.saving.load_weights(self, filepath, objects_to_skip=self._trackables_outside_heads())

    def _trackables_outside_heads(self):
        skipped = [self.backbone, *self.backbone.layers]
        return skipped if self.optimizer is None else [*skipped, self.optimizer]
