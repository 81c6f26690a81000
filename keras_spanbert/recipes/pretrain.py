"""`--task=pretrain`: masked language model, span boundaries and pairs, from text."""

import math
import os

from keras_spanbert.recipes import checks, corpora, masking, objectives
from keras_spanbert.recipes.flags import FLAGS, group, resolve
from keras_spanbert.recipes.run import Run
from keras_spanbert.recipes.terminal import log, user_input

DEFAULTS = {"sequence_length": 32, "batch_size": 64, "beta_2": 0.98, "epsilon": 1e-8, "steps": 3500}
_LEARNING_RATE, _LEARNING_RATE_OF_PRESETS = 2e-3, 1e-4

string, integer, number, boolean, strings, choice = group("Masking")
boolean(
    "unigram_bias",
    True,
    "Start a new model's output biases at the log-probabilities of the tokens in the text.",
)

string, integer, number, boolean, strings, choice = group("Training")
integer("eval_steps", 100, "Most batches an evaluation when pretraining.", lower_bound=1)


def check() -> None:
    """Raises a ValueError for what the flags alone show to be wrong."""
    checks.refuse("predict_data", "predictions", "seeds", "grid")
    corpora.check()
    objectives.check()
    checks.check_value("mask_rate", 0.0 < FLAGS.mask_rate <= 1.0, "in (0, 1]")
    if not FLAGS.eval_data:
        checks.check_value("held_out", FLAGS.held_out > 0.0, "above 0 without --eval_data")


def run(run: Run) -> None:
    """Pretrains, and shows what was learnt."""
    import tensorflow as tf

    from keras_spanbert.recipes.fit import export, fit
    from keras_spanbert.recipes.plan import Plan
    from keras_spanbert.runs import examples
    from keras_spanbert.tasks.pretrain.unigram import unigram_entropies, unigram_log_probabilities

    # === Data and model ===
    distribution = run.distribution
    with user_input():
        recorded = run.path("corpus.json")
        corpus, eval_corpus = corpora.open_corpora(
            must_hold_out=True, has_vocabulary=os.path.exists(recorded)
        )
        known = corpora.recorded_counts(corpus, eval_corpus, recorded)
        with distribution.scope():
            model = _build_model(corpus, known.get("vocabulary"))
        preprocessor = model.preprocessor
        counts, num_blocks, validation = _survey(corpus, eval_corpus, preprocessor, known)
        checks.check_steps(checks.steps_of(num_blocks, FLAGS.steps))
        if FLAGS.unigram_bias:
            with distribution.scope():
                model.set_output_biases(unigram_log_probabilities(counts))
    unigram = unigram_entropies(counts, validation)
    num_batches = int(validation.cardinality())
    validation = distribution.split(validation).apply(
        tf.data.experimental.assert_cardinality(num_batches)
    )
    objectives.log_baselines(counts.sum(), num_blocks, unigram)

    blanks = examples.choose_blanks(preprocessor, (eval_corpus or corpus).evaluation_texts)
    with distribution.local(model, keep=False) as local:
        before = examples.score_truths(local, blanks)

    # === Fit ===
    # A run that began before there were masks by rows keeps its own.
    known.setdefault("masks_by_row", "counts" not in known)
    known.update(
        vocabulary=preprocessor.tokenizer.get_vocabulary(),
        counts=counts.tolist(),
        num_blocks=num_blocks,
    )
    with user_input():
        stream = corpus.stream(
            preprocessor,
            FLAGS.batch_size,
            FLAGS.seed,
            min_tokens=FLAGS.min_block_tokens,
            shuffle_blocks=FLAGS.shuffle_blocks,
            unigram_counts=counts if known["masks_by_row"] else None,
        )
    model, report, metrics = fit(
        run,
        Plan(
            model=model,
            stream=stream,
            num_examples=num_blocks,
            learning_rate=_LEARNING_RATE_OF_PRESETS if FLAGS.preset else _LEARNING_RATE,
            steps=FLAGS.steps,
            validation=validation,
            evaluate_first=bool(FLAGS.preset),
            num_predictions=preprocessor.masking.num_predictions(FLAGS.sequence_length),
            files={"corpus.json": known},
            metrics=lambda report: _metrics(report, unigram),
            plot=lambda report: _plot(run, report, unigram, preprocessor.masking),
        ),
    )

    # === Show ===
    last = report.rows[-1]
    if not all(math.isfinite(last[f"val_{head}_cross_entropy"]) for head in unigram):
        raise ArithmeticError("Training diverged: the cross-entropy is not finite")
    log()
    for line in examples.render(
        blanks, before, examples.measure(model, blanks), counts, known["vocabulary"]
    ):
        log(line)
    log()
    objectives.log_results(unigram, metrics)
    export(model)
    log(f"Wrote the preset and {run.written()} to {run.output}")


def _survey(corpus, eval_corpus, preprocessor, known):
    """Counts of tokens, number of blocks, and the batches to evaluate on."""
    import numpy as np

    from keras_spanbert.data.array_stream import check_batch_size

    sizes = {
        "batch_size": FLAGS.batch_size,
        "steps": FLAGS.eval_steps,
        "min_tokens": FLAGS.min_block_tokens,
    }
    if eval_corpus is None and "counts" not in known:
        log("Tokenising: counting tokens, keeping what is held out")
        counts, num_blocks, validation = corpus.survey(preprocessor, **sizes)
    else:
        if "counts" in known:
            counts, num_blocks = np.array(known["counts"]), known["num_blocks"]
        else:
            log("Tokenising: counting tokens")
            counts, num_blocks = corpus.token_counts(
                preprocessor.tokenizer, FLAGS.sequence_length, FLAGS.min_block_tokens
            )
        check_batch_size(FLAGS.batch_size, num_blocks)
        split = "all" if eval_corpus else "held_out"
        validation = (eval_corpus or corpus).evaluation_dataset(preprocessor, split=split, **sizes)
    for name, number_of in [
        ("Training", num_blocks),
        ("Evaluation", int(validation.cardinality())),
    ]:
        if not number_of:
            raise ValueError(
                f"{name} text must hold a document of {FLAGS.min_block_tokens} tokens or more "
                "(--min_block_tokens). Received: none"
            )
    return counts, num_blocks, validation


def _build_model(corpus, vocabulary):
    """A new model or the preset's, with its preprocessor."""
    import keras_spanbert as ks

    if FLAGS.preset:
        model, tokenizer = corpora.load_preset(**objectives.arguments())
    else:
        tokenizer = corpora.new_tokenizer(corpus, vocabulary)
        size = ks.SpanBertBackbone.SIZES[FLAGS.size]
        if FLAGS.initializer_range is None:
            narrow = max(1.0, 768 / size["hidden_dim"])
            resolve(initializer_range=round(0.02 * narrow**0.5, 4))
        backbone = ks.SpanBertBackbone(
            vocabulary_size=tokenizer.vocabulary_size(),
            dropout=FLAGS.dropout,
            attention_dropout=FLAGS.attention_dropout,
            initializer_range=FLAGS.initializer_range,
            rematerialize=FLAGS.rematerialize,
            scan_layers=FLAGS.scan_layers,
            max_sequence_length=FLAGS.sequence_length,
            **size,
        )
        model = ks.SpanBertPretrainer(backbone, **objectives.arguments())
    chosen = objectives.preprocessor_arguments(model)
    model.preprocessor = masking.new_preprocessor(tokenizer, model.max_span_tokens, **chosen)
    return model


def _metrics(report, unigram):
    metrics = {}
    if report.rows:
        last = report.rows[-1]
        for head, entropy in unigram.items():
            # Of nothing to predict, 0 would look like a perfect score.
            for name in ["cross_entropy", "accuracy"]:
                metrics[f"{head}_{name}"] = last[f"val_{head}_{name}"] if entropy else None
            metrics[f"{head}_unigram_entropy"] = entropy
        metrics["evaluated_at_step"] = last["step"]
        if last["step"]:
            metrics["tokens_per_second"] = last["tokens_per_second"]
    return metrics


def _plot(run, report, unigram, masking):
    from keras_spanbert.runs import plots

    if report.rows:
        plots.plot_losses(run.path("loss.png"), report.rows, unigram)
    lengths = [
        masking.drawn_span_lengths(
            FLAGS.batch_size, FLAGS.sequence_length, (FLAGS.seed, 0), step * FLAGS.batch_size
        )
        for step in range(max(1, min(report.step, 100)))
    ]
    plots.plot_span_lengths(run.path("span_lengths.png"), lengths, masking.length_probabilities)
