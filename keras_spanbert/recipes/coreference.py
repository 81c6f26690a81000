"""`--task=coreference`: training on documents with clusters, finding them, exporting."""

from keras_spanbert.recipes import coreference_files, fine_tuning
from keras_spanbert.recipes.flags import FLAGS, group, resolve
from keras_spanbert.recipes.run import Run
from keras_spanbert.recipes.terminal import log

DEFAULTS = {"batch_size": 1, "beta_2": 0.999, "epsilon": 1e-6}
_EPOCHS = 20
_LEARNING_RATE = 2e-5

string, integer, number, boolean, strings, choice = group("Coreference")
# The resolver's arguments by their flags; those that are not given are the preset's.
_ARGUMENTS = {"sequence_length": "max_segment_len"}
choice("model_type", None, ["independent", "overlap"], "How documents are cut into segments.")
integer("max_training_sentences", None, "Segments of a document to train on. Default: 3.", 1)
integer("max_span_width", None, "Widest mention, in tokens. Default: 30.", lower_bound=1)
number("top_span_ratio", None, "Spans that are kept, for one token. Default: 0.4.", 0.0, 1.0)
integer("max_top_antecedents", None, "Possible antecedents of a mention. Default: 50.", 1)
integer("ffnn_size", None, "Size of the hidden layers of scores. Default: 3000.", lower_bound=1)
integer("coref_depth", None, "How often pairs are scored. Default: 2.", lower_bound=1)
strings("genres", None, "What keys of documents may begin with. Default: those of OntoNotes.")
boolean("singletons", None, "Learn and find mentions of what is mentioned once. Default: not.")
string("genre", None, "Genre of texts and of GAP, one of --genres. Default: the first one.")
integer(
    "max_spans",
    2000,
    "Spans that are held in memory: longer texts are resolved in parts.",
    lower_bound=1,
)
string("html", None, "New file to write a page to that shows the clusters of a text.")
number("head_learning_rate", 1e-4, "Peak learning rate of all but the encoder.", lower_bound=0.0)
_ARGUMENTS.update(
    {
        name: name
        for name in [
            "model_type",
            "max_training_sentences",
            "max_span_width",
            "top_span_ratio",
            "max_top_antecedents",
            "ffnn_size",
            "coref_depth",
            "genres",
            "singletons",
        ]
    }
)


def check() -> None:
    """Raises a ValueError for what the flags alone show to be wrong."""
    coreference_files.check()
    # Clusters of texts are shown too.
    fine_tuning.check(needs_predictions=coreference_files.kind_of(FLAGS.predict_data) != "text")


def run(run: Run) -> None:
    """Trains where there is data to train on, evaluates, predicts, exports."""
    fine_tuning.fine_tune(
        run,
        _build,
        coreference_files.read,
        _stream,
        coreference_files.evaluate,
        coreference_files.predict,
        learning_rate=_LEARNING_RATE,
        epochs=_EPOCHS,
        sequences=lambda resolver, stream: resolver.max_training_sentences,
        optimizer=_optimizer,
    )


def _build():
    import keras_spanbert as ks

    given = {
        argument: FLAGS[name].value for name, argument in _ARGUMENTS.items() if FLAGS[name].present
    }
    resolver = ks.SpanBertCoreferenceResolver.from_preset(FLAGS.preset, dtype=FLAGS.dtype, **given)
    resolver.check_preprocessor()
    resolve(**{name: getattr(resolver, argument) for name, argument in _ARGUMENTS.items()})
    return resolver


def _stream(resolver, documents):
    from keras_spanbert.tasks.coreference.batches import DocumentStream

    segments = resolver.max_training_sentences
    log(f"{len(documents):,} documents; cutting them into segments of {FLAGS.sequence_length}")
    return DocumentStream(
        resolver.batches(documents, FLAGS.batch_size, max_segments=segments, seed=FLAGS.seed)
    )


def _optimizer(resolver, steps):
    from keras_spanbert.recipes.fit import accumulated_steps
    from keras_spanbert.training.optimizer import LinearWarmupDecay
    from keras_spanbert.training.two_rate_adam import TwoRateAdam

    return TwoRateAdam(
        LinearWarmupDecay(FLAGS.learning_rate, FLAGS.warmup_steps, steps),
        # As released: the heads' rate falls from the first step on.
        LinearWarmupDecay(FLAGS.head_learning_rate, 0, steps),
        heads=resolver.head_names(),
        encoder_weight_decay=FLAGS.weight_decay,
        beta_2=FLAGS.beta_2,
        epsilon=FLAGS.epsilon,
        clip_norm=FLAGS.clip_norm or None,
        gradient_accumulation_steps=accumulated_steps(),
    )
