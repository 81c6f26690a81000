import platform

import pytest
from absl.testing import flagsaver
from processes import run_python
from train_script import parse_flags

from keras_spanbert.recipes import run
from keras_spanbert.runs import cost, memory

PROGRAM = """
import resource

from keras_spanbert.runs.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        b"x" * 40_000_000  # Above glibc's highest threshold for blocks of their own.
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.once
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_reused_without_page_faults():
    before, after = map(int, run_python("-c", PROGRAM)[0].split())
    assert before > 10_000 > 100 * after


@pytest.mark.parametrize("has_gpu", [False, True])
def test_freed_memory_is_kept_only_on_the_cpu(has_gpu, monkeypatch):
    kept = []
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: kept.append(True))
    monkeypatch.setattr(cost, "has_accelerator", lambda: has_gpu)
    with flagsaver.flagsaver():
        parse_flags(["train.py", "--batch_size=2"])
        run._set_up()
    assert bool(kept) != has_gpu
