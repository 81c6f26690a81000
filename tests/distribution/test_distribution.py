"""Training on several devices and processes equals training on one."""

import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
from comparisons import assert_close
from forked import Forked
from train_script import run_in_process

import keras_spanbert as ks
from keras_spanbert.distribution import Distribution
from keras_spanbert.files import read_csv

ROOT = pathlib.Path(__file__).parent.parent.parent
SCRIPT = str(pathlib.Path(__file__).parent / "distributed_run.py")
BACKEND = keras.backend.backend()
TIMEOUT = 240
TWO_DEVICES = "--xla_force_host_platform_device_count=2"
# Flags of a run of train.py.
FLAGS = [
    "--vocabulary_size=200", "--size=tiny", "--sequence_length=16", "--batch_size=4",
    "--eval_steps=1", "--held_out=0.3",
]  # fmt: skip
WORDS = [f"{a}{b}" for a in "bcdfgh" for b in "aeiou"]
several_processes = pytest.mark.skipif(
    BACKEND == "tensorflow", reason="TensorFlow trains in one process"
)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    generator = np.random.default_rng(0)
    for i, size in enumerate([900, 50, 300, 40, 700]):
        (folder / f"{i}.txt").write_text(" ".join(generator.choice(WORDS, size)))
    return str(folder / "*.txt")


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def start(arguments, **environment):
    popen = subprocess.Popen if arguments[0] in ("-m", "sh") else Forked
    return popen(
        arguments if arguments[0] == "sh" else [sys.executable, *arguments], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": BACKEND, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def launch(arguments, count=2, **environment):
    """Starts processes that train together, on PyTorch with the variables of torchrun."""
    port = str(free_port())
    if BACKEND == "torch":
        job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
        names = ["RANK", "LOCAL_RANK"]
    else:
        job = {
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}",
            "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
        }
        names = ["KERAS_DISTRIBUTION_PROCESS_ID"]
    job.update(environment)
    return [start(arguments, **dict.fromkeys(names, str(i)), **job) for i in range(count)]


def finish(processes):
    """Returns exit codes and outputs, and ends all processes."""
    try:
        ends = time.monotonic() + TIMEOUT
        outputs = [
            process.communicate(timeout=max(1.0, ends - time.monotonic()))[0]
            for process in processes
        ]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return [process.returncode for process in processes], "\n".join(outputs)


def results(folder, processes):
    codes, output = finish(processes)
    assert not any(codes), output
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.fixture(scope="module")
def alone(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    runpy.run_path(SCRIPT)["pretrain"]("none", texts, str(folder))
    result = json.loads((folder / "0.json").read_text())
    assert result["replicas"] == 1 and len(result["history"]["loss"]) == 10
    return result


def wait_for(path):
    """Waits until a file of a run exists."""
    ends = time.monotonic() + TIMEOUT
    while not path.exists() and time.monotonic() < ends:
        time.sleep(0.05)
    assert path.exists()


def assert_same_history(runs, num_evaluations):
    """Checks that two runs of train.py have the same losses and metrics in their evaluations."""
    histories = [read_csv(run / "history.csv") for run in runs]
    assert [len(rows) for rows in histories] == [num_evaluations] * 2
    for mine, theirs in zip(*histories):
        for name in ["loss", "mlm_accuracy", "sbo_cross_entropy", "val_loss"]:
            assert float(mine[name]) == pytest.approx(float(theirs[name]), abs=1e-4), name


def assert_equal(result, alone):
    assert_close([result["history"], result["weights"]], [alone["history"], alone["weights"]], 1e-4)


def two_devices(arguments):
    """Starts one process with two devices, or two processes on PyTorch."""
    if BACKEND == "torch":
        return launch(arguments)
    if BACKEND == "tensorflow":
        return [start(arguments, LOGICAL_CPUS="2")]
    return [start(arguments, XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} {TWO_DEVICES}")]


def test_two_devices_equal_one_with_a_padded_last_batch(tmp_path):
    for name in ["alone", "together"]:
        (tmp_path / name).mkdir()
    runpy.run_path(SCRIPT)["fine_tune"]("none", str(tmp_path / "alone"))
    alone = json.loads((tmp_path / "alone" / "0.json").read_text())
    folder = tmp_path / "together"
    for result in results(folder, two_devices([SCRIPT, "fine_tune", "auto", str(folder)])):
        assert (alone.pop("replicas", 1), result.pop("replicas")) == (1, 2)
        assert result.keys() == alone.keys()
        for name in alone:
            assert_equal(result[name], alone[name])


@pytest.mark.once  # With PyTorch, a process drives one device.
def test_train_script_on_two_devices_equals_one(texts, tmp_path, monkeypatch):
    flags = [
        f"--train_data={texts}", *FLAGS, "--steps=3", "--eval_every=2", "--dropout=0",
        # Biases of keys have no gradient. Sharper attention has larger rounding errors there, and
        # AdamW scales them up.
        "--learning_rate=1e-2", "--noneighbor_attention",
    ]  # fmt: skip
    both, one = tmp_path / "both", tmp_path / "one"
    codes, out = finish(two_devices([SCRIPT, "train", f"--output={both}", *flags]))
    assert codes == [0], out
    assert "multiple of the 2 replicas. Received: batch_size=5" in out and "code 2" in out
    sizes = {**ks.SpanBertBackbone.SIZES["tiny"], **runpy.run_path(SCRIPT)["SIZES"]}
    monkeypatch.setitem(ks.SpanBertBackbone.SIZES, "tiny", sizes)
    run_in_process(f"--output={one}", *flags, "--distribution=none")
    assert_same_history([both, one], 2)
    models = [ks.SpanBertPretrainer.from_preset(str(folder)) for folder in [both, one]]
    assert_close(*(model.get_weights() for model in models), 1e-4)
    assert models[0].fill("be [MASK] ce")[0][0]["text"]


def exchanged_shapes(dumps):
    """Returns the shapes that devices exchange in a step, from a dump of the JAX program."""
    path, *_ = dumps.glob("*jit_train_step*after_optimizations.txt")
    exchange = r"= (.*) (?:all-|reduce-scatter|collective-)[a-z-]*\("
    lines = re.findall(exchange, path.read_text())
    return {
        tuple(int(size) for size in shape.split(","))
        for line in lines
        for shape in re.findall(r"\[([\d,]+)\]", line)
    }


@several_processes
@pytest.mark.parametrize(("mode", "dies"), [("data", "frozen"), ("model", "by an error")])
def test_two_processes_equal_one_and_stop_if_one_dies(mode, dies, texts, alone, tmp_path):
    if mode == "model" and BACKEND != "jax":
        pytest.skip("only JAX shards a model over devices")
    dumps = tmp_path / "dumps"
    dump = f"--xla_dump_to={dumps} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*train_step"
    arguments = [SCRIPT, "pretrain", mode, texts, str(tmp_path), dies]
    if mode == "data":
        processes = launch(arguments)
    else:
        flags = f"{os.environ.get('XLA_FLAGS', '')} {dump}"
        # Cached programs are not dumped.
        processes = launch(arguments, XLA_FLAGS=flags, JAX_ENABLE_COMPILATION_CACHE="false")
    frozen = processes[1:] if dies == "frozen" else []
    try:
        codes, output = finish([process for process in processes if process not in frozen])
        assert all(codes) and all(process.poll() is None for process in frozen), output
        assert time.time() - (tmp_path / "died").stat().st_mtime < 60
        if BACKEND == "torch":
            assert "Timed out waiting" in output and "20000ms" in output
    finally:
        for process in frozen:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    # Earlier checkpoints stay valid.
    checkpoint = ks.TrainingCheckpoint(str(tmp_path / "checkpoints"), 5)
    assert checkpoint.step == 10
    checkpoint.close()
    both = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2)]
    for result in both:
        assert_equal(result, alone)
    assert both[0]["weights"] == both[1]["weights"]
    # Only the first process writes.
    assert os.path.basename(both[0]["checkpoint"]) == "step-10" and both[1]["checkpoint"] is None
    if mode == "data":
        # One process resumes from the middle.
        checkpoint = tmp_path / "checkpoints" / "step-5"
        (found,) = resume(checkpoint, tmp_path / "later", texts, "none")
        assert_equal_after_resuming(found, alone)
        # Each row occurs once per epoch.
        batches = [first + second for first, second in zip(both[0]["rows"], both[1]["rows"])]
        assert batches == alone["rows"] and len(batches) > 10
        assert not both[0]["sharded"]
    else:
        assert both[0]["rows"] == both[1]["rows"] == alone["rows"]
        names = "".join(both[0]["sharded"])
        for name in ["token_embedding", "query", "feedforward", "mlm_head", "sbo_head"]:
            assert name in names
        # Logits, 8 rows of 4 masked tokens over 35 tokens, are not exchanged.
        shapes = exchanged_shapes(dumps)
        assert (8, 12, 8) in shapes  # Hidden states.
        assert not [s for s in shapes if s[-1] in (18, 35, 36) and np.prod(s) >= 8 * 4 * 18]
        check_split_model(tmp_path / "checkpoints" / "step-5", texts, alone)


def resume(checkpoint, output, texts, mode):
    """Returns the results of one or two processes that resume from a checkpoint."""
    shutil.copytree(checkpoint, output / "checkpoints" / checkpoint.name)
    if mode == "none":
        runpy.run_path(SCRIPT)["pretrain"](mode, texts, str(output))
        return [json.loads((output / "0.json").read_text())]
    return results(output, launch([SCRIPT, "pretrain", mode, texts, str(output)]))


def assert_equal_after_resuming(found, alone):
    history = found["history"]
    assert len(history["loss"]) == 5
    last = {name: values[-len(history[name]) :] for name, values in alone["history"].items()}
    assert_equal(found, {**alone, "history": last})


def check_split_model(checkpoint, texts, alone):
    """Checks that a checkpoint of a split model is one file, and resumes with one and two."""
    assert sorted(os.listdir(checkpoint)) == ["SHA256SUMS", "arrays.npz", "state.json"]
    with np.load(checkpoint / "arrays.npz") as arrays:
        model = sum(array.size for name, array in arrays.items() if name.startswith("model"))
    assert model >= sum(len(weight) for weight in alone["weights"])
    for mode in ["none", "model"]:
        for found in resume(checkpoint, checkpoint.parent.parent / mode, texts, mode):
            assert_equal_after_resuming(found, alone)


def shell_loops(flags):
    """Starts the shell loops of docs/resuming.md for JAX, one per process."""
    guide = (ROOT / "docs" / "resuming.md").read_text()
    loop = guide[guide.index("export KERAS_BACKEND=jax") :].split("```")[0]
    of_the_guide = "--steps=1600 --output=/shared/speeches"
    assert loop.count(of_the_guide) == 1
    loop = loop.replace(of_the_guide, shlex.join(flags)).replace("python", sys.executable)
    loop = loop.replace("host0:1234", f"127.0.0.1:{free_port()}")
    numbers = ["PROCESS_ID=0", "PROCESS_ID=1"]
    assert loop.count(numbers[0]) == 1
    return [start(["sh", "-c", loop.replace(numbers[0], number)]) for number in numbers]


@several_processes
def test_processes_are_restarted_and_resume(texts, tmp_path):
    output, uninterrupted = tmp_path / "run", tmp_path / "uninterrupted"
    flags = [
        f"--train_data={texts}", *FLAGS, "--steps=40", "--eval_every=40",
        "--checkpoint_every=5", "--resume",
    ]  # fmt: skip
    train = ["train.py", f"--output={output}", *flags]
    if BACKEND == "torch":
        torchrun = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--max-restarts=1"]
        runs = [start([*torchrun, f"--master_port={free_port()}", *train])]
    else:
        runs = shell_loops(train[1:])
    try:
        wait_for(output / "checkpoints" / "step-10")
        parents = ",".join(str(run.pid) for run in runs)
        workers = subprocess.run(["pgrep", "-P", parents], capture_output=True, text=True)
        os.kill(int(workers.stdout.split()[0]), signal.SIGKILL)
    finally:
        codes, text = finish(runs)
    assert not any(codes), text
    (step,) = re.findall(r"Continuing from step (\d+)", text)
    assert int(step) >= 10
    assert json.loads((output / "metrics.json").read_text())["steps"] == 40
    run_in_process(f"--output={uninterrupted}", *flags, "--distribution=none")
    assert_same_history([output, uninterrupted], 1)


@several_processes
def test_all_stop_if_the_first_finds_an_error(texts, tmp_path):
    (tmp_path / "something").write_text("")
    flags = [f"--train_data={texts}", f"--output={tmp_path}", "--batch_size=4"]
    codes, output = finish(launch(["train.py", *flags]))
    assert all(codes), output
    assert "`--output` must be new or empty" in output


@several_processes
def test_sigterm_stops_all_processes_after_the_same_step(texts, tmp_path):
    output = tmp_path / "run"
    flags = [
        f"--train_data={texts}", f"--output={output}", *FLAGS, "--eval_every=1000",
        "--checkpoint_every=5",
    ]  # fmt: skip
    processes = launch(["train.py", *flags, "--steps=100000"])
    wait_for(output / "checkpoints" / "step-5")
    for process in processes:
        process.send_signal(signal.SIGTERM)
    codes, text = finish(processes)
    assert codes == [143, 143], text
    step = json.loads((output / "metrics.json").read_text())["steps"]
    assert step >= 5 and (output / "checkpoints" / f"step-{step}").is_dir()


TWO_WORKERS = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
TWO_PROCESSES = {"KERAS_DISTRIBUTION_NUM_PROCESSES" if BACKEND == "jax" else "WORLD_SIZE": "2"}
NOT_ALONE = ("none", TWO_PROCESSES, "`mode` must not be none with several processes")
UNSUPPORTED = {
    "tensorflow": [
        ("model", {}, "KERAS_BACKEND=jax"),
        ("data", {"TF_CONFIG": json.dumps(TWO_WORKERS)}, "single host with TensorFlow.*jax or tor"),
    ],
    "jax": [NOT_ALONE, ("data", TWO_PROCESSES, "JOB_ADDRESSES must be set with .*=2")],
    "torch": [
        ("model", {}, "KERAS_BACKEND=jax"),
        ("data", {}, "start the processes with torchrun"),
        NOT_ALONE,
        ("auto", TWO_PROCESSES, "'auto' without the variable RANK"),
    ],
}


@pytest.mark.parametrize(
    ("mode", "environment", "message"),
    [("all", {}, "`mode` must be one of auto, none, data, model"), *UNSUPPORTED[BACKEND]],
)
def test_unsupported_by_the_backend(mode, environment, message, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        ks.distribute(mode)


@pytest.mark.parametrize("value", [0, -1.5, "30"])
def test_dead_after_is_checked(value):
    with pytest.raises(ValueError, match=f"`dead_after` must be .*Received: dead_after={value!r}"):
        ks.distribute(dead_after=value)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"batch_size": 4}, "must have batches of one size to be split"),
        ({"batch_size": 5, "drop_remainder": True}, "multiple of 2, .* shape \\(5,\\)"),
    ],
)
def test_batches_that_cannot_be_split_are_refused(batch, message):
    import tensorflow as tf

    dataset = tf.data.Dataset.range(10).batch(**batch)
    with pytest.raises(ValueError, match=message):
        Distribution(num_parts=2).split(dataset)


@pytest.mark.once  # Other backends clip as with one process.
def test_clipping_over_replicas_with_missing_gradients_and_loss_scale(tmp_path):
    (found,) = results(tmp_path, two_devices([SCRIPT, "clip", str(tmp_path)]))
    # The first moment is a tenth of the clipped sums of the gradients, 1 + 2 and 0 + 4.
    expected = {
        "norm of all": [0.06, 0.08, 0.0],
        "norm of each": [0.1, 0.1, 0.0],
        "value": [0.05, 0.05, 0.0],
        "norm of a group": [0.06, 0.08, 0.0],
        "nothing": [0.3, 0.4, 0.0],
    }
    assert found == {name: pytest.approx(values) for name, values in expected.items()}
