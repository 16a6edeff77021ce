"""Order statistics of a file ten times as large as the memory that finding them may take, with every bucket hit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PART, PARTS = 2**24, 20  # samples that repeat, and how often: the distinct ones are enough to hit all 2^16 buckets
PEAK = """
import json, os, re, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # each thread holds blocks of its own
import pipeline
job, path, name, value = sys.argv[1:]
result = pipeline.run(job, path, dtype="float32", device="cpu", verify="full", **{name: value})
peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
values = result.values.values() if job == "reduce" else result.values
print(json.dumps([list(map(float, values)), peak * 1024]))
"""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    # All patterns of the upper 16 bits but those of NaN, so that every bucket of the first pass is hit.
    patterns = np.arange(PART, dtype=np.uint32) * np.uint32(2**8 + 1)
    part = patterns.view(np.float32)
    part = np.where(np.isfinite(part), part, np.float32(1))
    path = tmp_path_factory.mktemp("memory") / "all.bin"
    with path.open("wb") as file:
        for _ in range(PARTS):
            file.write(part.tobytes())
    assert len(np.unique(part.view(np.uint32) >> 16)) >= 2**16 - 2 * 2**7 - 2
    return path, part


@pytest.mark.parametrize(
    ("job", "option", "asked", "q"),
    [("quantile", "q", "0.01,0.5,0.99", (0.01, 0.5, 0.99)), ("reduce", "op", "q0.25,median,q0.75", (0.25, 0.5, 0.75))],
)
def test_a_tenth_of_the_file(
    job: str, option: str, asked: str, q: tuple[float, ...], samples: tuple[Path, np.ndarray]
) -> None:
    path, part = samples
    words = [sys.executable, "-c", PEAK, job, str(path), option, asked]
    done = subprocess.run(words, text=True, capture_output=True, check=True, cwd=ROOT, timeout=300)
    values, peak = json.loads(done.stdout)
    assert peak <= path.stat().st_size // 10
    # A rank of the file is that of the part it repeats; of even numbers the mean of two is rounded once.
    ordered = np.sort(part)
    length = PART * PARTS
    for fraction, value in zip(q, values, strict=True):
        place = (length - 1) * fraction
        low, high = ordered[int(np.floor(place)) // PARTS], ordered[min(length - 1, int(np.ceil(place))) // PARTS]
        assert low <= value <= high
