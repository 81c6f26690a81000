"""`fit`, `evaluate` and `predict` of every task with all input types of `keras.Model.fit`."""

import grain
import keras
import numpy as np
import own_task
import pytest
import tensorflow as tf
import tiny_tasks
import torch
from batch_streams import KINDS, stream
from comparisons import assert_close
from task_rows import QUIET, Task, evaluate
from torch.utils.data import DataLoader

PARTS = [slice(i, i + 4) for i in range(0, 10, 4)]
ROWS = own_task.examples(10)
SIMILARITY = [row["similarity"] for row in ROWS]
COLUMNS = {name: [row[name] for row in ROWS] for name in ["left", "right"]}
FORMS = {
    "columns": (COLUMNS, np.array(SIMILARITY)),
    "examples": (ROWS, None),
    "examples and labels": (ROWS, SIMILARITY),
}
OWN = Task(own_task.build, "predict", [], "evaluate", FORMS)
TASKS = {**tiny_tasks.TASKS, "user-defined": OWN}


def rows(columns, part):
    if isinstance(columns, dict):
        return {name: column[part] for name, column in columns.items()}
    return columns[part]


@pytest.fixture(scope="module")
def task(request):
    return TASKS[request.param]


@pytest.fixture(scope="module")
def expected(task, model):
    """Returns the loss and the outputs of all rows."""
    x, y = task.forms["columns"]
    return evaluate(model, x, y), model.predict(x, **QUIET)


once = pytest.mark.once("torch")
# Containers are converted to arrays in the same way on every backend.
every_form = [
    pytest.param(name, form, marks=[] if form == "columns" else once)
    for name, task in TASKS.items()
    for form in task.forms
]


@pytest.mark.parametrize("task, form", every_form, indirect=["task"])
def test_rows_in_any_container(task, model, expected, form):
    x, y = task.forms[form]
    assert_close(model.predict(x, **QUIET), expected[1], atol=1e-5)
    history = model.fit(x, y, validation_data=(x, y), **QUIET).history
    losses = [evaluate(model, x, y), history["loss"][0], history["val_loss"][0]]
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)


@pytest.mark.parametrize("task", TASKS, indirect=True)
def test_arrays_of_the_preprocessor(task, model, expected):
    arrays = model.preprocessor(*task.forms["columns"])
    assert evaluate(model, arrays) == pytest.approx(expected[0], rel=1e-5)
    assert_close(model.predict(arrays[0], **QUIET), expected[1], atol=1e-5)


def dtypes(arrays):
    return {np.asarray(array).dtype.name for array in keras.tree.flatten(arrays)}


@once
@pytest.mark.parametrize("task", tiny_tasks.TASKS, indirect=True)
def test_arrays_have_32_bits(task, model):
    columns = task.forms["columns"]
    mapped = tf.data.Dataset.from_tensor_slices(columns).batch(10).map(model.preprocessor)
    for arrays in [
        model.preprocessor(*columns, np.ones(10)),
        model.preprocessor(*task.forms["lists"]),
        mapped.get_single_element(),
    ]:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(arrays)
        assert dtypes((x, y)) == {"int32"}
        assert weights is None or dtypes(weights) == {"float32"}


every_stream = [(name, kind, "columns") for name in TASKS for kind in KINDS]
every_stream += [("user-defined", "py_dataset", "examples")]


@once
@pytest.mark.parametrize("task, kind, form", every_stream, indirect=["task"])
def test_batches_of_any_type(task, model, expected, kind, form):
    def parts():
        for part in PARTS:
            yield [rows(value, part) for value in task.forms[form] if value is not None]

    def batches():
        return stream(kind, [tuple(given) if given[1:] else given[0] for given in parts()])

    evaluated = evaluate(model, batches(), batch_size=None)
    assert evaluated == pytest.approx(expected[0], rel=2e-6)
    outputs = [model.predict(given[0], **QUIET) for given in parts()]
    outputs = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *outputs)
    assert_close(model.predict(batches(), verbose=0), outputs, atol=1e-5)
    history = model.fit(batches(), verbose=0).history
    assert history["loss"][0] == pytest.approx(evaluated, rel=1e-5)


ADVICE = "DataLoader.rows, collate_fn=model.preprocessor"
ADVICE_FOR_GRAIN = "grain_dataset.map.model.preprocessor"


@once
@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras does not know their sizes.
@pytest.mark.parametrize("task", ["texts", "questions"], indirect=True)
@pytest.mark.parametrize(
    "make, message",
    [
        (iter, ADVICE),
        (lambda batches: DataLoader(batches, batch_size=None), ADVICE),
        (grain.MapDataset.source, ADVICE_FOR_GRAIN),
        (lambda batches: grain.MapDataset.source(batches).to_iter_dataset(), ADVICE_FOR_GRAIN),
    ],
)
def test_other_streams_have_batches_of_arrays(task, model, expected, make, message):
    parts = [tuple(rows(value, part) for value in task.forms["columns"]) for part in PARTS]
    arrays = [model.preprocessor(*part) for part in parts]
    found = evaluate(model, make(arrays), batch_size=None, steps=len(PARTS))
    assert found == pytest.approx(expected[0], rel=1e-5)
    for method in [model.fit, model.evaluate, model.predict]:
        with pytest.raises(ValueError, match=message):
            method(make(parts), verbose=0)


class Rows(torch.utils.data.IterableDataset):
    """Rows that a loader can read only once, as from a socket."""

    def __init__(self, rows):
        self.rows, self.num_starts = iter(rows), 0

    def __iter__(self):
        self.num_starts += 1
        return self.rows


class Batches(keras.callbacks.Callback):
    """Counts batches."""

    def on_test_batch_end(self, batch, logs=None):
        self.num_batches = batch + 1

    on_predict_batch_end = on_train_batch_end = on_test_batch_end


@once
@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras does not know their sizes.
@pytest.mark.parametrize("task", ["texts"], indirect=True)
def test_streams_lose_no_batch(task, model, expected):
    """Keras itself reads a first batch to build the training, which is built by `expected`."""
    arrays = model.preprocessor(*task.forms["columns"])
    model.train_on_batch(*arrays)
    for method in [model.fit, model.evaluate, model.predict]:
        for kind in [DataLoader, iter]:
            rows, count = Rows([arrays] * 3), Batches()
            stream = DataLoader(rows, batch_size=None) if kind is DataLoader else rows.rows
            method(stream, callbacks=[count], verbose=0)
            assert count.num_batches == 3 and rows.num_starts == (kind is DataLoader)
    held_out = iter([arrays] * 6)
    model.fit(*arrays, epochs=3, validation_data=held_out, validation_steps=2, verbose=0)
    assert len(list(held_out)) == 4  # Keras evaluates the first two after each epoch.


@once
@pytest.mark.parametrize("task", ["questions", "user-defined", "texts"], indirect=True)
def test_validation_split_holds_out_the_last_rows(task, model):
    x, y = task.forms["columns"]
    given = x if isinstance(x, dict) else {"text_pair": None, "text": x}
    history = model.fit(given, y, validation_split=0.4, **QUIET).history
    last = evaluate(model, *(rows(column, slice(6, None)) for column in (x, y)))
    assert history["val_loss"][0] == pytest.approx(last, rel=1e-5)


@once
@pytest.mark.parametrize("task", tiny_tasks.TASKS, indirect=True)
def test_loss_and_metrics_are_weighted_by_row(task, model):
    """Each window of a question and each word has the weight of its row."""
    x, y = task.forms["columns"]
    alone, counts = [], []
    for row in range(10):
        given = [rows(column, slice(row, row + 1)) for column in (x, y)]
        arrays = model.preprocess(*given)
        counts.append(len(arrays[0]["token_ids"]) if arrays[2] is None else arrays[2].sum())
        alone.append(model.evaluate(*given, **QUIET, return_dict=True))
    weights = np.array([0, 1, 0, 0, 0, 3, 0, 0, 0, 0])
    found = model.evaluate(x, y, sample_weight=weights, **QUIET, return_dict=True)
    # A loss is divided by the number of all rows, a metric by their weights.
    weighted = {
        name: np.dot([one[name] for one in alone], weights * counts)
        / np.sum(counts if name.endswith("loss") else weights * counts)
        for name in found
    }
    assert len(found) > 1 and found == pytest.approx(weighted, rel=1e-4)


@pytest.mark.once
@pytest.mark.parametrize("task", tiny_tasks.TASKS, indirect=True)
def test_mistakes_in_data_are_named(task, model):
    x, y = task.forms["columns"]
    for given, message in [
        (("text", y), "at least one row of strings.* Received: x='text', of type str"),
        (([], []), r"Received: x=\[\], of type list"),
        ((x, None), "need labels. Received: y=None"),
        ((x, y, np.ones(3)), rf"for each {task.noun}. Received: shape \(3,\) for 10 {task.noun}s"),
        ((x, y, np.full(10, np.nan)), f"must be finite .* Received: nan for {task.noun} 0"),
        ((x, y, np.full(10, -1.0)), f"and at least 0. Received: -1.0 for {task.noun} 0"),
    ]:
        for method in [model.fit, model.evaluate]:
            with pytest.raises(ValueError, match=message):
                method(*given[:2], sample_weight=(*given, None)[2], verbose=0)
    for kind in KINDS:
        with pytest.raises(ValueError, match="need labels. Received: y=None"):
            model.fit(stream(kind, [(x,)]), verbose=0)
    for method in [model.train_on_batch, model.test_on_batch, model.predict_on_batch]:
        with pytest.raises(ValueError, match="`x` must be a dict of the model's arrays"):
            method(x)
