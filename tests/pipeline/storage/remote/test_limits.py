"""Memory that reading objects takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.remote.ahead import AHEAD_BYTES, PART_BYTES
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.web_server import WebServer
from tests.pipeline.storage.remote.samples import Repeated, npy

ROOT = Path(__file__).parents[4]
PEAK = """
import json, resource, sys
import pipeline
job, item, *rest = sys.argv[1:]
if job == "reduce":
    values = pipeline.run("reduce", item, op="sum", dtype="int32", device="cpu", verify="full").values
    result = int(values["sum"])
else:
    pipeline.run("transpose", item, output=rest[0], device="cpu", memory_limit=int(rest[1]))
    result = 0
print(json.dumps([result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def test_requests_ahead_are_bounded(server: WebServer) -> None:
    """A reader that stops reading stops asking."""
    server.files["/large"] = Repeated(b"", b"\1", 40 * PART_BYTES)
    (chunk,) = plan(open_source((server.url("/large"),), "uint8"), 2**40, "off", 0)
    blocks = read_blocks(chunk, Timeline())
    next(blocks)
    time.sleep(0.5)
    assert 2 <= len(server.requests) <= AHEAD_BYTES // PART_BYTES + 2
    blocks.close()


def peak(*arguments: str) -> list[int]:
    """Result and most memory, in KiB, of a process that runs a job."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments], text=True, capture_output=True, check=True, cwd=ROOT
    )
    values: list[int] = json.loads(done.stdout)
    return values


def test_object_larger_than_memory(server: WebServer) -> None:
    """1 GiB takes 256 MiB more than a few bytes at most, also where each thread has requests ahead."""
    numbers = np.arange(2**16, dtype="<i4")
    server.files["/small"] = numbers.tobytes()
    server.files["/large"] = Repeated(b"", numbers.tobytes(), 2**30)
    base = peak("reduce", server.url("/small"))
    total, most = peak("reduce", server.url("/large"))
    assert base[0] == numbers.sum() and total == numbers.sum(dtype="i8") * (2**30 // numbers.nbytes)
    assert most < base[1] + 2**18


def test_array_job_under_a_memory_limit(server: WebServer, tmp_path: Path) -> None:
    """An array ten times as large as the limit."""
    shape, limit = (20_000, 4000), 32_000_000
    header_ = npy(np.empty((0, 4000), "<f4")).replace(b"(0, 4000), }    ", b"(20000, 4000), }")
    rows = np.arange(4000, dtype="<f4")
    server.files["/large.npy"] = Repeated(header_, rows.tobytes(), 20_000 * 16_000)
    server.files["/small.npy"] = npy(np.zeros((2, 4000), "<f4"))
    base = peak("transpose", server.url("/small.npy"), str(tmp_path / "s.npy"), str(limit))
    most = peak("transpose", server.url("/large.npy"), str(tmp_path / "t.npy"), str(limit))
    written = np.load(tmp_path / "t.npy", mmap_mode="r")
    assert written.shape == shape[::-1] and (written[:, ::999] == rows[:, None]).all()
    assert most[1] < base[1] + 2**18  # the mapped output counts
