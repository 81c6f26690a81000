import keras
import pytest
import tensorflow as tf

import keras_spanbert as ks

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="SavedModels need TensorFlow"
    ),
]

TEXTS = [
    "Ann wrote the letter. She was old. Bob sold it to Ann; he was old, she wrote to them.\n\n"
    "Bob and Ann read the letter to them. He wrote it! She read it, and it was the old letter.",
    "",
    "  \n ",
    "Ann",
    "É Ann’s old 😀 letter. “She read it,” Ann wrote. \x00\u200b She sold it to Bob",
    "“ann wrote it。”she was old！bob sold it۔ ann read it； he was old। она it; she it։ he",
    "letterletterletterletterletterletterletterletterletterletterletterletter she " * 3,
]


@pytest.mark.parametrize("model_type, singletons", [("independent", True), ("overlap", False)])
def test_saved_model_equals_resolve(build, model_type, singletons, tmp_path):
    keras.utils.set_random_seed(3)
    model = build(model_type, singletons=singletons, top_span_ratio=0.7)
    ks.serving.export_saved_model(model, tmp_path / "1")
    serve = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = {name: array.numpy() for name, array in serve(text=tf.constant(TEXTS)).items()}
    resolved = model.resolve(TEXTS)
    assert sum(len(result["clusters"]) for result in resolved) > 3
    for i, result in enumerate(resolved):
        served = [*zip(*(found[n][i].tolist() for n in ["start", "end", "cluster", "mention"]))]
        expected = sorted(
            (m["start"], m["end"], number, m["text"].encode())
            for number, cluster in enumerate(result["clusters"])
            for m in cluster
        )
        assert served == expected + [(-1, -1, -1, b"")] * (len(served) - len(expected))


def test_text_with_too_many_spans_is_refused(build):
    serve, _ = build(top_span_ratio=1.0).serving_function()
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 3900 tokens"):
        serve(tf.constant(["ann wrote . " * 1400]))
