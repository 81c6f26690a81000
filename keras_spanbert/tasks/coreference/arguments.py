"""The resolver's arguments and their checks."""

MODEL_TYPES = ("independent", "overlap")
# Integer arguments and their minimum values.
_MINIMUMS = {
    "max_segment_len": 4, "max_training_sentences": 1, "max_span_width": 1,
    "max_top_antecedents": 1, "ffnn_size": 1, "ffnn_depth": 0, "feature_size": 1, "coref_depth": 1,
    "max_num_speakers": 2,
}  # fmt: skip
# Arguments that determine which weights exist and what they mean.
_FIXED_BY_WEIGHTS = (
    "model_type", "max_training_sentences", "max_span_width", "ffnn_size", "ffnn_depth",
    "feature_size", "coref_depth", "fine_grained", "use_prior", "use_metadata", "use_features",
    "use_segment_distance", "model_heads", "genres",
)  # fmt: skip
# Arguments that the preprocessor has too, with its name for them.
SHARED = {
    "max_segment_len": "sequence_length",
    "model_type": "model_type",
    "max_num_speakers": "max_num_speakers",
    "genres": "genres",
}


def shared_arguments(preprocessor) -> dict:
    """Returns the resolver's arguments that a preprocessor sets."""
    return {name: getattr(preprocessor, of_it) for name, of_it in SHARED.items()}


def check_shared(arguments: dict, preprocessor) -> None:
    """Raises a `ValueError` if a resolver's arguments differ from its preprocessor's."""
    for name, value in shared_arguments(preprocessor).items():
        if arguments[name] != value:
            raise ValueError(
                f"`{name}` must be the preprocessor's, {value!r}. "
                f"Received: {name}={arguments[name]!r}"
            )


def check_weights_fit(arguments: dict, preset: dict) -> None:
    """Raises a `ValueError` if an argument does not fit the weights of a preset.

    Args:
        arguments: dict of the given arguments.
        preset: dict of the preset's arguments.
    """
    for name in _FIXED_BY_WEIGHTS:
        given, of_preset = arguments.get(name), preset.get(name)
        if name == "genres":
            given, of_preset = given and list(given), list(of_preset or [])
        if name in arguments and given != of_preset:
            raise ValueError(
                f"`{name}` must be that of the weights, {of_preset!r}. Received: {name}={given!r}"
            )


def check_minimums(arguments: dict, minimums: dict) -> None:
    """Raises a `ValueError` if an argument is not an integer of at least its minimum."""
    for name, least in minimums.items():
        value = arguments[name]
        if int(value) != value or value < least:
            raise ValueError(f"`{name}` must be {least} or more. Received: {name}={value}")


def check_model_type(model_type: str) -> None:
    """Raises a `ValueError` if there is no such type of model."""
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f"`model_type` must be one of {MODEL_TYPES}. Received: model_type={model_type!r}"
        )


def check_arguments(arguments: dict, backbone) -> None:
    """Raises a `ValueError` if an argument is out of its range."""
    check_minimums(arguments, _MINIMUMS)
    check_model_type(arguments["model_type"])
    if arguments["max_segment_len"] > backbone.max_sequence_length:
        raise ValueError(
            f"`max_segment_len` must be at most the backbone's {backbone.max_sequence_length}. "
            f"Received: max_segment_len={arguments['max_segment_len']}"
        )
    if not 0.0 < arguments["top_span_ratio"] <= 1.0:
        raise ValueError(
            "`top_span_ratio` must be in (0, 1]. Received: "
            f"top_span_ratio={arguments['top_span_ratio']}"
        )
    if not 0.0 <= arguments["dropout_rate"] < 1.0:
        raise ValueError(
            f"`dropout_rate` must be in [0, 1). Received: dropout_rate={arguments['dropout_rate']}"
        )
    if arguments["use_metadata"] and not arguments["genres"]:
        raise ValueError("`genres` must have at least one with `use_metadata`. Received: none")
