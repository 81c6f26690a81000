"""`--task=pretrain`: pretrains a model on text, with masked tokens, spans and sentence pairs."""

import itertools
import math
import os
import random
import re
import shlex
from fractions import Fraction

import keras_spanbert as ks
from keras_spanbert import files, stores
from keras_spanbert.recipes import checks, corpora
from keras_spanbert.recipes.checks import check_value
from keras_spanbert.recipes.fine_tuning import arguments_of_backbone
from keras_spanbert.recipes.flags import FLAGS, Group, set_flags, values
from keras_spanbert.recipes.recipe import Recipe
from keras_spanbert.recipes.run_folder import Run, has_checkpoint, new_run_hint
from keras_spanbert.recipes.terminal import command, exit_on_user_error, log, stop_on_signals
from keras_spanbert.tasks.pretrain.objectives import (
    OBJECTIVES,
    choices,
    unigram_entropies,
    unigram_log_probabilities,
)
from keras_spanbert.wording import format_count

# Flags of the span lengths that a value of --masking_scheme uses.
_LENGTHS = {"span": ("geometric_p", "max_span_words"), "random_span": ("max_span_words",)}

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

group = Group(
    "Masking",
    "only for --task=pretrain. Which tokens are masked, and what the model learns from them.",
)
group.number("mask_rate", "Fraction of the tokens to mask.", default=0.15, lower_bound=None)
group.choice(
    "masking_scheme",
    ["span", "whole_word", "subword", "random_span", "entity", "noun_phrase"],
    "What to mask. span: spans of whole words, with lengths from a geometric distribution, as in "
    "SpanBERT. random_span: the same, with lengths from a uniform distribution. whole_word: single "
    "words. subword: single tokens. entity, noun_phrase: named entities or noun phrases for half "
    "of the masks, single words for the other half; the text must be annotated with them, see "
    "--span_annotator.",
    default="span",
)
group.number(
    "geometric_p",
    "Parameter of the geometric distribution of span lengths, for --masking_scheme=span. A larger "
    "value gives shorter spans.",
    default=0.2,
    lower_bound=None,
)
group.integer(
    "max_span_words",
    "Largest number of words per span, for --masking_scheme=span and random_span.",
    default=10,
)
group.integer(
    "num_mask_copies",
    "Number of fixed sets of masks per block. Each time that a block is used, one of its sets is "
    "drawn at random; BERT's data has 10. Default: new masks each time.",
)
group.choice(
    "mask_replacement",
    ["span", "token"],
    "Whether to choose once per span or for each token what replaces masked tokens: [MASK] (80%), "
    "random tokens (10%), or the tokens themselves (10%).",
    default="span",
)
group.integer(
    "pad_predictions_to",
    "Round the number of masked positions per block up to a multiple of this number. The extra "
    "positions are padding. TPUs are faster with multiples of 8. Default: 8 if this adds at most a "
    "tenth to the positions, else 1.",
)
group.strings(
    "objectives",
    "Pretraining objectives. mlm, which is required: predict masked tokens from their own "
    "positions. sbo: predict the same tokens from the boundaries of their span. nsp: predict "
    "whether the second segment of a pair follows the first. With --preset, the default is the "
    "preset's objectives.",
    default=["mlm", "sbo"],
)
group.number(
    "sbo_weight",
    "Weight of the span boundary objective in the loss. MLM has weight 1.",
    default=1.0,
)
group.number(
    "nsp_weight",
    "Weight of next sentence prediction in the loss, if nsp is in --objectives. MLM has weight 1.",
    default=1.0,
)


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    corpora.check()
    _check_objectives(are_final=not FLAGS.preset or FLAGS["objectives"].present)
    for name in ["lora_rank", "patience", "group_by_length"]:
        check_value(name, not FLAGS[name].present, "left out with --task=pretrain")
    if not FLAGS.eval_data:
        check_value("held_out", FLAGS.held_out > 0.0, "above 0 without --eval_data")


def _check_objectives(are_final):
    """Checks --objectives and, if a preset cannot change them, the flags that depend on them."""
    names = FLAGS.objectives
    is_right = "mlm" in names and len(set(names)) == len(names) and set(names) <= set(OBJECTIVES)
    check_value("objectives", is_right, "mlm, alone or with sbo, nsp or both")
    for name in ["sbo", "nsp"] if are_final else []:
        is_right = name in names or not FLAGS[f"{name}_weight"].present
        check_value(f"{name}_weight", is_right, f"left out without --objectives=mlm,{name}")
    if "nsp" in names:
        check_value(
            "batch_size", FLAGS.batch_size > 1, "2 or more for pairs (--objectives with nsp)"
        )
        rule = "left out with nsp, whose pairs come from one document"
        check_value("cross_documents", not FLAGS.cross_documents, rule)
        length = FLAGS.sequence_length
        check_value("sequence_length", length is None or length > 4, "5 or more for pairs")


def run(run: Run) -> None:
    """Pretrains a model, and logs and plots the results."""
    import tensorflow as tf

    from keras_spanbert.recipes.fit import TrainingSettings, export, fit

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
        counts, num_blocks = corpus.token_counts()
        stream = ks.TrainingStream(
            corpus, preprocessor, FLAGS.batch_size, FLAGS.seed, unigram_counts=counts
        )
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
    log_baselines(counts.sum(), num_blocks, unigram)

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
            steps_per_epoch=Fraction(num_blocks, FLAGS.batch_size),
            learning_rate=1e-4 if FLAGS.preset else 2e-3,
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
    log_results(unigram, metrics)
    export(model)
    log(f"Wrote the preset and {run.report_names()} to {run.output}")
    if not FLAGS.train_data:  # A first run.
        log(next_steps(run.output))


def next_steps(preset: str) -> str:
    """Returns commands to continue with after a first run."""
    program = command()
    fine_tune = f"{program} --task=classification --preset={shlex.quote(preset)}"
    fill = f"SpanBertPretrainer.from_preset({preset!r}).fill('the [MASK] of the United States')"
    return (
        "Next:\n"
        f"  look at the losses: {stores.join(preset, 'loss.png')}\n"
        f'  fill a blank: python -c "import keras_spanbert as ks; print(ks.{fill})"\n'
        f"  fine-tune: {fine_tune} --train_data=FILE.csv\n"
        f"  pretrain on your own text: {program} --train_data='texts/*.txt'"
    )


def _build_model(corpus, vocabulary):
    """Builds a new model or loads the preset, with its preprocessor."""
    from keras_spanbert.tasks.pretrain.neighbors import attend_to_neighbors

    keeps_objectives = FLAGS.preset and not FLAGS["objectives"].present
    chosen = {} if keeps_objectives else choices(FLAGS.objectives)
    if FLAGS.preset:
        model, tokenizer, source = corpora.load_preset(**arguments_of_backbone(), **chosen)
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
        model = ks.SpanBertPretrainer(backbone, **chosen)
    model.preprocessor = new_preprocessor(tokenizer, model)
    return model


def new_preprocessor(tokenizer, model):
    """Sets the weights of the losses and returns the preprocessor, as the flags say."""
    model.sbo_weight, model.nsp_weight = FLAGS.sbo_weight, FLAGS.nsp_weight
    set_flags(objectives=list(model.objectives))
    _check_objectives(are_final=True)
    if FLAGS.pad_predictions_to is None:
        num_predictions = math.ceil(FLAGS.mask_rate * FLAGS.sequence_length)
        set_flags(pad_predictions_to=8 if -num_predictions % 8 <= num_predictions / 10 else 1)
    return ks.SpanBertPretrainerPreprocessor(
        tokenizer,
        scheme=FLAGS.masking_scheme,
        replacement=FLAGS.mask_replacement,
        max_span_tokens=model.max_span_tokens,
        **values("sequence_length", "mask_rate", "seed", "pad_predictions_to", "num_mask_copies"),
        **values(*_LENGTHS.get(FLAGS.masking_scheme, ())),
        **choices(model.objectives),
    )


def _recorded(corpus, path):
    """Returns the contents of `corpus.json` of a resumed run, or new ones. Refuses changed text."""
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


def log_baselines(num_tokens: int, num_blocks: int, unigram: dict[str, float]) -> None:
    """Logs the size of a corpus and its unigram entropy. Warns if SBO has no targets."""
    shown = ", ".join(f"{unigram[name]:.3f} ({name.upper()})" for name in unigram if name != "nsp")
    log(f"{num_tokens:,} tokens in {format_count(num_blocks, 'block')}; unigram entropy {shown}")
    if FLAGS.sbo_weight and not unigram.get("sbo", 1.0):
        hint = f"documents must be longer, or --eval_steps={FLAGS.eval_steps} larger"
        if FLAGS.sequence_length < 5:
            hint = f"--sequence_length={FLAGS.sequence_length} must be 5 or more"
        elif FLAGS.mask_rate > 0.5:
            hint = f"--mask_rate={FLAGS.mask_rate} must be smaller"
        log(
            "Warning: no masked span of the evaluation data has a token on both sides, so SBO "
            f"learns nothing: {hint}"
        )


def log_results(unigram: dict[str, float], metrics: dict) -> None:
    """Logs the result of each objective and its distance from the baseline."""
    for name, base in unigram.items():
        value = metrics[f"{name}_cross_entropy"]
        if value is None:
            log(f"held-out {name.upper()}: nothing to predict")
            continue
        unit, of = "per token", "the unigram entropy of "
        if name == "nsp":
            unit, of = "per pair", "the coin-flip baseline of "
        log(
            f"held-out {name.upper()} cross-entropy {value:.3f} nats {unit}, "
            f"{abs(base - value):.3f} {'under' if value < base else 'over'} {of}{base:.3f}; "
            f"accuracy {metrics[f'{name}_accuracy']:.3f}"
        )


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
