"""The resolver's arguments and their checks."""

from collections.abc import Collection

from keras_spanbert.checks import check_flags, check_in, check_range, is_number

_MODEL_TYPES = ("independent", "overlap")
_MINIMUMS = {
    "max_segment_len": 4, "sequence_length": 4, "max_training_sentences": 1, "max_span_width": 1,
    "max_top_antecedents": 1, "ffnn_size": 1, "ffnn_depth": 0, "feature_size": 1, "coref_depth": 1,
    "max_num_speakers": 2,
}  # fmt: skip


def _are_names(values):
    is_list = isinstance(values, Collection) and not isinstance(values, str)
    return is_list and all(isinstance(value, str) for value in values)


def _is_whole(value):
    return is_number(value) and value % 1 == 0


# For each argument, a function that accepts its values, and their description.
_RULES = {
    "model_type": (lambda value: value in _MODEL_TYPES, f"one of {_MODEL_TYPES}"),
    "genres": (_are_names, "a list of strings"),
    **{
        name: (lambda value, least=least: _is_whole(value) and value >= least, f"{least} or more")
        for name, least in _MINIMUMS.items()
    },
}
_RANGES = {"top_span_ratio": "(0, 1]", "dropout_rate": "[0, 1)"}
_FLAGS = (
    "fine_grained", "use_prior", "use_metadata", "use_features", "use_segment_distance",
    "model_heads", "singletons",
)  # fmt: skip
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
        given = arguments[name]
        check_in(name, given, given == value, f"the preprocessor's, {value!r}")


def check_weights_fit(arguments: dict, preset: dict) -> None:
    """Raises a `ValueError` if a given argument does not fit the weights of a preset."""
    for name in _FIXED_BY_WEIGHTS:
        if name not in arguments or name not in preset:
            continue
        given, of_preset = arguments[name], preset[name]
        if name == "genres":
            given, of_preset = given and list(given), list(of_preset)
        check_in(name, given, given == of_preset, f"that of the weights, {of_preset!r}")


def check_arguments(**arguments) -> None:
    """Raises a `ValueError` if an argument of the resolver or preprocessor is out of its range."""
    for name, value in arguments.items():
        if name in _RULES:
            accepts, rule = _RULES[name]
            check_in(name, value, accepts(value), rule)
        elif name in _RANGES:
            check_range(_RANGES[name], **{name: value})
        elif name in _FLAGS:
            check_flags(**{name: value})
