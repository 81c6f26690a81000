"""How long does a killed process delay a run of two, and is the result the same?

    KERAS_BACKEND=torch python benchmarks/restarts.py

Pretrains twice with two processes: once uninterrupted, and once with a random process killed by
SIGKILL at random moments. The processes are restarted as described in docs/resuming.md: by
`torchrun --max-restarts` on PyTorch, and by a shell loop for each process on JAX. For each kill,
prints the seconds until both processes have been restarted and a later checkpoint exists (this
includes `--checkpoint_every` steps). Also prints the largest difference between the histories and
weights of the two runs, and fails if it is above 1e-4.

Flags after `--` are passed to train.py.
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
# Timeout. Each wait should take less than two seconds.
LIMIT_SECONDS = 600


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="for the moments and processes")
    parser.add_argument("flags", nargs="*", help="flags of train.py")
    args = parser.parse_args()
    flags = args.flags or [
        "--size=tiny", "--batch_size=16", "--steps=600", "--checkpoint_every=10",
        "--eval_every=200", "--eval_steps=2",
    ]  # fmt: skip
    job = {"torch": TorchJob, "jax": JaxJob}[os.environ.get("KERAS_BACKEND")]
    moments = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with job(folder / "uninterrupted", flags, 0) as run:
            run.wait()
        with job(folder / "killed", flags, args.kills) as run:
            delays = [kill(run, moments) for _ in range(args.kills)]
            run.wait()
        difference = compare(folder / "uninterrupted", folder / "killed")
    print(
        f"{os.environ['KERAS_BACKEND']}: killed {len(delays)} times, median delay "
        f"{statistics.median(delays):.1f} s, maximum {max(delays):.1f} s"
    )
    print(f"largest difference between histories and weights: {difference:.2g}")
    if not difference <= 1e-4:
        sys.exit("The runs differ")


def kill(run, moments) -> float:
    """Kills a process after a new checkpoint. Returns the seconds until the run has resumed."""
    step = run.newest()
    run.wait_until(lambda: run.newest() > step)
    time.sleep(moments.uniform(0.0, 3.0))
    processes = run.processes()
    os.kill(moments.choice(processes), signal.SIGKILL)
    began = time.monotonic()
    # A checkpoint that was being written may still be completed.
    run.wait_until(lambda: len(set(run.processes()) - set(processes)) == PROCESSES)
    before = run.newest()
    run.wait_until(lambda: run.newest() > before)
    seconds = time.monotonic() - began
    print(f"killed after step {before}: resumed in {seconds:.1f} s", flush=True)
    return seconds


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


class Job:
    """Programs that start and restart the processes of a run."""

    def __init__(self, output, commands):
        self.output = output
        self.log = output.with_suffix(".log")
        with open(self.log, "w") as log:
            self.programs = [
                subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                for command in commands
            ]

    def processes(self) -> list[int]:
        """Returns the ids of the processes that train."""
        command = ["pgrep", "-f", str(TRAIN), "-P", ",".join(str(p.pid) for p in self.programs)]
        return [int(pid) for pid in subprocess.run(command, capture_output=True).stdout.split()]

    def newest(self) -> int:
        """Returns the step of the newest complete checkpoint, or 0."""
        steps = [path.name.removeprefix("step-") for path in self.output.glob("checkpoints/step-*")]
        return max((int(step) for step in steps if step.isdigit()), default=0)

    def wait_until(self, condition):
        ends = time.monotonic() + LIMIT_SECONDS
        while not condition():
            if all(program.poll() is not None for program in self.programs):
                sys.exit(f"{self.log.read_text()}\nThe run ended too early. Increase --steps.")
            if time.monotonic() > ends:
                sys.exit(f"{self.log.read_text()}\nNo progress for {LIMIT_SECONDS} s")
            time.sleep(0.05)

    def wait(self):
        for program in self.programs:
            if program.wait():
                sys.exit(f"{self.log.read_text()}\nExit code {program.returncode}")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        trained = self.processes()  # torchrun starts them in their own process groups.
        for program in self.programs:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
        for pid in trained:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class TorchJob(Job):
    """Processes started by torchrun."""

    def __init__(self, output, flags, restarts):
        torchrun = [
            sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={PROCESSES}",
            f"--max-restarts={restarts}", f"--master_port={free_port()}",
        ]  # fmt: skip
        command = [*torchrun, str(TRAIN), "--resume", f"--output={output}", *flags]
        super().__init__(output, [command])


class JaxJob(Job):
    """Processes started by a shell loop each."""

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
