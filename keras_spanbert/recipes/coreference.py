"""`--task=coreference`: trains a resolver on documents with clusters, and finds clusters."""

from keras_spanbert.recipes import coreference_files, fine_tuning
from keras_spanbert.recipes.checks import Condition, matching_files, only_with
from keras_spanbert.recipes.coreference_files import evaluate, predict, read  # noqa: F401
from keras_spanbert.recipes.flags import FLAGS, group, set_flags
from keras_spanbert.recipes.resume import preset_warnings
from keras_spanbert.recipes.terminal import log
from keras_spanbert.wording import format_count

DEFAULTS = {"batch_size": 1, "beta_2": 0.999, "epsilon": 1e-6}
EPOCHS = 20
LEARNING_RATE = 2e-5

string, integer, number, boolean, strings, choice = group(
    "Coreference", "only for --task=coreference. A trained preset keeps the settings of its model."
)
choice(
    "coref_model_type",
    None,
    ["independent", "overlap"],
    "How a long document is cut into segments. independent: segments follow one another. overlap: "
    "each segment overlaps the next by half, so that each token has context on both sides. "
    "Default: independent.",
)
for name, text in [
    (
        "max_training_sentences",
        "Largest number of segments (not sentences) per training document. In each epoch, a longer "
        "document is cropped to this many at a random position. Default: 3.",
    ),
    ("max_span_width", "Largest number of tokens per mention. Default: 30."),
    ("max_top_antecedents", "Number of candidate antecedents per mention. Default: 50."),
    ("ffnn_size", "Number of units in each hidden layer of the scoring networks. Default: 3000."),
    (
        "coref_depth",
        "Number of rounds in which pairs of mentions are scored. Between rounds, each mention is "
        "updated from its likely antecedents. Default: 2.",
    ),
]:
    integer(name, None, text)
number(
    "top_span_ratio",
    None,
    "Number of candidate mentions to keep per token of the document. Default: 0.4.",
    upper_bound=1.0,
)
strings(
    "genres",
    None,
    "Genres that the model distinguishes, two letters each. The genre of a document is given by "
    "the first two letters of its key (doc_key). Default: the genres of OntoNotes.",
)
string(
    "document_genre",
    None,
    "Genre of plain text and of GAP's examples, which have no genre. It must be one of the "
    "model's genres (--genres). Default: the first of them.",
)
boolean(
    "singletons", None, "Also learn and predict clusters with a single mention. Default: false."
)
number(
    "head_learning_rate",
    1e-4,
    "Initial learning rate of all layers above the encoder. It falls linearly to 0, without "
    "warm-up.",
)
integer(
    "max_spans_in_memory",
    2000,
    "Largest number of candidate mentions in memory at once, in evaluation and prediction. Texts "
    "with more are resolved in chunks.",
)
number(
    "min_link_score",
    None,
    "Smallest probability with which a mention is linked to an earlier one, in evaluation and "
    "prediction. A higher value gives fewer and more certain links. Default: no minimum.",
    upper_bound=1.0,
)
string(
    "html",
    None,
    "New file for a web page that shows the clusters of a text, in paler colors where the model is "
    "less sure. --predict_data must name one text file (.txt). Default: no page.",
)
# Maps flags to arguments of the resolver. If a flag is not given, the preset's value is used.
_ARGUMENTS = {
    "sequence_length": "max_segment_len",
    "coref_model_type": "model_type",
    **{
        name: name
        for name in [
            "max_training_sentences", "max_span_width", "top_span_ratio", "max_top_antecedents",
            "ffnn_size", "coref_depth", "genres", "singletons",
        ]
    },
}  # fmt: skip


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    coreference_files.check()
    # The clusters of texts are also printed, so that --predictions is optional.
    kind = coreference_files.file_kind(matching_files("predict_data"))
    fine_tuning.check(needs_predictions=kind != "text")


def conditions() -> list[Condition]:
    kinds = {
        coreference_files.file_kind(matching_files(name)) for name in ["eval_data", "predict_data"]
    }
    inputs = ["eval_data", "predict_data"]
    without_genre = "`--{}` applies only to plain text and GAP's examples"
    plain = "`--{}` applies only to plain text"
    return [
        only_with(["batch_size", "max_training_sentences", "head_learning_rate"], "train_data"),
        only_with(["max_spans_in_memory", "min_link_score"], *inputs),
        only_with(["html"], "predict_data"),
        Condition(bool(kinds & {"text", "gap"}), without_genre, ["document_genre"], inputs),
        Condition("text" in kinds, plain, ["encoding_errors"], inputs),
    ]


def prediction_extensions() -> tuple[str, ...]:
    return coreference_files.EXTENSIONS[coreference_files.file_kind(matching_files("predict_data"))]


def build():
    """Builds the resolver of the preset."""
    import keras_spanbert as ks

    given = {
        argument: FLAGS[name].value for name, argument in _ARGUMENTS.items() if FLAGS[name].present
    }
    with preset_warnings():
        resolver = ks.SpanBertCoreferenceResolver.from_preset(
            FLAGS.preset, dtype=FLAGS.dtype, **given
        )
    resolver.check_preprocessor()
    set_flags(**{name: getattr(resolver, argument) for name, argument in _ARGUMENTS.items()})
    return resolver


def sequences(resolver, stream):
    """Returns the number of segments per document."""
    return resolver.max_training_sentences


def stream(resolver, documents):
    """Returns the stream of documents."""
    segments = resolver.max_training_sentences
    found = format_count(len(documents), "document")
    log(f"{found}; cutting into segments of {FLAGS.sequence_length} tokens")
    return resolver.batches(
        documents, FLAGS.batch_size, segments, shuffle=True, seed=FLAGS.seed, pad=True
    )


def optimizer(resolver, steps):
    """Returns the optimizer, which has two learning rates."""
    from keras_spanbert.recipes.fit import accumulated_steps
    from keras_spanbert.training.optimizer import LinearWarmupDecay
    from keras_spanbert.training.two_rate_adam import TwoRateAdam

    return TwoRateAdam(
        LinearWarmupDecay(FLAGS.learning_rate, FLAGS.warmup_steps, steps),
        # As in the released code, the heads have no warm-up.
        LinearWarmupDecay(FLAGS.head_learning_rate, 0, steps),
        heads=resolver.head_names(),
        encoder_weight_decay=FLAGS.weight_decay,
        beta_2=FLAGS.beta_2,
        epsilon=FLAGS.epsilon,
        clip_norm=FLAGS.clip_norm or None,
        gradient_accumulation_steps=accumulated_steps(),
    )
