"""Runs the training steps of one case of benchmarks/gpu.py in this process.

After the warm-up, and after each window but the last, the process prints `{}` and waits for a line
of input. It prints its result last.
"""

import argparse
import collections
import contextlib
import glob
import json
import os
import statistics
import sys
import tempfile
import time

import keras
import numpy as np
import training_step

import keras_spanbert as ks
from keras_spanbert.runs import cost
from keras_spanbert.runs.callbacks import Callbacks

WARM_UP_STEPS, WINDOWS, PROFILED_STEPS, NUM_KERNELS = 5, 3, 3, 15
NUM_SEGMENTS = 11  # Segments of the coreference document.
MINILM = {"num_layers": 6, "num_heads": 12, "hidden_dim": 384, "intermediate_dim": 1536}


def main():
    case = argparse.Namespace(**json.loads(sys.argv[1]))
    print(json.dumps(measure(case)), flush=True)


def measure(case):
    """Returns times, FLOPs, memory and compilations of a case's steps, or its kernels."""
    if case.card != "CPU" and not cost.has_accelerator():
        return {"error": f"{keras.backend.backend()} sees no GPU"}
    case.dropout, case.rematerialize = 0.1, False
    case.variant = "objective" if case.library == "transformers" else "both"
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(case.dtype)
    with plain_attention() if not case.is_fused else contextlib.nullcontext():
        if case.is_profiled:
            return profile(case)
        clock = Clock(case.steps)
        run_steps(case, clock)
    row = {**clock.figures(), "peak_gb": cost.peak_memory() / 1e9}
    if case.task == "pretraining" and not case.library.startswith("keras_hub"):
        row["tflops"] = pretraining_flops(case) / row["step_ms"] / 1e9
    return row


def pretraining_flops(case):
    """Returns the FLOPs of a step of MLM and SBO, with heads at the masked positions only."""
    sizes = ks.SpanBertBackbone.SIZES[case.size]
    model = ks.SpanBertPretrainer(
        ks.SpanBertBackbone(training_step.VOCABULARY_SIZE, max_sequence_length=case.length, **sizes)
    )
    num_predictions = -(-15 * case.length // 100)
    return cost.step_flops(model, case.batch_size, case.length, num_predictions)


def run_steps(case, clock):
    """Runs all steps of a case. `clock` gets the loss of each."""
    if case.library in ("transformers", "released"):
        device = "cpu" if case.card == "CPU" else "cuda"
        if case.library == "released":
            step = released_step(case, device)
        else:
            step = training_step.pytorch_step(case, device, case.has_mask)
        for number in range(clock.num_steps):
            clock.step(number, step())
        return
    batch_end = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda number, logs: clock.step(number, logs["loss"])
    )
    fit(case, clock.num_steps, batch_end)


class Clock:
    """Times windows of steps and counts the compilations after the warm-up.

    It waits for the device only at the ends of windows, because a run does not wait either.
    """

    def __init__(self, steps):
        self.steps = steps
        self.ends = [WARM_UP_STEPS + window * steps for window in range(WINDOWS + 1)]
        self.num_steps = self.ends[-1]
        self.started = time.perf_counter()
        self.seconds = []
        self.compilations = []
        self._count = count_compilations()

    def step(self, number, loss):
        """Records the end of a step, counted from 0, and waits for the next turn."""
        if number and number + 1 not in self.ends:
            return
        float(loss)
        self.seconds.append(time.perf_counter() - self.started)
        self.compilations.append(self._count())
        if number + 1 in self.ends[:-1]:
            print("{}", flush=True)
            sys.stdin.readline()
        self.started = time.perf_counter()

    def figures(self):
        first, _, *windows = self.seconds
        return {
            "step_ms": statistics.median(1e3 * seconds / self.steps for seconds in windows),
            "first_step_s": first,
            "compiled_later": self.compilations[-1] - self.compilations[1],
        }


def count_compilations():
    """Returns a function that counts how often XLA, or PyTorch's compiler, has compiled so far."""
    if keras.backend.backend() == "torch":
        from torch._dynamo.utils import counters

        return lambda: counters["stats"]["unique_graphs"]
    import jax

    seen = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: seen.append(event) if "backend_compile" in event else None
    )
    return lambda: len(seen)


@contextlib.contextmanager
def plain_attention():
    """Inside this context, attention weights are computed and kept."""
    keras.config.disable_flash_attention()
    if keras.backend.backend() != "torch":
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        yield


def fit(case, steps, callback):
    """Trains a model of this library or keras-hub on `steps` equal batches."""
    model, batch = (coreference if case.task == "coreference" else pretraining)(case)
    x, y, weights = keras.tree.map_structure(
        lambda array: None if array is None else np.concatenate([array] * steps), batch
    )
    callbacks = Callbacks([callback], add_history=True, model=model)
    options = {"callbacks": callbacks, "shuffle": False, "verbose": 0}
    keras.Model.fit(model, x, y, case.batch_size, sample_weight=weights, **options)


def pretraining(case):
    """Returns a pretraining model and a batch for it."""
    x, y, weights = training_step.build_batch(case)
    if case.library.startswith("keras_hub"):
        import compiled_step

        # It has one dropout rate, also for attention.
        case.library, case.layers, case.dropout = "keras_hub", None, case.attention_dropout
        model = compiled_step.build_model(case)
        return model, ({name: x[name] for name in model.input}, y["mlm"], weights["mlm"])
    if not case.has_mask:
        del x["padding_mask"]
    return training_step.build_model(case), (x, y, weights)


# === Coreference ===


def coreference(case):
    """Returns a resolver and a batch for it, one document."""
    resolver = build_resolver(case)
    resolver.compile(jit_compile=case.jit_compile)
    x, y = resolver.batches([document(case)], max_segments=NUM_SEGMENTS).arrays.document(0, 0)
    return resolver, (x, y, None)


def build_resolver(case):
    """Returns an untrained resolver with the released settings, and of MiniLM's size."""
    sizes = MINILM if case.size == "minilm" else ks.SpanBertBackbone.SIZES[case.size]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words()]
    backbone = ks.SpanBertBackbone(
        len(vocabulary), max_sequence_length=512, attention_dropout=case.attention_dropout, **sizes
    )
    preprocessor = ks.SpanBertCoreferenceResolverPreprocessor(
        ks.SpanBertTokenizer(vocabulary), case.length
    )
    return ks.SpanBertCoreferenceResolver(
        backbone, preprocessor, max_segment_len=case.length, max_training_sentences=NUM_SEGMENTS
    )


def words():
    return [f"w{number}" for number in range(1000)]


def document(case):
    """Returns a document of random words in full segments, in each of which two words corefer."""
    text = np.random.default_rng(0).choice(words(), [NUM_SEGMENTS, case.length - 2]).tolist()
    starts = range(0, NUM_SEGMENTS * (case.length - 2), case.length - 2)
    return {
        "doc_key": "nw/random",
        "sentences": text,
        "speakers": [["-"] * len(sentence) for sentence in text],
        "clusters": [[[start, start], [start + 2, start + 2]] for start in starts],
    }


def released_step(case, device):
    """Returns the training step of the released graph in PyTorch, which returns the loss."""
    import torch
    from coreference import released_tensors
    from coreference_peer import Resolver, Training

    resolver = build_resolver(case)
    batches = resolver.batches([document(case)], max_segments=NUM_SEGMENTS)
    torch.set_default_device(device)  # The peer creates tensors there.
    settings = resolver.get_config(), resolver.backbone.checkpoint_settings()
    training = Training(Resolver(released_tensors(resolver), *reversed(settings)).to(device))
    return lambda: training.step(batches.arrays.cut(0, 0))


# === Kernels ===


def profile(case):
    """Returns the kernels that take longest, with milliseconds and calls per step."""
    times, calls = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        start, stop = tracer(folder)
        actions = {WARM_UP_STEPS: start, WARM_UP_STEPS + PROFILED_STEPS: stop}
        trace = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda step, logs: actions.get(step, lambda: None)()
        )
        fit(case, WARM_UP_STEPS + PROFILED_STEPS + 1, trace)
        for name, milliseconds in events(folder):
            times[name] += milliseconds / PROFILED_STEPS
            calls[name] += 1 / PROFILED_STEPS
    most = times.most_common(NUM_KERNELS)
    return {
        "kernels_ms": sum(times.values()),
        "kernels": [(name, milliseconds, calls[name]) for name, milliseconds in most],
    }


def tracer(folder):
    """Returns functions that start and stop the profiler of JAX or PyTorch."""
    if keras.backend.backend() == "jax":
        import jax

        return lambda: jax.profiler.start_trace(folder), jax.profiler.stop_trace
    import torch

    profile = torch.profiler.profile()

    def stop():
        profile.stop()
        profile.export_chrome_trace(os.path.join(folder, "trace.json"))

    return profile.start, stop


def events(folder):
    """Returns names and milliseconds of a trace's kernels, or of its operations on a CPU."""
    traces = glob.glob(os.path.join(folder, "trace.json"))
    if traces:
        with open(traces[0]) as file:
            found = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
        on_gpu = [e for e in found if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        # Nested operations of a CPU count twice.
        on_cpu = [e for e in found if e.get("cat") == "cpu_op"]
        return [(e["name"], e["dur"] / 1e3) for e in on_gpu or on_cpu]
    import jax

    (path,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
    planes = list(jax.profiler.ProfileData.from_file(path).planes)
    on_gpu = [p for p in planes if p.name.startswith("/device:GPU")]
    return [
        (event.name, event.duration_ns / 1e6)
        for plane in on_gpu or planes
        for line in plane.lines
        if line.name.startswith("Stream" if on_gpu else "tf_XLA")
        for event in line.events
    ]


if __name__ == "__main__":
    main()
