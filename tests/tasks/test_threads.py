"""Threads can ask one model at the same time, as in a server, and get the same answers."""

import concurrent.futures

import keras
import pytest
import tiny_models
import tiny_resolver
from comparisons import assert_close
from tiny_tasks import TASKS, with_large_weights


def check_in_threads(*calls, times=3):
    """Checks that calls from many threads return what they return one after another."""
    expected = [call() for call in calls]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = [pool.submit(call) for _ in range(times) for call in calls]
        found = [future.result() for future in found]
    assert_close(found, expected * times, 1e-5)


# A lock is needed on JAX only.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "texts" else pytest.mark.once("jax")) for n in TASKS]
)
def test_tasks_answer_and_evaluate(name, tmp_path):
    task = TASKS[name]
    model = with_large_weights(task.build())
    x, y = task.forms["columns"]
    examples = task.forms["examples"][0] if "examples" in task.forms else None
    calls = [
        lambda: getattr(model, task.ask)(*task.columns),
        lambda: getattr(model, task.ask)(*(column[1] for column in task.columns)),
        lambda: model.predict(x, batch_size=4, verbose=0),
        lambda: model.save_weights(tmp_path / "model.weights.h5"),
        lambda: model.untrained_heads(),
    ]
    if keras.backend.backend() == "jax":  # Elsewhere, threads would share the metrics.
        calls.append(lambda: model.evaluate(x, y, 4, verbose=0, return_dict=True)["loss"])
    if examples is not None:
        calls.append(lambda: getattr(model, task.evaluate)(examples))
    check_in_threads(*calls)


def test_pretrainer_fills_and_its_encoder_predicts():
    model = with_large_weights(tiny_models.pretrainer())
    inputs = tiny_models.inputs(model.backbone)
    check_in_threads(
        lambda: model.fill("a [MASK] d", top_k=2),
        lambda: model.score("a [MASK] d", ["b"]),
        lambda: model.backbone.predict(inputs, verbose=0),
        lambda: model.backbone.predict_on_batch(inputs),
        lambda: keras.ops.convert_to_numpy(model.backbone(inputs)),
    )


@pytest.mark.long
def test_resolver_scores_whole_texts_and_chunks():
    model = with_large_weights(tiny_resolver.build())
    text = "Ann sold her book. Bob read it. " * 8
    document = {"sentences": [["ann", "left", "."], ["she", "came", "."]]}
    document["clusters"] = [[(0, 0), (3, 3)]]
    check_in_threads(
        lambda: model.resolve(text),
        lambda: model.resolve([text, "She left."], max_spans_in_memory=8),  # In chunks.
        lambda: model.score_document(document),
        lambda: model.evaluate_clusters([document]),
        times=2,
    )
