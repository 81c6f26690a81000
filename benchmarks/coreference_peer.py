"""The released coreference graph in plain PyTorch: the peer of benchmarks/coreference.py.

It follows the description in the paper and is not optimised: `transformers.BertModel`, one
embedding per candidate span with a softmax over all tokens of the document, a Python loop over the
candidates, all pairs of kept spans, and a concatenated embedding for each pair.

T = tokens of a document, N = candidate spans, K = kept spans, A = antecedents per span.
"""

import numpy as np
import torch
import transformers
from torch.nn import functional

MAX_TOP_SPANS = 3900
ENCODER = ("embeddings.", "encoder.")


class Resolver(torch.nn.Module):
    """The released independent model with its published settings.

    Args:
        tensors: dict of name to array, the checkpoint with the released names.
        bert: dict, the arguments of `transformers.BertConfig`.
        settings: dict, the arguments of the resolver.
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
        """Computes the scores of the spans and pairs of a document.

        Args:
            document: dict of arrays, from `tensors` of the preprocessor.
        """
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
    """Training with one document per step, AdamW, and the released learning rates and dropout.

    Args:
        model: `Resolver`.
    """

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
