"""Heartbeats with which PyTorch processes notice that another one has died silently.

A process that ends closes its connections, which the others see at once. A host that loses power
or its network does not: without heartbeats, the others would wait for it indefinitely.
"""

import os
import sys
import threading
import time

_LEFT = b"left"


class Heartbeats:
    """Sends heartbeats to a shared store and watches those of the other processes.

    If another process has been silent for too long, the heartbeat thread prints a
    message and ends this process with exit code 1. It does not raise an
    error instead, because the main thread may be waiting for the other process.

    Args:
        store: `torch.distributed.Store`. Only the heartbeat thread may use it.
        process: int. The index of this process.
        num_processes: int.
        dead_after: int. Seconds of silence after which a process is dead.
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
        """Signs off, so that the others no longer expect heartbeats from this process."""
        self._is_over.set()
        self._thread.join(self._dead_after)

    def _run(self):
        heard = {i: (None, time.monotonic()) for i in self._others}
        beat = 0
        while not self._is_over.is_set():
            beat += 1
            # If the host of the store is dead, nothing answers, and all processes seem silent.
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
                    f"Process {self._process} stops: no heartbeat from process {silent[0]} for "
                    f"{self._dead_after} s (`dead_after`)",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)
            self._is_over.wait(self._dead_after / 5)
        self._exchange(_LEFT)

    def _exchange(self, word):
        """Writes `word` and returns the words of the others, `None` for those who wrote none."""
        told = {}
        try:
            self._store.set(_key(self._process), word)
            for i in self._others:
                is_there = self._store.check([_key(i)])
                told[i] = self._store.get(_key(i)) if is_there else None
        except RuntimeError:  # The connection failed.
            pass
        return told


def _key(process):
    return f"heartbeat/{process}"
