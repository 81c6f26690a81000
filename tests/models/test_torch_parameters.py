"""Parameters and state dicts of models on PyTorch."""

import copy
import pickle

import keras
import numpy as np
import pytest
import tiny_answerer
import tiny_models

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's modules")

BUILDS = [tiny_models.backbone, tiny_models.pretrainer, tiny_answerer.build]


@pytest.mark.parametrize("build", BUILDS)
def test_each_weight_is_one_parameter(build):
    model = build()
    if getattr(model, "optimizer", None):  # Keras warns about unbuilt optimizers.
        model.optimizer.build(model.trainable_variables)
    for found in [model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]:
        weights = {id(variable.value) for variable in found.variables}
        assert {id(weight.value) for weight in found.weights} <= weights
        parameters = list(found.parameters())
        assert len(parameters) == len(weights)
        assert {id(parameter) for parameter in parameters} == weights
        trained = {id(p) for p in parameters if p.requires_grad}
        assert trained == {id(weight.value) for weight in found.trainable_weights}
        assert len(found.state_dict()) == len(weights)


def test_torch_optimizer_trains_all_weights_like_fit():
    model = tiny_answerer.build()
    questions, contexts, answers = tiny_answerer.examples(8)
    windows = model.preprocessor.windows(questions, contexts, answers)
    x = {name: windows[name] for name in ["token_ids", "segment_ids", "padding_mask"]}
    before = model.get_weights()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    logits = model(x)
    sum((logits[name] ** 2).sum() for name in logits).backward()
    optimizer.step()
    changed = [not np.array_equal(a, b) for a, b in zip(before, model.get_weights())]
    # Key biases have no gradient, since softmax does not depend on a constant.
    assert np.mean(changed) > 0.9
    model.compile("sgd")
    model.fit({"question": questions, "context": contexts}, answers, verbose=0)
    assert {id(p) for p in model.parameters()} == {id(v.value) for v in model.variables}
