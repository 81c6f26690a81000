"""Columns and tables of Hugging Face `datasets` are accepted like lists and dicts."""

import datasets
import keras
import numpy as np
import pytest
import tiny_pretrainer
import tiny_tasks
from comparisons import assert_close
from task_rows import QUIET, evaluate

import keras_spanbert as ks

FORMATS = [None, "numpy", "tensorflow"]


def column(values, format=None):
    return datasets.Dataset.from_dict({"x": values}).with_format(format)["x"]


def columns(x, format=None):
    if isinstance(x, dict):
        return {name: column(values, format) for name, values in x.items()}
    return column(x, format)


@pytest.fixture(scope="module")
def task(request):
    return tiny_tasks.TASKS[request.param]


every_task = pytest.mark.parametrize("task", tiny_tasks.TASKS, indirect=True)


@every_task
@pytest.mark.parametrize("format", FORMATS)
def test_columns_are_accepted_like_lists(task, model, format):
    x, y = task.forms["lists"]
    given = columns(x, format), columns(y, format)
    assert_close(model.predict(given[0], **QUIET), model.predict(x, **QUIET), atol=1e-5)
    loss = evaluate(model, x, y)
    weights = column([1.0] * 10, format)
    history = model.fit(*given, sample_weight=weights, validation_data=given, **QUIET).history
    assert "val_loss" in model.fit(*given, validation_split=0.4, **QUIET).history
    losses = [evaluate(model, *given), history["loss"][0], history["val_loss"][0]]
    np.testing.assert_allclose(losses, loss, rtol=1e-5)
    assert_close(model.preprocessor(*given), model.preprocessor(x, y), atol=1e-5)
    ask = getattr(model, task.ask)
    assert ask(*(column(values, format) for values in task.columns)) == ask(*task.columns)


@every_task
def test_tables_are_accepted_like_lists_of_examples(task, model):
    x, y = task.forms["examples" if "examples" in task.forms else "lists"]
    rows = x
    if isinstance(x, dict):  # Questions, whose reader returns no list of examples.
        rows = [{**dict(zip(x, values)), "answers": a} for *values, a in zip(*x.values(), y)]
    table = datasets.Dataset.from_list(rows)
    loss = evaluate(model, x, y)
    history = model.fit(table, validation_data=table, **QUIET).history
    losses = [evaluate(model, table), history["loss"][0], history["val_loss"][0]]
    np.testing.assert_allclose(losses, loss, rtol=1e-5)
    assert_close(model.predict(table, **QUIET), model.predict(x, **QUIET), atol=1e-5)
    assert_close(model.preprocessor(table), model.preprocessor(x, y), atol=1e-5)
    if task.evaluate != "evaluate_squad":
        assert getattr(model, task.evaluate)(table) == getattr(model, task.evaluate)(rows)
        if task.evaluate != "evaluate_choices":
            answers = getattr(model, task.ask)
            assert len(answers(table)) == 10


def test_streams_are_refused():
    table = datasets.Dataset.from_dict({"text": ["w1", "w2"], "label": [0, 1]})
    stream = table.to_iterable_dataset()
    model = tiny_tasks.TASKS["texts"].build()
    for x in [stream, stream["text"], {"text": stream["text"]}]:
        with pytest.raises(ValueError, match="must have a length.*Received: a stream of type Iter"):
            model.fit(x, verbose=0)
        with pytest.raises(ValueError, match="must have a length"):
            model.classify(x)
    rows = ((batch["text"], batch["label"]) for batch in stream.batch(2))
    model.fit((model.preprocessor(*row) for row in rows), steps_per_epoch=1, verbose=0)


def test_answers_of_squad_on_hugging_face():
    model = tiny_tasks.TASKS["questions"].build()
    x, y = tiny_tasks.TASKS["questions"].forms["lists"]
    lists = [
        {"text": [], "answer_start": []} if a is None else {n: [v, v] for n, v in a.items()}
        for a in y
    ]
    table = datasets.Dataset.from_dict({**x, "answers": lists})
    expected = model.preprocessor(x, y)
    for format in FORMATS:
        assert_close(model.preprocessor(table.with_format(format)), expected, atol=1e-5)
    given = model.preprocessor.windows(table["question"], table["context"], table["answers"])
    np.testing.assert_array_equal(given["start"], expected[1]["start"])


def test_pretraining_and_layers():
    texts = tiny_pretrainer.texts(6)
    model = tiny_pretrainer.build()
    model.compile(keras.optimizers.SGD(0.0))
    expected = evaluate(model, texts)
    assert evaluate(model, column(texts)) == pytest.approx(expected, rel=1e-5)
    model.fit(column(texts), validation_data=column(texts), **QUIET)
    blanks = ["the [MASK] of"]
    assert model.fill(column(blanks)) == model.fill(blanks)
    found = model.score(column(blanks), column([["and"]]))
    assert found == model.score(blanks, [["and"]])
    tokenizer = model.preprocessor.tokenizer
    assert_close(tokenizer(column(texts)), tokenizer(texts))
    ids = [[5, 6, 7, 8, 9]] * 2
    layer = ks.SpanMasking(13, 4, seed=1)
    for format in FORMATS:
        assert_close(layer(column(ids, format), seed=3), layer(ids, seed=3), atol=1e-5)


def test_metrics():
    gold, found = [[[(0, 0), (2, 2)]]], [[[(0, 0), (2, 2)], [(1, 1), (3, 3)]]]
    tags = [["B-a", "O"], ["O", "B-b"]]
    qas = [{"id": "1", "answers": [{"text": "a"}]}]
    articles = [{"paragraphs": [{"qas": qas}]}]
    for metric, given in [
        (ks.metrics.coreference, (gold, found)),
        (ks.metrics.entities, (tags, tags)),
        (lambda *args: ks.metrics.glue("sst-2", *args), ([0, 1, 1], [0, 1, 0])),
        (lambda *args: ks.metrics.glue("rte", *args), (["entailment"], ["not_entailment"])),
        (lambda *args: ks.metrics.relation(*args, no_relation=0), ([0, 1, 1], [0, 1, 0])),
        (ks.metrics.semeval2010_task8, (["Cause-Effect(e1,e2)"], ["Other"])),
    ]:
        expected = metric(*given)
        for format in FORMATS:
            assert metric(*(column(values, format) for values in given)) == expected
    table = datasets.Dataset.from_list(articles)
    assert ks.metrics.squad(table, {"1": "a"})["exact"] == 100.0
