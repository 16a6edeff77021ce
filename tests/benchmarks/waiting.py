"""What a user waits for besides the data: `--help`, a small file, kernels that are compiled first, many chunks.

python -m tests.benchmarks OUT_FOLDER --only waiting
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.chunks import plan
from pipeline.cluster import SMALL_BYTES, Placement
from pipeline.devices import find_devices
from pipeline.engine import CHUNK_BYTES, run
from pipeline.generate import generate
from pipeline.sources import Source, SourceFile, open_source
from tests.benchmarks.common import process
from workflows import WORKFLOWS
from workflows.histogram import HistogramOptions

TINY_CHUNK = 4096  # bytes: a chunk of which all the time is that of its scheduling


def commands(samples: int, repeats: int, folder: str) -> dict[str, float]:
    """Seconds of whole commands, the least of several: others compute on this machine, too."""
    path = str(Path(folder, "data.bin"))
    generate(path, samples)
    cache = Path(folder, "cache")
    gpus = find_devices().usable
    job = [sys.executable, "-m", "pipeline", "histogram", "-q", path]
    # Small files stay in one process; so that every GPU takes part in one, the limit is passed by.
    every = [sys.executable, "-c", "import sys, pipeline.cluster, pipeline.cli; pipeline.cluster.SMALL_BYTES = 0; "
             "pipeline.cli.main(sys.argv[1:])", *job[3:]]  # fmt: skip
    works: dict[str, list[str]] = {"help": [sys.executable, "-m", "pipeline", "--help"], "warm": job}
    if gpus > 1:
        works |= {"warm": every, "warm, one GPU": job}
    environment = os.environ | {
        "XDG_CACHE_HOME": str(cache), "PYTHONPYCACHEPREFIX": str(Path(folder, "pyc")), "PYTHONDONTWRITEBYTECODE": "",
    }  # fmt: skip
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            seconds = process(work, environment).seconds
            if turn:  # the first compiles, Python as well
                taken[name].append(seconds)
    found = {name: min(seconds) for name, seconds in taken.items()}
    if gpus:
        one = "warm, one GPU" if gpus > 1 else "warm"
        compiled = [process(job, environment | {"XDG_CACHE_HOME": str(Path(folder, f"empty{n}"))}).seconds
                    for n in range(min(repeats, 3))]  # fmt: skip
        found["compiling"] = min(compiled) - found[one]
    return found


def planning(chunks: int) -> dict[str, float]:
    """Seconds and megabytes of a plan of so many chunks, whose samples are checked in part."""
    nbytes = chunks * 2**28
    source = Source((SourceFile("/data.bin", 0, nbytes, nbytes, 0, (nbytes // 4,)),), np.dtype("<i4"))
    before, began = resident(), perf_counter()
    planned = plan(source, 2**28, "sample", 0)
    seconds = perf_counter() - began
    assert len(planned) == chunks
    return {"chunks": chunks, "seconds": seconds, "megabytes": (resident() - before) / 1e6}


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def scheduling(chunks: int, folder: str) -> dict[str, float]:
    """Seconds that a chunk costs besides its data, and those that a chunk of a large file takes here.

    Both by runs over sparse files in one process: of chunks so small that their data is read and counted in no time,
    and of whole ones. They overlap where cores are idle, which is not counted as a gain.
    """
    device = "gpu" if find_devices().usable else "cpu"
    path = str(Path(folder, "sparse.bin"))
    placement = Placement(device)

    def wall(number: int, nbytes: int) -> float:
        Path(path).write_bytes(b"")
        os.truncate(path, number * nbytes)
        source = open_source((path,))
        outcome = run(WORKFLOWS["histogram"], HistogramOptions(), source, placement=placement, verify="sample",
                      chunk_bytes=nbytes)  # fmt: skip
        return outcome.stages.wall / outcome.verdict.chunks

    large = CHUNK_BYTES[device][1] if chunks >= 10_000 else 2**20
    few = max(4, SMALL_BYTES // large)
    whole = min(wall(few, large) for _ in range(2))
    tiny = min(wall(chunks, TINY_CHUNK) for _ in range(2))
    return {"chunks": chunks, "seconds a chunk": tiny, "bytes of a whole chunk": large,
            "seconds a whole chunk": whole, "share": tiny / whole}  # fmt: skip


def measure(samples: int = 2**25, chunks: int = 10_000, planned: int = 100_000, repeats: int = 5) -> dict[str, Any]:
    """All of it on this machine."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        return {
            "samples": samples,
            "repeats": repeats,
            "planning": planning(planned),
            "command, seconds": commands(samples, repeats, folder),
            "scheduling": scheduling(chunks, folder),
        }
