"""`--task=pretrain`: pretrains a model on text, with masked tokens, spans and sentence pairs."""

import itertools
import math
import os
import random
import re
from fractions import Fraction

import keras_spanbert as ks
from keras_spanbert import files, stores
from keras_spanbert.recipes import checks, corpora, masking
from keras_spanbert.recipes.flags import FLAGS, Group, set_flags, values
from keras_spanbert.recipes.recipe import Recipe
from keras_spanbert.recipes.run_folder import Run, has_checkpoint, new_run_hint
from keras_spanbert.recipes.terminal import command, exit_on_user_error, log, stop_on_signals

_LEARNING_RATE, _LEARNING_RATE_OF_PRESETS = 2e-3, 1e-4

group = Group("Pretrain", "only for --task=pretrain.")
group.integer("eval_steps", "Largest number of batches per evaluation.", default=100)
group.choice(
    "damaged_shards",
    ["refuse", "skip"],
    "What to do if shards of a prepared corpus are missing or damaged. refuse: stop. skip: train "
    "on the other shards.",
    default="refuse",
)
group.boolean(
    "unigram_bias",
    "Initialize the output biases with the log-probabilities of the tokens in the training text. "
    "Only for new models.",
    default=True,
)
group.boolean(
    "neighbor_attention",
    "Initialize position embeddings and attention so that each head starts with a neighboring "
    "token. Short runs then learn faster. Only for new models. Default: true for --size=tiny.",
)


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    corpora.check()
    masking.check()
    for name in ["lora_rank", "patience"]:
        checks.check_value(name, not FLAGS[name].present, "left out with --task=pretrain")
    checks.check_value("mask_rate", 0.0 < FLAGS.mask_rate <= 1.0, "in (0, 1]")
    if not FLAGS.eval_data:
        checks.check_value("held_out", FLAGS.held_out > 0.0, "above 0 without --eval_data")


def run(run: Run) -> None:
    """Pretrains a model, and logs and plots the results."""
    import tensorflow as tf

    from keras_spanbert.recipes.fit import TrainingSettings, export, fit
    from keras_spanbert.tasks.pretrain.objectives import (
        unigram_entropies,
        unigram_log_probabilities,
    )

    # === Data and model ===
    distribution = run.distribution
    with exit_on_user_error():
        record = run.path("corpus.json")
        corpus, eval_corpus = corpora.open_corpora(
            must_hold_out=True, has_vocabulary=os.path.exists(record)
        )
        known = _recorded(corpus, record)
        with distribution.scope():
            model = _build_model(corpus, known.get("vocabulary"))
        preprocessor = model.preprocessor
        evaluated, split = (eval_corpus, "all") if eval_corpus else (corpus, "held_out")
        texts = (text for text, _ in evaluated.documents(split))
        stop_on_signals("before training. Nothing was saved", clean_up=True)
        settings = preprocessor, FLAGS.min_block_tokens, corpora.tokenizing_progress()
        corpus = corpus.prepared(*settings)
        evaluated = eval_corpus.prepared(*settings) if eval_corpus else corpus
        if not evaluated.num_blocks(split):
            raise ValueError(
                f"Evaluation text must have a document of {FLAGS.min_block_tokens} tokens or more "
                "(--min_block_tokens). Received: none"
            )
        counts, num_blocks = corpus.token_counts()
        stream = ks.TrainingStream(
            corpus, preprocessor, FLAGS.batch_size, FLAGS.seed, unigram_counts=counts
        )
        steps_per_epoch = Fraction(num_blocks, FLAGS.batch_size)
        checks.check_steps(checks.num_steps(steps_per_epoch))
        validation = evaluated.evaluation_dataset(
            preprocessor, FLAGS.batch_size, split, FLAGS.eval_steps
        )
        if FLAGS.unigram_bias:
            with distribution.scope():
                model.set_output_biases(unigram_log_probabilities(counts))
    unigram = unigram_entropies(counts, validation)
    num_batches = int(validation.cardinality())
    validation = distribution.split(validation).apply(
        tf.data.experimental.assert_cardinality(num_batches)
    )
    masking.log_baselines(counts.sum(), num_blocks, unigram)

    blanks = _choose_blanks(preprocessor, texts)
    with exit_on_user_error():
        checks.refuse_unread("Training")

    # === Fit ===
    known["vocabulary"] = preprocessor.tokenizer.get_vocabulary()
    model, report, metrics = fit(
        run,
        TrainingSettings(
            model=model,
            stream=stream,
            num_examples=num_blocks,
            steps_per_epoch=steps_per_epoch,
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
    if blanks:
        log("Words of held-out text, each masked alone, and the best guesses of the MLM head:")
    masked = [preprocessor.tokenizer.mask_token.join([first, last]) for first, _, last in blanks]
    filled = model.fill(masked, top_k=3, score="mlm")
    for (before, truth, after), (guesses,) in zip(blanks, filled):
        guesses = "  ".join(f"{g['text']} ({math.exp(g['mlm']):.0%})" for g in guesses)
        log(f"  {before[-36:]}[{truth}]{after[:36]}   MLM: {guesses}")
    log()
    masking.log_results(unigram, metrics)
    export(model)
    log(f"Wrote the preset and {run.report_names()} to {run.output}")
    if not FLAGS.train_data:  # A first run.
        log(next_steps(run.output))


def next_steps(preset: str) -> str:
    """Returns commands to continue with after a first run."""
    program = command()
    fill = f"SpanBertPretrainer.from_preset({preset!r}).fill('the [MASK] of the United States')"
    return "\n".join(
        [
            "Next:",
            f"  look at the losses: {stores.join(preset, 'loss.png')}",
            f'  fill a blank: python -c "import keras_spanbert as ks; print(ks.{fill})"',
            f"  fine-tune: {program} --task=classification --preset={preset} --train_data=FILE.csv",
            f"  pretrain on your own text: {program} --train_data='texts/*.txt'",
        ]
    )


def _build_model(corpus, vocabulary):
    """Builds a new model or loads the preset, with its preprocessor."""
    from keras_spanbert.tasks.pretrain.neighbors import attend_to_neighbors

    if FLAGS.preset:
        model, tokenizer, source = corpora.load_preset(**masking.arguments())
        model = model.with_dropout(FLAGS.dropout, FLAGS.attention_dropout)
        if not has_checkpoint():
            _warn_about_short_blocks(source, model.backbone.max_sequence_length)
    else:
        tokenizer = corpora.new_tokenizer(corpus, vocabulary)
        size = ks.SpanBertBackbone.SIZES[FLAGS.size]
        if FLAGS.initializer_range is None:
            narrow = max(1.0, 768 / size["hidden_dim"])
            set_flags(initializer_range=round(0.02 * narrow**0.5, 4))
        set_flags(dropout=FLAGS.dropout or 0.0)
        backbone = ks.SpanBertBackbone(
            vocabulary_size=tokenizer.vocabulary_size(),
            max_sequence_length=FLAGS.sequence_length,
            **values("dropout", "attention_dropout", "initializer_range", "rematerialize"),
            **size,
        )
        if FLAGS.neighbor_attention is None:  # Measured only for this size.
            set_flags(neighbor_attention=FLAGS.size == "tiny")
        if FLAGS.neighbor_attention:
            attend_to_neighbors(backbone)
        model = ks.SpanBertPretrainer(backbone, **masking.arguments())
    chosen = masking.preprocessor_arguments(model)
    model.preprocessor = masking.new_preprocessor(tokenizer, model.max_span_tokens, **chosen)
    return model


def _recorded(corpus, path):
    """Returns the contents of `corpus.json`, which the run wrote at its start, or new ones.

    Raises `ValueError` if the text has changed since then.
    """
    here = corpus.checksums
    found = files.read_json(path) if os.path.exists(path) else {"checksums": here}
    there = found.get("checksums", {})
    for name in [*here, *there]:
        if here.get(name) != there.get(name):
            raise ValueError(
                "The training text must not change during a run; "
                f"{new_run_hint(FLAGS.output)}. Received: {name}, which "
                f"{'has changed' if name in here and name in there else 'was added or removed'}"
            )
    return found


def _choose_blanks(preprocessor, texts):
    """Returns up to three blanks of one token: `(before, word, after)`."""
    tokenizer = preprocessor.tokenizer
    sentences, blanks = set(), []
    for text in itertools.islice(texts, 100):
        sentences.update(re.split(r"(?<=[.!?])\s+|\s*\n\s*", text[:20_000]))
    generator = random.Random(0)
    for sentence in generator.sample(sorted(sentences), len(sentences)):
        words = list(re.finditer(r"\b[^\W\d_]+\b", sentence))
        if len(words) < 6 or tokenizer.mask_token in sentence or len(blanks) == 3:
            continue
        word = generator.choice(words)
        parts = sentence[: word.start()], word[0], sentence[word.end() :]
        lengths = [len(tokenizer(part)) for part in parts]
        if lengths[1] == 1 and sum(lengths) <= preprocessor.sequence_length - 2:
            blanks.append(parts)
    return blanks


def _warn_about_short_blocks(source, longest):
    """Logs a warning if blocks are shorter than half of those that the preset was trained on."""
    # Only the preset of a pretrainer records their length. The length of a task's inputs says
    # nothing about pretraining.
    saved = source.saved(ks.SpanBertPretrainerPreprocessor) or {}
    trained = min(longest, saved.get("sequence_length", longest))
    if 2 * FLAGS.sequence_length < trained:
        log(
            f"Warning: --sequence_length={FLAGS.sequence_length} is less than half of the preset's "
            f"{trained} tokens. Short blocks can make the preset worse for tasks with longer inputs"
        )


def _metrics(report, unigram):
    metrics = {}
    if report.rows:
        last = report.rows[-1]
        for head, entropy in unigram.items():
            # Without predictions, 0 would look like a perfect score.
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


RECIPE = Recipe(
    check=check,
    defaults={
        "sequence_length": 32,
        "batch_size": 64,
        "beta_2": 0.98,
        "epsilon": 1e-8,
        "steps": 1600,
    },
    groups=("Pretraining data", "Masking"),
    run=run,
)
