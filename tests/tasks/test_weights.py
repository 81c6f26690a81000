"""The loss is the sum of weight x loss over the number of targets, for every task and backend.

A target is a row's, a token's or a masked position's label. Padding is none.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_pretrainer
import tiny_resolver
import tiny_tagger
import tiny_tasks
from batch_streams import Batches

import keras_spanbert as ks

# On the other backends, these stand for all tasks: one output, three, and tokens.
EVERY_BACKEND = ["texts", "pretraining", "words"]
NAMES = [
    name if name in EVERY_BACKEND else pytest.param(name, marks=pytest.mark.once("torch"))
    for name in [*tiny_tasks.TASKS, "pretraining", "documents"]
]
WEIGHTS = np.array([0.0, 1.0, 5.0, 0.0, 2.0, 1.0, 1.0, 3.0, 0.0, 50.0], "float32")
FACTORS = {"mlm": 1.0, "sbo": 0.5, "nsp": 0.3, "start": 0.5, "end": 0.5}


def build(name):
    """Returns a model that training does not change, and its arrays `(x, y, sample_weight)`."""
    if name == "pretraining":
        objectives = {"span_boundary": True, "next_sentence": True}
        model = tiny_pretrainer.build(objectives=objectives, sbo_weight=0.5, nsp_weight=0.3)
        batch = tiny_pretrainer.arrays(model, tiny_pretrainer.texts(10))
    elif name == "documents":
        model, document = tiny_resolver.build(dropout_rate=0.0), tiny_resolver.document()
        documents = [{**document, "clusters": document["clusters"][:i]} for i in [0, 1, 2, 1, 2]]
        x, y, _ = model.preprocess(documents)
        batch = x, y, None
    else:
        model = tiny_tasks.TASKS[name].build()
        batch = model.preprocess(*tiny_tasks.TASKS[name].forms["columns"])
    model.compile(keras.optimizers.SGD(0.0))
    return model, batch


def take(batch, rows):
    return keras.tree.map_structure(lambda x: None if x is None else np.asarray(x)[rows], batch)


def loss_of(found):
    return {name: value for name, value in found.items() if name.endswith("loss")}


def weigh(name, batch):
    """Returns weights of rows, and the batch with them."""
    x, y, given = batch
    size = len(x["token_ids"])
    weights = np.resize(WEIGHTS, size)
    if name == "pretraining":  # A weight of 0 means that there is no masked position.
        weights = weights + 0.5
        given = {n: (w.T * weights).T for n, w in given.items()}
    elif name == "words":
        given = given * np.maximum(weights, 1e-30)[:, None]
    elif name == "questions":
        given = dict.fromkeys(y, weights)
    else:
        given = weights
    return weights, (x, y, given)


def in_batches(batch, size):
    starts = range(0, len(batch[0]["token_ids"]), size)
    return Batches([take(batch, slice(i, i + size)) for i in starts])


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_sums_over_the_number_of_targets(name):
    model, batch = build(name)
    weights, (x, y, sample_weight) = weigh(name, batch)
    size = len(weights)
    sums, counts, metrics = {}, {}, []

    def evaluate(*args, **kwargs):
        found = model.evaluate(*args, **kwargs, verbose=0, return_dict=True)
        metrics.append({of: value for of, value in found.items() if not of.endswith("loss")})
        return loss_of(found)

    for i in range(size):
        row_x, row_y, given = take(batch, slice(i, i + 1))
        for of, value in evaluate(row_x, row_y, sample_weight=given).items():
            mask = given.get(of.removesuffix("_loss")) if isinstance(given, dict) else given
            count = 1 if mask is None else (mask > 0).sum()
            sums[of] = sums.get(of, 0.0) + value * weights[i] * count
            counts[of] = counts.get(of, 0) + count
    expected = {of: sums[of] / counts[of] for of in sums}
    if len(expected) > 1:
        of_outputs = [of for of in expected if of != "loss"]
        expected["loss"] = sum(
            FACTORS[of.removesuffix("_loss")] * expected[of] for of in of_outputs
        )
    expected = pytest.approx(expected, rel=1e-6)
    weighted = x, y, sample_weight
    padded = ks.Batches(weighted, 4, seed=1, whole_epochs=True)
    assert len(padded.batch(len(padded) - 1)[0]["token_ids"]) == 4  # It is filled up.
    metrics.clear()
    for batch_size in [size, 4, 1]:
        assert evaluate(x, y, batch_size, sample_weight=sample_weight) == expected
    assert evaluate(in_batches(weighted, 4)) == expected
    assert evaluate(padded.dataset(), steps=len(padded)) == expected
    for found in metrics[1:]:
        assert found == pytest.approx(metrics[0], rel=1e-5)
    dataset = tf.data.Dataset.from_tensor_slices(weighted).batch(4)
    history = model.fit(dataset, validation_data=padded, verbose=0).history
    found = {of: values[0] for of, values in history.items()}
    assert loss_of({of: v for of, v in found.items() if not of.startswith("val_")}) == expected
    assert loss_of({of[4:]: v for of, v in found.items() if of.startswith("val_")}) == expected


def with_biases(model, biases):
    """Makes the logits of a classifier these numbers, and compiles one update for 3 batches."""
    model.classifier.set_weights([np.zeros_like(model.classifier.get_weights()[0]), biases])
    model.compile(keras.optimizers.SGD(1.0, gradient_accumulation_steps=3))
    return model


TEXTS, LABELS = ["w1 w2", "w3", "w4 w5 w6"], np.array([0, 1, 0])
CLASS_WEIGHT = {"bad": 3.0, 1: 0.5}


def test_weights_by_hand():
    model = with_biases(tiny_tasks.TASKS["texts"].build(), np.log([1.0, 3.0]))
    losses = np.log([4.0, 4 / 3, 4.0])  # The probabilities of the classes are 1/4 and 3/4.
    for weights in [[0.0, 2.0, 1.0], [0.0, 0.0, 0.0]]:
        for batch_size in [3, 1]:
            found = model.evaluate(
                TEXTS, LABELS, batch_size, sample_weight=weights, verbose=0, return_dict=True
            )
            assert found["loss"] == pytest.approx(np.dot(weights, losses) / 3, rel=1e-6)
    # Rows one by one have the same effect as all rows in a batch.
    with_biases(model, np.zeros(2))
    initial, (x, *_) = model.get_weights(), model.preprocess(TEXTS)
    dataset = tf.data.Dataset.from_tensor_slices((x, LABELS)).batch(1)
    for data in [(TEXTS, LABELS), (x, LABELS), (dataset,), (in_batches((x, LABELS, None), 1),)]:
        model.set_weights(initial)
        size = 1 if len(data) == 2 else None
        history = model.fit(*data, batch_size=size, class_weight=CLASS_WEIGHT, verbose=0).history
        assert history["loss"][0] == pytest.approx(np.log(2) * 6.5 / 3, rel=1e-6)
        # Each row moves the biases by weight / 2 towards its label.
        bias = (3.0 + 3.0 - 0.5) / 2 / 3
        np.testing.assert_allclose(model.classifier.get_weights()[1], [bias, -bias], rtol=1e-5)


once = pytest.mark.once("torch")
WORDS, TAGS = [["ann"], ["bob", "eve"], ["oslo", "rome", "old"]], [[0], [1, 1], [2, 2, 2]]
# Each of the 6 tokens moves its label by 1, and all labels by -1/5, times 1/6.
BIASES = np.array([1, 2, 3, 0, 0]) / 6 - 1 / 5


def arrays_of_words():
    """Returns a model, and three texts with 1, 2 and 3 tokens. The labels of a text are equal."""
    model = with_biases(tiny_tagger.build(), np.zeros(5))
    return model, model.preprocess(WORDS, TAGS)


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_each_token_has_the_same_weight(kind):
    model, arrays = arrays_of_words()
    data = {**dict(zip(["x", "y", "sample_weight"], arrays)), "batch_size": 1}
    if kind == "dataset":
        data = {"x": tf.data.Dataset.from_tensor_slices(arrays).batch(1)}
    history = model.fit(**data, verbose=0).history
    assert history["loss"][0] == pytest.approx(np.log(5), rel=1e-6)
    # Of a stream the first batch is known, which has 1 token per row instead of 2.
    expected = BIASES if kind == "arrays" else BIASES * 2
    np.testing.assert_allclose(model.classifier.get_weights()[1], expected, atol=1e-6)


@once
def test_each_fit_counts_its_own_tokens():
    """A stream after arrays uses the tokens of its first batch, and arrays after it theirs."""
    model, arrays = arrays_of_words()
    initial = model.get_weights()
    batches = ks.Batches(arrays, 1, seed=1, by_length=True)

    def stream(order):
        return iter([take(arrays, slice(row, row + 1)) for row in order])

    for data, factor in [
        (batches, 1), (in_batches(arrays, 1), 2), ((WORDS, TAGS), 1), (stream([1, 0, 2]), 1),
        (stream([2, 0, 1]), 2 / 3), ((WORDS, TAGS), 1), (stream([0, 1, 2]), 2),
    ]:  # fmt: skip
        model.set_weights(initial)
        x, y, size = (*data, 1) if isinstance(data, tuple) else (data, None, None)
        history = model.fit(x, y, size, steps_per_epoch=3, shuffle=False, verbose=0).history
        assert history["loss"][0] == pytest.approx(np.log(5), rel=1e-6)
        np.testing.assert_allclose(model.classifier.get_weights()[1], BIASES * factor, atol=1e-6)


@pytest.mark.once("torch")
def test_terms_of_the_user_are_in_the_loss():
    class Own(ks.SpanBertTextClassifier):
        def compute_loss(self, *args, **kwargs):
            return super().compute_loss(*args, **kwargs) + 7.0

    class OwnStep(ks.SpanBertTextClassifier):
        def test_step(self, data):
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(3.0)
            return self.get_metrics_result()

    built = tiny_tasks.TASKS["texts"].build()
    arguments = {"preprocessor": built.preprocessor, "class_names": ["bad", "good"], "dropout": 0.0}
    own = Own(built.backbone, **arguments)
    own.classifier.set_weights([w * 0 for w in own.classifier.get_weights()])
    for batch_size in [3, 2]:
        found = own.evaluate(TEXTS, LABELS, batch_size, verbose=0, return_dict=True)
        assert found["loss"] == pytest.approx(np.log(2) + 7.0, rel=1e-6)
    own = OwnStep(built.backbone, **arguments)
    assert own.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["loss"] == 3.0
    # A loss of Keras too.
    built.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = [built.evaluate(TEXTS, LABELS, n, verbose=0, return_dict=True) for n in [3, 2, 1]]
    for found in losses[1:]:
        assert found == pytest.approx(losses[0], rel=1e-6)


@pytest.mark.once("jax")
@pytest.mark.parametrize("name", ["texts", "words", "pretraining"])
def test_own_step_on_jax(name):
    import jax

    model, (x, y, weights) = build(name)
    expected = model.evaluate(x, y, len(y), sample_weight=weights, verbose=0)[0]

    def compute_loss(trained, fixed):
        y_pred, fixed = model.stateless_call(trained, fixed, x, training=False)
        return model.compute_loss(x, y, y_pred, weights), fixed

    def step(trained, fixed):  # As in Keras's guide "Customizing what happens in `fit()` with JAX".
        (loss, _), gradients = jax.value_and_grad(compute_loss, has_aux=True)(trained, fixed)
        (metric,) = (metric for metric in model.metrics if metric.name == "loss")
        kept = [variable.value for variable in metric.variables]
        return metric.stateless_result(metric.stateless_update_state(kept, loss)), gradients

    values = [
        [v.value for v in each]
        for each in (model.trainable_variables, model.non_trainable_variables)
    ]
    model.reset_metrics()
    for _ in range(2):  # A value of the first call, which ended, would fail in the second.
        loss, _ = jax.jit(step)(*values)
        assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.once("torch")
def test_stream_of_words_without_a_loss():
    class Own(ks.SpanBertTokenClassifier):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return keras.ops.mean(y_pred**2)

    model, (x, y, weights) = build("words")
    other = Own(model.backbone, ["O", "B"], compile=False)
    other.compile(keras.optimizers.SGD(0.0), loss=None)
    history = other.fit(iter([(x, y, weights)]), steps_per_epoch=1, verbose=0).history
    assert history["loss"][0] > 0


@pytest.mark.once("torch")
def test_class_weights_of_streams_are_refused_by_name():
    model = tiny_tasks.TASKS["texts"].build()
    with pytest.raises(ValueError, match="weight for each row.*Received: class_weight={'bad': 2"):
        model.fit(iter([(TEXTS, LABELS)]), class_weight={"bad": 2.0})
    with pytest.raises(ValueError, match="Received: 'dull' at `class_weight`"):
        model.fit(iter([(TEXTS, LABELS)]), class_weight={"dull": 2.0})
