"""torch.compile compiles the forward pass once, as a single graph."""

import keras
import numpy as np
import pytest

import keras_spanbert as ks

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's compiler")
LENGTH, PREDICTIONS = 11, 3


def batch(seed):
    import torch

    generator = np.random.default_rng(seed)
    sizes = dict.fromkeys(["token_ids", "segment_ids", "padding_mask"], LENGTH)
    sizes |= dict.fromkeys("mask_positions span_left span_right span_offsets".split(), PREDICTIONS)
    return {
        name: torch.from_numpy(generator.integers(0, 2, (2, size)).astype("int32"))
        for name, size in sizes.items()
    }


@pytest.mark.long
@pytest.mark.parametrize(("attention_dropout", "has_heads"), [(0.1, True), (0.0, False)])
def test_forward_pass_is_one_graph(attention_dropout, has_heads):
    import torch

    backbone = ks.SpanBertBackbone(
        23, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=10,
        attention_dropout=attention_dropout,
    )  # fmt: skip
    model = ks.SpanBertPretrainer(backbone, position_dim=5) if has_heads else backbone
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    # `fullgraph` raises an error for graph breaks.
    forward = torch.compile(model, backend=count, fullgraph=True)
    for seed in range(3):
        outputs = forward(batch(seed), training=True)
    # The second call does not recompile.
    assert len(graphs) == 1
    keras.tree.flatten(outputs)[0].sum().backward()
    assert all(v.value.grad is not None for v in backbone.trainable_variables)


def test_layers_are_not_compiled_without_a_compiler(monkeypatch, caplog):
    import torch

    from keras_spanbert.layers import torch_layers

    def no_compiler(function, **kwargs):
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", no_compiler)
    monkeypatch.setattr(torch_layers, "_failures", set())
    model = ks.SpanBertBackbone(
        23, num_layers=2, num_heads=2, hidden_dim=6, intermediate_dim=10, dropout=0.0
    )
    inputs = {name: batch(1)[name] for name in ["token_ids", "segment_ids", "padding_mask"]}
    expected = model(inputs, training=True)
    for layer in model.transformer_layers:
        layer.compiles = True
    outputs = model(inputs, training=True)
    np.testing.assert_array_equal(outputs.detach(), expected.detach())
    [warning] = [record for record in caplog.records if record.name == "keras_spanbert"]
    assert "cannot compile the layers here" in warning.getMessage()
    assert "RuntimeError: no C++ compiler" in warning.getMessage()
