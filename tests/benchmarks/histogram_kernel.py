"""The histogram kernel on one GPU, compared with the read stream, CuPy's histograms and CUB's.

python -m tests.benchmarks.histogram_kernel OUT.json
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kernels.histogram.gpu import histogram
from kernels.histogram.reference import histogram_reference
from kernels.study.roofline import read_stream
from tests.benchmarks.common import device_medians, save
from tests.benchmarks.cub import cub_histogram
from tests.benchmarks.distributions import DISTRIBUTIONS, OF_FLOATS, samples_of
from workflows.histogram import HistogramOptions

Case = tuple[str, int, tuple[float, float] | None]  # dtype, bins, range; None: irregular edges over [0, 1024)
CASES: tuple[Case, ...] = (
    ("int32", 16, (0, 1024)), ("int32", 256, (0, 1024)), ("int32", 1024, (0, 1024)), ("int32", 1000, (0, 1024)),
    ("int32", 2048, (-5000, 91000)), ("int32", 4096, (0, 4096)), ("int32", 16384, (0, 16384)),
    ("int32", 65536, (0, 65536)), ("int32", 2**20, (0, 2**20)), ("int32", 1024, None), ("int32", 2**20, None),
    ("uint32", 1024, (0, 1024)), ("uint8", 256, (0, 256)), ("uint8", 100, (40, 180)), ("uint16", 1024, (0, 1024)),
    ("int16", 1000, (0, 1024)), ("float16", 100, (-3, 3)), ("float16", 1024, (0, 1024)), ("float32", 1024, (0, 1)),
    ("float32", 1000, (-3, 3)), ("float32", 2048, (-1, 1)), ("float32", 65536, (0, 1)), ("float32", 1024, None),
    ("float64", 1024, (0, 1)), ("float64", 1000, (-3, 3)), ("float64", 2048, (-1, 1)), ("float64", 1024, None),
    ("int64", 1024, (0, 1024)), ("int64", 1000, (0, 1023)), ("int64", 2048, (-9e12, 9e12)),
)  # fmt: skip
MOST_TIMED = 2**17  # bins; above, a pass takes so long that two distributions suffice
FILES, LEAST = 4, 2**24  # files of this machine that are read as samples; bytes of each, at least
OF_PEERS = ("uniform", "gaussian", "zipf", "hot", "sorted", "constant")


def edges_of(bins: int) -> Any:
    """Irregular edges over [0, 1024)."""
    return 1024 * np.sort(np.random.default_rng(0).random(bins + 1))


def options_of(bins: int, limits: tuple[float, float] | None) -> HistogramOptions:
    """Options of a case."""
    return HistogramOptions(bins=bins, range=limits or (0, 1024), edges=None if limits else edges_of(bins))


def distributions_of(dtype: str, bins: int) -> Sequence[str]:
    """Those that a case is measured on."""
    if bins > MOST_TIMED:
        return "uniform", "constant"
    return [name for name in DISTRIBUTIONS if name not in OF_FLOATS or np.dtype(dtype).kind == "f"]


def on_device(distribution: str, part: Any, nbytes: int) -> Any:
    """Device array of so many bytes: sorted samples stay sorted, others are repeated as a whole."""
    import cupy

    times = nbytes // part.nbytes
    return (cupy.repeat if distribution == "sorted" else cupy.tile)(cupy.asarray(part), times)


def parts_of(dtype: str, bins: int, edges: Any, nbytes: int) -> Iterator[tuple[str, Any]]:
    """Samples of every distribution, then bytes of files that nobody made for this, read as samples."""
    count = min(2**20, nbytes // np.dtype(dtype).itemsize)
    for distribution in distributions_of(dtype, bins):
        yield distribution, samples_of(distribution, dtype, edges, count)
    for path in found_files() if bins <= MOST_TIMED else ():
        samples = np.fromfile(path, np.uint8, count * np.dtype(dtype).itemsize, offset=LEAST // 2)
        yield f"file {path.name}", np.resize(samples, count * np.dtype(dtype).itemsize).view(dtype)


@cache
def found_files() -> tuple[Path, ...]:
    """The largest files of four of the packages that are installed beside NumPy."""
    largest: dict[str, Path] = {}
    for path in Path(sysconfig.get_path("platlib")).rglob("*"):
        package = path.relative_to(sysconfig.get_path("platlib")).parts[0]
        size = path.stat().st_size if path.is_file() else 0
        if size >= LEAST and (package not in largest or size > largest[package].stat().st_size):
            largest[package] = path
    return tuple(sorted(largest.values(), key=lambda path: -path.stat().st_size)[:FILES])


def measure(nbytes: int = 2**30, repeats: int = 20, cases: Sequence[Case] = CASES) -> dict[str, Any]:
    """Rates of every case on every distribution, as a share of the read stream, measured alternately."""
    import cupy

    ahead = cupy.zeros(nbytes // 4, cupy.uint32)
    rows = []

    def lead() -> None:
        read_stream(ahead)

    for dtype, bins, limits in cases:
        options = options_of(bins, limits)
        binning, edges = options.binning(np.dtype(dtype)), options.all_edges
        for distribution, part in parts_of(dtype, bins, edges, nbytes):
            samples = on_device(distribution, part, nbytes)
            works = {
                "read": lambda s=samples.view(cupy.uint32): read_stream(s),
                "ours": lambda s=samples, b=binning: histogram(s, b),
            }
            seconds = device_medians(works, repeats, lead)
            if distribution in OF_PEERS:  # apart: slower kernels between them change the clocks
                peers = {}
                if (dtype, bins, bool(limits)) == ("int32", 1024, True):
                    peers["cupy.bincount"] = lambda s=samples: cupy.bincount(s, minlength=1024)
                    peers["cupy.histogram"] = lambda s=samples: cupy.histogram(s, 1024, (0, 1024))
                peer = cub_histogram(samples, bins, limits or (0, 1024), None if limits else edges)
                if peer and bins <= 2**16:
                    peers["CUB"] = peer
                seconds |= device_medians(peers, repeats, lead)
            once = histogram_reference(part, edges) * (samples.size // part.size)
            right = bool((histogram(samples, binning).get() == once).all())
            rates = {name: samples.nbytes / taken / 1e9 for name, taken in seconds.items()}
            rows.append({"dtype": dtype, "bins": bins, "edges": "regular" if limits else "irregular",
                         "range": limits, "distribution": distribution, "GB/s": rates,
                         "share of read": rates["ours"] / rates["read"], "verified": right})  # fmt: skip
            shown = {name: round(rate) for name, rate in rates.items()}
            print(dtype, bins, limits, distribution, shown, f"{rows[-1]['share of read']:.3f}", right)
    return {"bytes": nbytes, "repeats": repeats, "cases": rows, "milliseconds of 2^25 int32": small_file(lead)}


def small_file(lead: Callable[[], None]) -> dict[str, float]:
    """Milliseconds for 2^25 samples on the device and for reading them; with launch, the device waits for Python."""
    import cupy

    binning = HistogramOptions().binning(np.dtype("int32"))
    small = on_device("uniform", samples_of("uniform", "int32", binning.edges), 2**27)
    copies = [small.copy() for _ in range(4)]  # together larger than the L2 cache
    turns = iter(range(10**9))
    works = {
        "kernel": lambda: histogram(copies[next(turns) % 4], binning),
        "read": lambda: read_stream(copies[next(turns) % 4].view(cupy.uint32)),
    }
    queued, waited = device_medians(works, 50, lead), device_medians(works, 50, lambda: None)
    milliseconds = {name: 1000 * seconds for name, seconds in queued.items()}
    return milliseconds | {"launch included": 1000 * waited["kernel"], "read, launch included": 1000 * waited["read"]}


if __name__ == "__main__":
    save(measure(), sys.argv[1])
