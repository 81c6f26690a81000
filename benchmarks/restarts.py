"""How long is a run of two processes held up where one of them is killed, and does it end the same?

    KERAS_BACKEND=torch python benchmarks/restarts.py

Pretrains with two processes twice: in peace, and with one of them, drawn anew each time, killed by
SIGKILL at random moments. On PyTorch `torchrun --max-restarts` starts them again, on JAX a shell's
loop for each process, as docs/resuming.md has it. Prints, of each kill, the seconds until both are
new and there is a checkpoint of a later step (`--checkpoint_every` steps are in them), and the
largest difference of history and weights of the two runs. Fails where they differ by more than
1e-4.

Flags behind `--` go to train.py.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from resume import TRAIN, compare

PROCESSES = 2
# Of what should take less than two.
LIMIT_SECONDS = 600


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
        with job(folder / "peace", flags, 0) as run:
            run.wait()
        with job(folder / "killed", flags, args.kills) as run:
            held_up = [kill(run, moments) for _ in range(args.kills)]
            run.wait()
        difference = compare(folder / "peace", folder / "killed")
    print(
        f"{os.environ['KERAS_BACKEND']}: killed {len(held_up)} times, held up for "
        f"{statistics.median(held_up):.1f} s, at most {max(held_up):.1f}"
    )
    print(f"largest difference of history and weights: {difference:.2g}")
    if not difference <= 1e-4:
        sys.exit("The runs differ")


def kill(run, moments) -> float:
    """Kills a process once there is a new checkpoint; the seconds until the run has gone on."""
    step = run.newest()
    run.wait_until(lambda: run.newest() > step)
    time.sleep(moments.uniform(0.0, 3.0))
    processes = run.processes()
    os.kill(moments.choice(processes), signal.SIGKILL)
    began = time.monotonic()
    # What was being written may yet become whole.
    run.wait_until(lambda: len(set(run.processes()) - set(processes)) == PROCESSES)
    before = run.newest()
    run.wait_until(lambda: run.newest() > before)
    seconds = time.monotonic() - began
    print(f"killed behind step {before}: going on after {seconds:.1f} s", flush=True)
    return seconds


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


class Job:
    """Programs that start a run's processes, and start them again."""

    def __init__(self, output, commands):
        self.output = output
        self.log = output.with_suffix(".log")
        with open(self.log, "w") as log:
            self.programs = [
                subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                for command in commands
            ]

    def processes(self) -> list[int]:
        """Those that train, while all do."""
        command = ["pgrep", "-f", str(TRAIN), "-P", ",".join(str(p.pid) for p in self.programs)]
        return [int(pid) for pid in subprocess.run(command, capture_output=True).stdout.split()]

    def newest(self) -> int:
        """The step of the newest checkpoint that is whole, or 0."""
        steps = [path.name.removeprefix("step-") for path in self.output.glob("checkpoints/step-*")]
        return max((int(step) for step in steps if step.isdigit()), default=0)

    def wait_until(self, condition):
        ends = time.monotonic() + LIMIT_SECONDS
        while not condition():
            if all(program.poll() is not None for program in self.programs):
                sys.exit(f"{self.log.read_text()}\nThe run ended before: --steps may be too few")
            if time.monotonic() > ends:
                sys.exit(f"{self.log.read_text()}\nNothing for {LIMIT_SECONDS} s")
            time.sleep(0.05)

    def wait(self):
        for program in self.programs:
            if program.wait():
                sys.exit(f"{self.log.read_text()}\nExit code {program.returncode}")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        trained = self.processes()  # torchrun's have groups of their own.
        for program in self.programs:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
        for pid in trained:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class TorchJob(Job):
    """torchrun and what it starts."""

    def __init__(self, output, flags, restarts):
        torchrun = [
            sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={PROCESSES}",
            f"--max-restarts={restarts}", f"--master_port={free_port()}",
        ]  # fmt: skip
        command = [*torchrun, str(TRAIN), "--resume", f"--output={output}", *flags]
        super().__init__(output, [command])


class JaxJob(Job):
    """A loop for each process."""

    def __init__(self, output, flags, restarts):
        train = shlex.join([sys.executable, str(TRAIN), "--resume", f"--output={output}", *flags])
        job = (
            f"KERAS_DISTRIBUTION_JOB_ADDRESSES=127.0.0.1:{free_port()} "
            f"KERAS_DISTRIBUTION_NUM_PROCESSES={PROCESSES}"
        )
        super().__init__(
            output,
            [
                [
                    "sh",
                    "-c",
                    f"until {job} KERAS_DISTRIBUTION_PROCESS_ID={i} {train}; do sleep 1; done",
                ]
                for i in range(PROCESSES)
            ],
        )


if __name__ == "__main__":
    main()
