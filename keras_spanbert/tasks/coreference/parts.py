"""Long documents in parts: work and memory that do not depend on their length.

A part is a run of whole segments. Its spans are chosen among its own candidates, and
find their antecedents among each other and the spans of earlier parts that a memory
holds.

S = segments, T = tokens, K = spans that are kept, M = spans in memory, D = size of a
span's embedding.
"""

from collections.abc import Iterable

import numpy as np

from keras_spanbert import distribution
from keras_spanbert.tasks.coreference.batches import Settings, Sizes, document_inputs, pad, sizes_of
from keras_spanbert.tasks.coreference.decoding import Clusters, best_antecedents
from keras_spanbert.tasks.coreference.scoring import NO_SPAN

# A part's segments have at most as many tokens together, unless one alone has more: a longer
# part takes more memory, and a shorter one more time, since the spans in memory are projected
# once for each.
_PART_TOKENS = 1024


class Memory:
    """The spans of a document that later ones may refer to, as inputs of a part's model.

    The newest half stays in any case. Of the older ones those go first that are in
    no cluster, then those with a later mention of their cluster in memory; the
    older first. So a memory holds a mention of who was not named for long.

    Args:
        size: int, M.
        num_levels, embedding_dim: ints, of the embeddings `[levels, M, D]`.
    """

    def __init__(self, size: int, num_levels: int, embedding_dim: int):
        self.size = size
        self.spans = {
            "mention_scores": np.zeros(0, np.float32),
            "index": np.zeros(0, np.int32),
            "speakers": np.zeros(0, np.int32),
            "segments": np.zeros(0, np.int32),
            "embeddings": np.zeros((num_levels, 0, embedding_dim), np.float32),
        }

    def inputs(self, next_index: int) -> dict:
        """The inputs of `memory_inputs`, always of one shape."""
        missing = self.size - len(self.spans["index"])
        padded = {}
        for name, array in self.spans.items():
            axis = _axis(name)
            widths = [(0, missing if i == axis else 0) for i in range(array.ndim)]
            fill = NO_SPAN if name == "index" else 0
            padded[name] = np.pad(array, widths, constant_values=fill)[None]
        return {**padded, "next_index": np.array([next_index], np.int32)}

    def add(self, spans: dict, clusters: Clusters) -> None:
        """Takes the spans of a part, and lets go of others.

        Args:
            spans: dict of arrays, as in `scoring` for one document.
            clusters: `Clusters`, with these spans.
        """
        both = {
            name: np.concatenate([array, spans[name]], axis=_axis(name))
            for name, array in self.spans.items()
        }
        cluster_of = [clusters.number_of.get(int(i), -1) for i in both["index"]]
        kept = _kept(np.array(cluster_of, np.int64), self.size)
        self.spans = {name: np.take(x, kept, axis=_axis(name)) for name, x in both.items()}


def _axis(name):
    """That of the spans."""
    return 1 if name == "embeddings" else 0


def _kept(cluster_of, size):
    """Which spans a memory of a size keeps, of spans in order with clusters, -1 for none."""
    num_older = len(cluster_of) - size // 2
    if len(cluster_of) <= size:
        return np.arange(len(cluster_of))
    last_of = {cluster: place for place, cluster in enumerate(cluster_of)}
    is_last = np.array([last_of[cluster] == place for place, cluster in enumerate(cluster_of)])
    rank = np.where(cluster_of < 0, 0, 1 + is_last)[:num_older]
    older = np.lexsort((np.arange(num_older), rank))[num_older - (size - size // 2) :]
    return np.concatenate([np.sort(older), np.arange(num_older, len(cluster_of))])


def largest(sizes: Iterable[Sizes]) -> Sizes:
    """The sizes that hold all of these."""
    return Sizes(*(max(values) for values in zip(*sizes)))


def part_inputs(tensors: dict, begin: int, end: int, settings: Settings) -> dict:
    """The inputs of a run of segments, which knows what is before and behind it.

    Args:
        tensors: dict of `tensorize`, of the whole document.
        begin, end: ints, segments.
        settings: `Settings`.

    Returns:
        Dict of `document_inputs`. Spans count the part's tokens, segments the
        document's.
    """
    sizes = tensors["text_len"]
    first, num_tokens = sizes[:begin].sum(), sizes[begin:end].sum()
    part = {name: tensors[name][begin:end] for name in ["input_ids", "input_mask", "speaker_ids"]}
    part["sentence_map"] = tensors["sentence_map"][first : first + num_tokens]
    part["genre"] = tensors["genre"]
    part.update({name: np.zeros(0, np.int32) for name in ["gold_starts", "gold_ends"]})
    part["cluster_ids"] = np.zeros(0, np.int32)
    if "overlap_ids" in tensors:
        for name in ["overlap_ids", "overlap_mask"]:
            part[name] = tensors[name][begin : end + 1]
    inputs, _ = document_inputs(part, settings)
    inputs["segment_index"] = inputs["segment_index"] + begin
    if "overlap_ids" in tensors:
        # The first window begins with the rest of the segment before.
        half = tensors["input_ids"].shape[1] // 2
        rest = max(sizes[begin - 1] - half, 0) if begin else 0
        inputs["overlap_places"] = inputs["overlap_places"][rest : rest + num_tokens]
    return inputs


def score_parts(model, tensors: dict, settings: Settings, max_spans: int) -> dict:
    """Scores a document in parts.

    Args:
        model: `SpanBertCoreferenceResolver`.
        tensors: dict of `tensorize`.
        settings: `Settings`.
        max_spans: int, M.

    Returns:
        Dict of arrays `[K]` for the spans that are kept: `starts` and `ends`,
        tokens of the document, `mention_scores`, and `best_antecedents`, -1 for none.
    """
    layers, part_model = model.resolver_layers, _part_model(model)
    num_segments = max(_PART_TOKENS // tensors["input_ids"].shape[1], 1)
    begins = range(0, len(tensors["input_ids"]), num_segments)
    first_tokens = np.cumsum([0, *tensors["text_len"]])

    def inputs_at(begin):
        return part_inputs(tensors, begin, begin + num_segments, settings)

    # One shape for all parts.
    sizes = largest(sizes_of(inputs_at(begin), settings) for begin in begins)
    memory = Memory(max_spans, layers.num_levels, layers.embedding_dim)
    clusters, num_spans = Clusters(), 0
    found = []
    for begin in begins:
        inputs = inputs_at(begin)
        padded, _ = pad(inputs, np.zeros(0, np.int32), sizes, settings)
        remembered = memory.inputs(num_spans)
        batch = distribution.padded_to_shards({**padded, "memory": remembered}, 1)
        outputs = part_model.predict_on_batch(batch)
        outputs = {name: np.asarray(array)[0] for name, array in outputs.items()}
        num_new = len(inputs["top_span_mask"])
        top = outputs["top_spans"][:num_new]
        index = num_spans + np.arange(num_new, dtype=np.int32)
        places = best_antecedents(
            outputs["top_antecedent_scores"][:num_new], outputs["top_antecedents"][:num_new]
        )
        of_places = np.concatenate([remembered["index"][0], index])
        part = {
            "starts": inputs["starts"][top] + first_tokens[begin],
            "ends": inputs["ends"][top] + first_tokens[begin],
            "mention_scores": outputs["candidate_mention_scores"][top],
            "best_antecedents": np.where(places < 0, -1, of_places[places]),
        }
        for span, antecedent in zip(index.tolist(), part["best_antecedents"].tolist()):
            if antecedent >= 0:
                clusters.link(span, antecedent)
        spans = {
            "mention_scores": part["mention_scores"],
            "index": index,
            "speakers": outputs["span_speakers"][:num_new],
            "segments": outputs["span_segments"][:num_new],
            "embeddings": outputs["span_embeddings"][:, :num_new].astype(np.float32),
        }
        memory.add(spans, clusters)
        num_spans += num_new
        found.append(part)
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def _part_model(model):
    """The model of a part, which shares the resolver's weights: made once and kept."""
    found = model.__dict__.get("_part_model")
    if found is None:
        found = model.resolver_layers.part_model()
        found.jit_compile = model.jit_compile
        # Past Keras and PyTorch, for which its layers would be the model's twice.
        object.__setattr__(model, "_part_model", found)
    return found


def forget_part_model(model) -> None:
    """Has the model of a part made anew where it is next used."""
    object.__setattr__(model, "_part_model", None)
