"""The tensors of a released coreference checkpoint, and the weights they become."""

from collections.abc import Iterator

from keras_spanbert.models.checkpoint_entries import Entry
from keras_spanbert.tasks.coreference.preprocessor import SETTINGS
from keras_spanbert.tasks.coreference.scoring import NUM_DISTANCES


def head_entries(settings: dict) -> Iterator[Entry]:
    """Everything but the encoder, for the resolver's arguments and the encoder's settings."""
    settings = {**settings, **settings[SETTINGS]}
    H, F, W = settings["hidden_size"], settings["feature_size"], settings["max_span_width"]
    uses = {name: bool(settings[f"use_{name}"]) for name in ("features", "metadata", "prior")}
    heads, segments = bool(settings["model_heads"]), bool(settings["use_segment_distance"])
    D = 2 * H + F * uses["features"] + H * heads  # Size of a span's embedding.
    is_fine, is_refined = settings["fine_grained"], settings["coref_depth"] > 1

    def feed_forward(name, path, inputs):
        sizes = [inputs, *[settings["ffnn_size"]] * settings["ffnn_depth"]]
        for i, (rows, columns) in enumerate(zip(sizes[:-1], sizes[1:])):
            yield Entry(f"{name}.hidden_weights_{i}", f"{path}/hidden_weights_{i}", (rows, columns))
            yield Entry(f"{name}.hidden_bias_{i}", f"{path}/hidden_bias_{i}", (columns,))
        yield from linear(f"{name}.", path, sizes[-1], 1)

    def linear(name, path, rows, columns, prefix="output_"):
        # What reads the files takes `.output_bias` for a head's `bias`.
        bias = f"{name}bias" if name else "output_bias"
        yield Entry(f"{name}output_weights", f"{path}/{prefix}weights", (rows, columns))
        yield Entry(bias, f"{path}/{prefix}bias", (columns,))

    def table(name, path, rows):
        yield Entry(name, path, (rows, F))

    if settings["model_type"] == "overlap":
        yield from linear("combo.", "token_gate", 2 * H, H)
    if uses["features"]:
        yield from table("span_width_embeddings.weight", "span_widths/embeddings", W)
    if heads:
        yield from linear("mention_word_attn.", "span_heads", H, 1)
    yield from feed_forward("mention_scores", "mention_scores/mention", D)
    if uses["prior"]:
        path = "mention_scores/width_embeddings"
        yield from table("span_width_prior_embeddings.weight", path, W)
        yield from feed_forward("width_scores", "mention_scores/width", F)
    yield from linear("src_projection.", "coarse_scores", D, D, "source_")
    if uses["prior"]:
        path = "coarse_scores/distance_embeddings"
        yield from table("antecedent_distance_emb", path, NUM_DISTANCES)
        yield from linear("", "coarse_scores", F, 1, "distance_")
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
    yield from feed_forward(name, "fine_scores/pair", 3 * D + num_features * F)
    if is_refined:
        yield from linear("coref_layer.f.", "fine_scores/refinement", 2 * D, D)


def arguments_of(tensors: dict) -> dict:
    """The resolver's arguments that the tensors of a checkpoint show.

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
