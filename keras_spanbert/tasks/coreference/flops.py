"""Counts the floating-point operations of a resolver's heads."""


def head_flops(resolver) -> float:
    """Returns the FLOPs of matrix products for one segment in the forward pass.

    Counts a segment's share of a document of `max_training_sentences` segments.
    """
    hidden, features = resolver.backbone.hidden_dim, resolver.feature_size
    heads, width = hidden * resolver.model_heads, features * resolver.use_features
    ffnn, depth = resolver.ffnn_size, resolver.ffnn_depth

    def network(rows, size):
        """Returns the products of a network after its first one."""
        inner = max(depth - 1, 0) * ffnn * ffnn
        return rows * (inner + (ffnn if depth else size))

    first = ffnn if depth else 1  # Columns of a network's first product.
    tokens = resolver.max_segment_len
    candidates = tokens * resolver.max_span_width
    kept = tokens * resolver.top_span_ratio
    antecedents = min(kept * resolver.max_top_antecedents, kept * kept)
    embedding = 2 * hidden + width + heads

    # === Mentions: ends by token, width and head by candidate ===
    products = tokens * 2 * hidden * first + candidates * (width + heads) * first
    products += network(candidates, 1)
    if resolver.model_heads:
        products += tokens * hidden + candidates * 2 * resolver.max_span_width * hidden
    # === Coarse scores of all pairs ===
    products += kept * embedding * embedding
    products += kept * kept * resolver.max_training_sentences * embedding
    # === Fine scores ===
    if resolver.fine_grained:
        pair_features = 2 * resolver.use_metadata + resolver.use_features
        pair_features = features * (pair_features + resolver.use_segment_distance)
        once = 2 * kept * embedding * first + antecedents * (embedding + pair_features) * first
        once += network(antecedents, 1)
        refinement = antecedents * embedding + kept * 2 * embedding * embedding
        products += resolver.coref_depth * once + (resolver.coref_depth - 1) * refinement
    return 2.0 * products
