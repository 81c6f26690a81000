"""The parts of a pretraining step, lowered for TPU chips that are not at hand, and compiled.

Each part runs the model's own layers, losses and optimizer, forward and backward, with the shapes
and shardings of a whole step; `tpu_plan.py` adds them up.
"""

import dataclasses
import math
import resource

import hlo_bytes
import jax
import keras
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

import keras_spanbert as ks
from keras_spanbert.distribution.layout import new_layout
from keras_spanbert.layers.initializers import skip_initialization

VOCABULARY_SIZE = 28_996
MASKS = ("mask_positions", "span_left", "span_right", "span_offsets")


@dataclasses.dataclass
class Part:
    """A compiled part: what its program costs a chip (`hlo_bytes.Costs`), holds, and took.

    `held` is the temporary memory of the program in bytes, beside arguments and results.
    """

    costs: hlo_bytes.Costs
    held: int
    cpu_seconds: float


class Parts:
    """The parts of a step of `SpanBertPretrainer`.

    Args:
        size: of `SpanBertBackbone.SIZES`.
        num_layers: int. Layers of the model that is built.
        topology: as `"v5e:2x4"`.
        parallel: `"data"`, or `"model"` over `shards` chips each.
        length: int. Tokens of a row.
        mask_rate: float.
        predictions_multiple: int. See `SpanMasking`.
        has_padding: bool. Whether there is a padding mask.
        hlo: folder to write each part's program to, or `None`.
        backbone: dict. Further arguments of `SpanBertBackbone`.
    """

    def __init__(
        self, size, num_layers, topology, parallel, shards, length, mask_rate, predictions_multiple,
        has_padding, hlo, backbone,
    ):  # fmt: skip
        devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
        self.num_chips, self.length, self.hlo = len(devices), length, hlo
        self.has_padding = has_padding
        self.shards = shards if parallel == "model" else 1
        self.replicas = self.num_chips // self.shards
        # A model's layout is that of as many CPU devices; its variables are on these.
        self._set_cpu_engine()
        with skip_initialization():
            self.backbone = ks.SpanBertBackbone(
                VOCABULARY_SIZE,
                **{**ks.SpanBertBackbone.SIZES[size], "num_layers": num_layers},
                max_sequence_length=max(512, length),
                **backbone,
            )
            self.model = ks.SpanBertPretrainer(self.backbone)
        self.model.compile()
        self.model.optimizer.build(self.model.trainable_variables)
        self.heads = self._heads()
        self._engine = self._tpu_engine(devices)
        self._mesh = self._engine.device_mesh.backend_mesh
        masking = ks.SpanMasking(
            VOCABULARY_SIZE,
            mask_token_id=103,
            mask_rate=mask_rate,
            predictions_multiple=predictions_multiple,
        )
        self.num_predictions = masking.num_predictions(length)

    # === Layout ===

    def _set_cpu_engine(self):
        if self.shards == 1:
            return
        names = keras.distribution.list_devices("cpu")[: self.num_chips]
        mesh = keras.distribution.DeviceMesh(
            (self.replicas, self.shards), ("batch", "model"), names
        )
        self._layout = new_layout(mesh)
        keras.distribution.set_distribution(
            keras.distribution.ModelParallel(
                layout_map=self._layout, batch_dim_name="batch", auto_shard_dataset=False
            )
        )

    def _tpu_engine(self, devices):
        if self.shards == 1:
            mesh = keras.distribution.DeviceMesh((self.num_chips,), ("batch",), devices)
            return keras.distribution.DataParallel(device_mesh=mesh, auto_shard_dataset=False)
        mesh = keras.distribution.DeviceMesh(
            (self.replicas, self.shards), ("batch", "model"), devices
        )
        layout = keras.distribution.LayoutMap(mesh)
        for path in self._layout:
            layout[path] = self._layout[path].axes
        return keras.distribution.ModelParallel(
            layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False
        )

    def _sharding(self, *axes):
        return NamedSharding(self._mesh, PartitionSpec(*axes))

    def _shardings(self, variables):
        found = []
        for variable in variables:
            cpu = variable.value.sharding
            axes = cpu.spec if isinstance(cpu, NamedSharding) else ()
            found.append(self._sharding(*axes))
        return found

    def _states(self, variables):
        return [
            jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=sharding)
            for variable, sharding in zip(variables, self._shardings(variables))
        ]

    def _rows(self, batch_size, *shape, dtype="int32"):
        shape = (batch_size * self.replicas, *shape)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self._sharding("batch"))

    def bytes_of(self, variables) -> int:
        """Bytes of variables on a chip."""
        return sum(
            math.prod(state.sharding.shard_shape(state.shape)) * np.dtype(state.dtype).itemsize
            for state in self._states(variables)
        )

    # === Parts ===

    def embeddings(self, batch_size: int) -> Part:
        """Embeddings, and the sum of their table's gradients: their own and the heads'."""
        backbone = self.backbone
        names = ["token_ids", "segment_ids"]
        layers = keras.Model(
            {name: backbone.input[name] for name in names}, backbone.embeddings_dropout.output
        )
        table = backbone.token_embedding.embeddings
        weights, others = layers.trainable_variables, layers.non_trainable_variables
        place = [variable is table for variable in weights].index(True)

        def step(weights, others, ids, gradient, of_heads):
            def forward(weights):
                return layers.stateless_call(weights, others, ids, training=True)

            outputs, backward, others = jax.vjp(forward, weights, has_aux=True)
            (gradients,) = backward(gradient)
            gradients[place] += of_heads
            return outputs, others, gradients

        hidden = self._hidden(batch_size)
        ids = {name: self._rows(batch_size, self.length) for name in names}
        return self._compile(
            "embeddings",
            step,
            [self._states(weights), self._states(others), ids, hidden, *self._states([table])],
            (hidden.sharding, None, self._shardings(weights)),
        )

    def layers(self, batch_size: int, count: int) -> Part:
        """The first layers of the encoder, one after another."""
        layers = self.backbone.transformer_layers[:count]
        weights = [layer.trainable_variables for layer in layers]
        others = [layer.non_trainable_variables for layer in layers]

        def step(weights, others, inputs, padding_mask, gradient):
            def forward(weights, x):
                states = []
                for layer, of_layer, other in zip(layers, weights, others):
                    x, state = layer.stateless_call(
                        of_layer, other, x, padding_mask=padding_mask, training=True
                    )
                    states.append(state)
                return x, states

            outputs, backward, states = jax.vjp(forward, weights, inputs, has_aux=True)
            return outputs, states, backward(gradient)

        hidden = self._hidden(batch_size)
        mask = self._rows(batch_size, self.length) if self.has_padding else None
        shardings = [self._shardings(variables) for variables in weights]
        return self._compile(
            f"{count}_layers_{batch_size}",
            step,
            [
                [self._states(variables) for variables in weights],
                [self._states(variables) for variables in others],
                hidden,
                mask,
                hidden,
            ],
            (hidden.sharding, None, (shardings, hidden.sharding)),
        )

    def _heads(self):
        """A model of both heads alone, compiled as the pretrainer is."""
        hidden = keras.Input(
            (None, self.backbone.hidden_dim), dtype=self.backbone.compute_dtype, name="hidden"
        )
        masks = {name: keras.Input((None,), dtype="int32", name=name) for name in MASKS}
        positions, *spans = masks.values()
        heads = keras.Model(
            {"hidden": hidden, **masks},
            {
                "mlm": self.model.mlm_head(hidden, positions),
                "sbo": self.model.sbo_head(hidden, *spans),
            },
        )
        heads.compile_from_config(self.model.get_compile_config())
        for model in (heads, self.model):
            _build_metrics(model)
        return heads

    def heads_and_loss(self, batch_size: int) -> Part:
        """Both heads, the loss, and the metrics that training shows."""
        heads = self.heads
        weights, others = heads.trainable_variables, heads.non_trainable_variables
        metrics = heads.metrics_variables

        def step(weights, others, metrics, hidden, masks, y, sample_weight):
            def forward(weights, hidden):
                return heads.compute_loss_and_updates(
                    weights, others, metrics, {"hidden": hidden, **masks}, y, sample_weight,
                    training=True, optimizer_variables=[],
                )  # fmt: skip

            grad = jax.value_and_grad(forward, argnums=(0, 1), has_aux=True)
            (loss, (_, y_pred, new_others, new_metrics)), gradients = grad(weights, hidden)
            mapping = list(zip(heads.metrics_variables, new_metrics))
            with keras.StatelessScope(state_mapping=mapping) as scope:
                logs = heads.compute_metrics({}, y, y_pred, sample_weight)
                new_metrics = [scope.get_current_value(v) for v in heads.metrics_variables]
            return loss, logs, new_others, new_metrics, gradients

        hidden = self._hidden(batch_size)
        masks, y, sample_weight = self._targets(batch_size)
        return self._compile(
            f"heads_{batch_size}",
            step,
            [
                self._states(weights),
                self._states(others),
                self._states(metrics),
                hidden,
                masks,
                y,
                sample_weight,
            ],
            (None, None, None, None, (self._shardings(weights), hidden.sharding)),
        )

    def optimizer(self, num_layers: int) -> Part:
        """The update of the weights of a model of so many layers, with clipping."""
        left_out = {
            id(variable)
            for layer in self.backbone.transformer_layers[num_layers:]
            for variable in layer.trainable_variables
        }
        weights = [v for v in self.model.trainable_variables if id(v) not in left_out]
        optimizer = type(self.model.optimizer).from_config(self.model.optimizer.get_config())
        optimizer.build(weights)
        states, of_optimizer = self._states(weights), self._states(optimizer.variables)
        return self._compile(
            f"optimizer_{num_layers}",
            optimizer.stateless_apply,
            [of_optimizer, states, states],
            (self._shardings(weights), self._shardings(optimizer.variables)),
            donate=(0, 2),
        )

    def whole(self, batch_size: int) -> Part:
        """The whole step, `keras.Model.train_step`."""
        model = self.model
        groups = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
        names = ["token_ids", "segment_ids", "padding_mask"]
        if not self.has_padding:
            names.remove("padding_mask")
        masks, y, sample_weight = self._targets(batch_size)
        x = {name: self._rows(batch_size, self.length) for name in names}
        return self._compile(
            f"whole_{batch_size}",
            model.train_step,
            [tuple(self._states(group) for group in groups), ({**x, **masks}, y, sample_weight)],
            (None, tuple(self._shardings(group) for group in groups)),
            donate=(0,),
        )

    def _hidden(self, batch_size):
        backbone = self.backbone
        return self._rows(
            batch_size, self.length, backbone.hidden_dim, dtype=backbone.compute_dtype
        )

    def _targets(self, batch_size):
        M = self.num_predictions
        masks = {name: self._rows(batch_size, M) for name in MASKS}
        y = {name: self._rows(batch_size, M) for name in ("mlm", "sbo")}
        weights = {name: self._rows(batch_size, M, dtype="float32") for name in y}
        return masks, y, weights

    def _compile(self, name, function, arguments, out_shardings, donate=()):
        with self._engine.scope():
            lowered = jax.jit(
                function, out_shardings=out_shardings, donate_argnums=donate
            ).lower(*arguments)  # fmt: skip
        before = _cpu_seconds()
        compiled = lowered.compile()
        seconds = _cpu_seconds() - before
        text = compiled.as_text()
        if self.hlo:
            (self.hlo / f"{name}.txt").write_text(text)
        held = compiled.memory_analysis().temp_size_in_bytes
        return Part(hlo_bytes.read(text), held, seconds)


def _build_metrics(model):
    """Makes the variables of losses and metrics, which come with their first values."""
    vocabulary_size = model.output["mlm"].shape[-1]
    y = {name: np.zeros((1, 1), "int32") for name in model.output}
    weights = {name: np.ones((1, 1), "float32") for name in y}
    y_pred = {name: keras.ops.zeros((1, 1, vocabulary_size)) for name in y}
    model.compute_loss({}, y, y_pred, weights)
    model.compute_metrics({}, y, y_pred, weights)


def _cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
