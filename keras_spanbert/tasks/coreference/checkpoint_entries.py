"""Maps the tensors of a released coreference checkpoint to the weights of a resolver."""

from collections.abc import Iterator

from keras_spanbert.models.checkpoint_entries import Entry
from keras_spanbert.tasks.coreference.scoring import NUM_DISTANCES, feature_rows

# Released tables of the features of a pair.
_FEATURES = {
    "same_speaker": "coref_layer.same_speaker_emb",
    "genre": "genre_embeddings.weight",
    "distance": "coref_layer.antecedent_distance_emb",
    "segment_distance": "coref_layer.segment_distance.segment_distance_embeddings.weight",
}


def head_entries(settings: dict) -> Iterator[Entry]:
    """Yields the tensors outside the encoder, for settings of the encoder and the resolver."""
    H, F, W = settings["hidden_size"], settings["feature_size"], settings["max_span_width"]
    uses = {name: bool(settings[f"use_{name}"]) for name in ("features", "metadata", "prior")}
    heads = bool(settings["model_heads"])
    D = 2 * H + F * uses["features"] + H * heads  # Size of a span's embedding.

    def feed_forward(name, path, pieces):
        pieces = [size for size in pieces if size]
        size, depth = settings["ffnn_size"], settings["ffnn_depth"]
        for i in range(depth + 1):
            is_last = i == depth
            rows, columns = size if i else sum(pieces), 1 if is_last else size
            layers = [f"hidden_{i}"] if i else [f"input_{j}" for j in range(len(pieces))]
            kernels = tuple(f"{path}/{layer}/kernel" for layer in layers)
            weights, bias = f"hidden_weights_{i}", f"hidden_bias_{i}"
            if is_last:
                weights, bias = "output_weights", "bias"
            yield Entry(f"{name}.{weights}", kernels, (rows, columns))
            yield Entry(f"{name}.{bias}", f"{path}/{layers[0]}/bias", (columns,))

    def dense(name, path, rows, columns):
        yield Entry(f"{name}.output_weights", f"{path}/kernel", (rows, columns))
        yield Entry(f"{name}.bias", f"{path}/bias", (columns,))

    if settings["model_type"] == "overlap":
        yield from dense("combo", "token_gate/gate", 2 * H, H)
    if uses["features"]:
        yield Entry("span_width_embeddings.weight", "span_widths/embeddings", (W, F))
    if heads:
        yield from dense("mention_word_attn", "span_heads/attention", H, 1)
    yield from feed_forward("mention_scores", "mention_scores/mention", [H, H, D - 2 * H])
    if uses["prior"]:
        path = "mention_scores/width_embeddings"
        yield Entry("span_width_prior_embeddings.weight", path, (W, F))
        yield from feed_forward("width_scores", "mention_scores/width", [F])
    yield from dense("src_projection", "coarse_scores/source", D, D)
    if uses["prior"]:
        path = "coarse_scores/distance_embeddings"
        yield Entry("antecedent_distance_emb", path, (NUM_DISTANCES, F))
        yield Entry("output_weights", "coarse_scores/distance/kernel", (F, 1))
        yield Entry("output_bias", "coarse_scores/distance/bias", (1,))
    if not settings["fine_grained"]:
        return
    features = feature_rows(settings)
    for feature, rows in features.items():
        yield Entry(_FEATURES[feature], f"fine_scores/{feature}_embeddings", (rows, F))
    name = "coref_layer.slow_antecedent_scores"
    yield from feed_forward(name, "fine_scores/pair", [D, D, D + len(features) * F])
    if settings["coref_depth"] > 1:
        yield from dense("coref_layer.f", "fine_scores/refinement/gate", 2 * D, D)


def infer_arguments(tensors: dict) -> dict:
    """Infers the resolver's arguments from the tensors of a checkpoint.

    Args:
        tensors: dict of name to `formats.tensors.Tensor`.
    """

    def shape(name):
        return tensors[name].shape if name in tensors else None

    hidden = [name for name in tensors if name.startswith("mention_scores.hidden_weights_")]
    arguments = {
        "use_features": "span_width_embeddings.weight" in tensors,
        "use_metadata": _FEATURES["same_speaker"] in tensors,
        "use_prior": "span_width_prior_embeddings.weight" in tensors,
        "model_heads": "mention_word_attn.output_weights" in tensors,
        "fine_grained": "coref_layer.slow_antecedent_scores.output_weights" in tensors,
        "ffnn_depth": len(hidden),
    }
    if hidden:
        arguments["ffnn_size"] = shape(hidden[0])[-1]
    widths = shape("span_width_embeddings.weight") or shape("span_width_prior_embeddings.weight")
    if widths:
        arguments["max_span_width"], arguments["feature_size"] = widths
    distances = shape(_FEATURES["segment_distance"])
    arguments["use_segment_distance"] = bool(distances)
    if distances:
        arguments["max_training_sentences"], arguments["feature_size"] = distances
    return arguments
