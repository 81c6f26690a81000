"""How long is a run of two processes held up where one of them is killed, and does it end the same?

    KERAS_BACKEND=torch python benchmarks/restarts.py

Pretrains with two processes twice: in peace, and with one of them, drawn anew each time, killed by
SIGKILL at random moments. On PyTorch `torchrun --max-restarts` starts them again, on JAX a loop for
each process that starts it again until it ends well. Prints, of each kill, the seconds until there
is a checkpoint of a later step (`--checkpoint_every` steps are in them), and the largest
difference of history and weights of the two runs. Fails where they differ by more than 1e-4.

Flags behind `--` go to train.py.
"""

import argparse
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from resume import TRAIN, compare

PROCESSES = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of moments and processes")
    parser.add_argument("flags", nargs="*", help="of train.py")
    args = parser.parse_args()
    flags = args.flags or [
        "--size=tiny", "--batch_size=16", "--steps=600", "--checkpoint_every=10",
        "--eval_every=200", "--eval_steps=2",
    ]  # fmt: skip
    job = {"torch": TorchJob, "jax": JaxJob}[os.environ.get("KERAS_BACKEND")]
    moments = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job(folder / "peace", flags, 0).wait()
        run = job(folder / "killed", flags, args.kills)
        held_up = []
        for _ in range(args.kills):
            wait_for(run, folder / "killed", (newest(folder / "killed") or 0) + 1)
            time.sleep(moments.uniform(0.0, 3.0))
            before = newest(folder / "killed")
            victim = moments.choice(run.processes())
            os.kill(victim, signal.SIGKILL)
            began = time.monotonic()
            wait_for(run, folder / "killed", before + 1)
            held_up.append(time.monotonic() - began)
            print(f"killed behind step {before}: going on after {held_up[-1]:.1f} s", flush=True)
        run.wait()
        difference = compare(folder / "peace", folder / "killed")
    print(
        f"{os.environ['KERAS_BACKEND']}: killed {len(held_up)} times, held up for "
        f"{statistics.median(held_up):.1f} s, at most {max(held_up):.1f}"
    )
    print(f"largest difference of history and weights: {difference:.2g}")
    if not difference <= 1e-4:
        sys.exit("The runs differ")


def newest(output) -> int | None:
    """The step of the newest checkpoint that is whole."""
    steps = [path.name.removeprefix("step-") for path in output.glob("checkpoints/step-*")]
    return max((int(step) for step in steps if step.isdigit()), default=None)


def wait_for(run, output, step):
    while (newest(output) or 0) < step:
        if run.is_over():
            sys.exit("The run was faster: more --steps")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


class TorchJob:
    """torchrun and what it starts."""

    def __init__(self, output, flags, restarts):
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={PROCESSES}",
                f"--max-restarts={restarts}", f"--master_port={free_port()}", str(TRAIN),
                "--resume", f"--output={output}", *flags,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def processes(self) -> list[int]:
        while True:
            found = subprocess.run(
                ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True
            ).stdout.split()
            if len(found) == PROCESSES:
                return [int(pid) for pid in found]

    def is_over(self) -> bool:
        return self.process.poll() is not None

    def wait(self):
        if self.process.wait():
            sys.exit(f"torchrun ended with exit code {self.process.returncode}")


class JaxJob:
    """A loop for each process."""

    def __init__(self, output, flags, restarts):
        self.command = [sys.executable, str(TRAIN), "--resume", f"--output={output}", *flags]
        self.address = f"127.0.0.1:{free_port()}"
        self.running = {}
        self.loops = [
            threading.Thread(target=self._loop, args=[i, restarts], daemon=True)
            for i in range(PROCESSES)
        ]
        for loop in self.loops:
            loop.start()

    def _loop(self, number, restarts):
        for _ in range(restarts + 1):
            self.running[number] = subprocess.Popen(
                self.command,
                env={
                    **os.environ,
                    "KERAS_DISTRIBUTION_JOB_ADDRESSES": self.address,
                    "KERAS_DISTRIBUTION_NUM_PROCESSES": str(PROCESSES),
                    "KERAS_DISTRIBUTION_PROCESS_ID": str(number),
                },
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if not self.running[number].wait():
                return

    def processes(self) -> list[int]:
        while not all(process.poll() is None for process in self.running.values()):
            time.sleep(0.05)
        return [process.pid for process in self.running.values()]

    def is_over(self) -> bool:
        return not any(loop.is_alive() for loop in self.loops)

    def wait(self):
        for loop in self.loops:
            loop.join()
        if any(process.returncode for process in self.running.values()):
            sys.exit("A process was started again too often")


if __name__ == "__main__":
    main()
