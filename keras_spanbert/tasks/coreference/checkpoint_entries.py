"""Maps the tensors of a released coreference checkpoint to the weights of a resolver."""

from collections.abc import Iterator

from keras_spanbert.models.checkpoint_entries import Entry
from keras_spanbert.tasks.coreference.preprocessor import SETTINGS
from keras_spanbert.tasks.coreference.scoring import NUM_DISTANCES


def head_entries(settings: dict) -> Iterator[Entry]:
    """Yields the tensors outside the encoder, for settings of the encoder and the resolver."""
    settings = {**settings, **settings[SETTINGS]}
    H, F, W = settings["hidden_size"], settings["feature_size"], settings["max_span_width"]
    uses = {name: bool(settings[f"use_{name}"]) for name in ("features", "metadata", "prior")}
    heads, segments = bool(settings["model_heads"]), bool(settings["use_segment_distance"])
    D = 2 * H + F * uses["features"] + H * heads  # Size of a span's embedding.
    is_fine, is_refined = settings["fine_grained"], settings["coref_depth"] > 1

    def feed_forward(name, path, pieces):
        pieces = [size for size in pieces if size]
        size, depth = settings["ffnn_size"], settings["ffnn_depth"]
        for i in range(depth + 1):
            is_last = i == depth
            rows, columns = size if i else sum(pieces), 1 if is_last else size
            layers = [f"hidden_{i}"] if i else [f"input_{j}" for j in range(len(pieces))]
            kernels = tuple(f"{path}/{layer}/kernel" for layer in layers)
            weights, bias = (
                ("output_weights", "bias")
                if is_last
                else (f"hidden_weights_{i}", f"hidden_bias_{i}")
            )
            yield Entry(f"{name}.{weights}", kernels, (rows, columns))
            yield Entry(f"{name}.{bias}", f"{path}/{layers[0]}/bias", (columns,))

    def dense(name, path, rows, columns):
        yield Entry(f"{name}.output_weights", f"{path}/kernel", (rows, columns))
        yield Entry(f"{name}.bias", f"{path}/bias", (columns,))

    def table(name, path, rows):
        yield Entry(name, path, (rows, F))

    if settings["model_type"] == "overlap":
        yield from dense("combo", "token_gate/gate", 2 * H, H)
    if uses["features"]:
        yield from table("span_width_embeddings.weight", "span_widths/embeddings", W)
    if heads:
        yield from dense("mention_word_attn", "span_heads/attention", H, 1)
    yield from feed_forward("mention_scores", "mention_scores/mention", [H, H, D - 2 * H])
    if uses["prior"]:
        path = "mention_scores/width_embeddings"
        yield from table("span_width_prior_embeddings.weight", path, W)
        yield from feed_forward("width_scores", "mention_scores/width", [F])
    yield from dense("src_projection", "coarse_scores/source", D, D)
    if uses["prior"]:
        path = "coarse_scores/distance_embeddings"
        yield from table("antecedent_distance_emb", path, NUM_DISTANCES)
        yield Entry("output_weights", "coarse_scores/distance/kernel", (F, 1))
        yield Entry("output_bias", "coarse_scores/distance/bias", (1,))
    if not is_fine:
        return
    if uses["metadata"]:
        yield from table("coref_layer.same_speaker_emb", "fine_scores/same_speaker_embeddings", 2)
        path = "fine_scores/genre_embeddings"
        yield from table("genre_embeddings.weight", path, len(settings["genres"]))
    if uses["features"]:
        path = "fine_scores/distance_embeddings"
        yield from table("coref_layer.antecedent_distance_emb", path, NUM_DISTANCES)
    if segments:
        name = "coref_layer.segment_distance.segment_distance_embeddings.weight"
        path = "fine_scores/segment_distance_embeddings"
        yield from table(name, path, settings["max_training_sentences"])
    num_features = 2 * uses["metadata"] + uses["features"] + segments
    name = "coref_layer.slow_antecedent_scores"
    yield from feed_forward(name, "fine_scores/pair", [D, D, D + num_features * F])
    if is_refined:
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
        "use_metadata": "coref_layer.same_speaker_emb" in tensors,
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
    distances = shape("coref_layer.segment_distance.segment_distance_embeddings.weight")
    arguments["use_segment_distance"] = bool(distances)
    if distances:
        arguments["max_training_sentences"], arguments["feature_size"] = distances
    return arguments
