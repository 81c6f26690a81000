import keras
import pytest
import tensorflow as tf

import keras_spanbert as ks
from keras_spanbert.tasks.coreference.splitting import split

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="SavedModels are TensorFlow's"
    ),
]

TEXTS = [
    "Ann wrote the letter. She was old. Bob sold it to Ann; he was old, she wrote to them.\n\n"
    "Bob and Ann read the letter to them. He wrote it! She read it, and it was the old letter.",
    "",
    "  \n ",
    "Ann",
    "É Ann’s old 😀 letter. “She read it,” Ann wrote. \x00\u200b She sold it to Bob",
    "letterletterletterletterletterletterletterletterletterletterletterletter she " * 3,
]


def clusters_in_characters(model, text):
    """By `predict_clusters`, of the words that the text is split into."""
    words, starts, ends, sizes = (x[0] for x in split([text]))
    words = [word.decode() for word in words.numpy()]
    if not words:
        return []
    sentences = []
    for size in sizes.numpy():
        sentences.append(words[:size])
        words = words[size:]
    (clusters,) = model.predict_clusters([{"sentences": sentences}])
    starts, ends = starts.numpy(), ends.numpy()
    return [{(int(starts[a]), int(ends[b])) for a, b in cluster} for cluster in clusters]


@pytest.mark.parametrize("model_type, singletons", [("independent", True), ("overlap", False)])
def test_saved_model_gives_the_clusters_of_the_library(build, model_type, singletons, tmp_path):
    keras.utils.set_random_seed(2)
    model = build(model_type, singletons=singletons, top_span_ratio=0.7)
    ks.serving.export_saved_model(model, tmp_path / "1")
    serve = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = {name: array.numpy() for name, array in serve(text=tf.constant(TEXTS)).items()}
    num_found = 0
    for i, text in enumerate(TEXTS):
        served = {}
        for mention, start, end, cluster in zip(
            *(found[name][i] for name in ["mention", "start", "end", "cluster"])
        ):
            if cluster < 0:
                assert (mention, start, end) == (b"", -1, -1)
                continue
            assert mention.decode() == text[start:end]
            served.setdefault(int(cluster), set()).add((int(start), int(end)))
        assert sorted(served) == list(range(len(served)))
        expected = clusters_in_characters(model, text)
        assert sorted(map(sorted, served.values())) == sorted(map(sorted, expected))
        num_found += len(served)
    assert num_found > 3
