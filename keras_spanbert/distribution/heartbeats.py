"""Processes of PyTorch that notice when another one is gone without a word.

A process that ends closes its connections, which its peers see at once. A host that loses power or
its network closes none: the others would wait in an exchange for as long as that may take.
"""

import os
import sys
import threading
import time

_LEFT = b"left"


class Heartbeats:
    """Counts in a store that all processes share, and a look at those of the others.

    Where one has been silent for too long, says so and ends this process with
    exit code 1: its main thread may be waiting for the silent one.

    Args:
        store: `torch.distributed.Store`, of this thread alone.
        process: int. Number of this one.
        num_processes: int.
        dead_after: int. Seconds of silence.
    """

    def __init__(self, store, process: int, num_processes: int, dead_after: int):
        self._store = store
        self._process = process
        self._others = [i for i in range(num_processes) if i != process]
        self._dead_after = dead_after
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeats")
        self._thread.start()

    def stop(self) -> None:
        """Leaves: the others no longer wait for this process."""
        self._is_over.set()
        self._thread.join(self._dead_after)

    def _run(self):
        heard = {i: (None, time.monotonic()) for i in self._others}
        beat = 0
        while not self._is_over.is_set():
            beat += 1
            # A store that a dead host kept answers nothing, and counts as all of them.
            told = self._exchange(str(beat).encode())
            now = time.monotonic()
            for i, value in told.items():
                if value is not None and value != heard[i][0]:
                    heard[i] = (value, now)
            silent = [
                i
                for i, (value, since) in heard.items()
                if value != _LEFT and now - since > self._dead_after
            ]
            if silent and not self._is_over.is_set():
                print(
                    f"Process {self._process}: no word from process {silent[0]} for "
                    f"{self._dead_after} s (`dead_after`): stopping",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)
            self._is_over.wait(self._dead_after / 5)
        self._exchange(_LEFT)

    def _exchange(self, word):
        """Says `word` and returns those of the others, `None` where there is none."""
        told = {}
        try:
            self._store.set(_key(self._process), word)
            for i in self._others:
                is_there = self._store.check([_key(i)])
                told[i] = self._store.get(_key(i)) if is_there else None
        except RuntimeError:  # Of a connection.
            pass
        return told


def _key(process):
    return f"heartbeat/{process}"
