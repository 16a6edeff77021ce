"""The histogram kernel on one GPU, compared with the read stream, CuPy's histograms and CUB's.

python -m tests.benchmarks.histogram_kernel OUT.json
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kernels.histogram.gpu import histogram
from kernels.histogram.reference import histogram_reference
from kernels.study.roofline import read_stream
from pipeline.storage.generate import DISTRIBUTIONS, generate
from tests.benchmarks.common import device_medians, save
from tests.benchmarks.cub import cub_histogram
from workflows.histogram import HistogramOptions

# (dtype, bins, range); None: irregular edges over [0, 1024)
CASES: tuple[tuple[str, int, tuple[float, float] | None], ...] = (
    ("int32", 16, (0, 1024)), ("int32", 256, (0, 1024)), ("int32", 1024, (0, 1024)), ("int32", 1000, (0, 1024)),
    ("int32", 4096, (0, 4096)), ("int32", 16384, (0, 16384)), ("int32", 65536, (0, 65536)),
    ("int32", 2**20, (0, 2**20)), ("int32", 1024, None), ("int32", 2**20, None),
    ("uint8", 256, (0, 256)), ("uint16", 1024, (0, 1024)), ("int16", 1000, (0, 1024)), ("float16", 1024, (0, 1024)),
    ("float32", 1024, (0, 1024)), ("float32", 1000, (0, 1023)), ("float32", 1024, None),
    ("float64", 1024, (0, 1024)), ("float64", 1000, (0, 1023)), ("float64", 1024, None), ("int64", 1024, (0, 1024)),
)  # fmt: skip
MOST_TIMED = 2**17  # bins; above, a pass takes so long that two distributions suffice
PART = 64  # one part of 64 is generated and repeated


def edges_of(bins: int) -> Any:
    """Irregular edges over [0, 1024)."""
    return 1024 * np.sort(np.random.default_rng(0).random(bins + 1))


def part_of(dtype: str, distribution: str, nbytes: int) -> Any:
    """Samples of a distribution, as `generate` writes them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "samples.bin")
        generate(path, nbytes // np.dtype(dtype).itemsize // PART, dtype, distribution)
        return np.fromfile(path, dtype)


def samples_of(part: Any, distribution: str, width: int) -> Any:
    """Device array of a distribution over `width` times as many bins as it has levels, made by repeating a part."""
    import cupy

    if width > 1:
        part = part * part.dtype.type(width)
        if distribution not in ("constant", "hot"):  # whose point is that they have few values
            part += np.random.default_rng(0).integers(0, width, len(part), part.dtype)
        if distribution == "sorted":
            part.sort()
    # Repeating each sample keeps sorted samples sorted; repeating the part keeps the other distributions.
    return cupy.repeat(cupy.asarray(part), PART) if distribution == "sorted" else cupy.tile(cupy.asarray(part), PART)


def measure(nbytes: int = 2**30, repeats: int = 20) -> dict[str, Any]:
    """Rates of every case on every distribution, as a share of the read stream, measured alternately."""
    import cupy

    ahead = cupy.zeros(nbytes // 4, cupy.uint32)
    rows = []
    parts: dict[tuple[str, str], Any] = {}
    data: dict[tuple[str, int, str], Any] = {}

    def lead() -> None:
        read_stream(ahead)

    for dtype, bins, limits in CASES:
        edges = None if limits else edges_of(bins)
        options = HistogramOptions(bins=bins, range=limits or (0, 1024), edges=edges)
        binning = options.binning(np.dtype(dtype))
        width = max(1, int(limits[1]) // 1024) if limits else 1
        for distribution in DISTRIBUTIONS if bins <= MOST_TIMED else ("uniform", "constant"):
            key = (dtype, width, distribution)
            if key not in data:
                data = {other: value for other, value in data.items() if other[:2] == key[:2]}
                if key[::2] not in parts:
                    parts[dtype, distribution] = part_of(dtype, distribution, nbytes)
                data[key] = samples_of(parts[dtype, distribution], distribution, width)
            samples = data[key]
            works = {
                "read": lambda s=samples.view(cupy.uint32): read_stream(s),
                "ours": lambda s=samples, b=binning: histogram(s, b),
            }
            if (dtype, bins, bool(limits)) == ("int32", 1024, True):
                works["cupy.bincount"] = lambda s=samples: cupy.bincount(s, minlength=1024)
                works["cupy.histogram"] = lambda s=samples: cupy.histogram(s, 1024, (0, 1024))
            peer = cub_histogram(samples, bins, limits or (0, 1024), edges) if bins <= 2**16 else None
            if peer:
                works["CUB"] = peer
            seconds = device_medians(works, repeats, lead)
            head = samples[: 2**16]
            right = bool((histogram(head, binning).get() == histogram_reference(head.get(), options.all_edges)).all())
            right &= int(histogram(samples, binning).sum()) == len(samples)
            rates = {name: samples.nbytes / taken / 1e9 for name, taken in seconds.items()}
            rows.append({"dtype": dtype, "bins": bins, "edges": "regular" if limits else "irregular",
                         "distribution": distribution, "GB/s": rates, "share of read": rates["ours"] / rates["read"],
                         "verified": right})  # fmt: skip
            shown = {name: round(rate) for name, rate in rates.items()}
            print(dtype, bins, rows[-1]["edges"], distribution, shown, f"{rows[-1]['share of read']:.3f}", right)
    return {"bytes": nbytes, "repeats": repeats, "cases": rows, "milliseconds of 2^25 int32": small_file(lead)}


def small_file(lead: Callable[[], None]) -> dict[str, float]:
    """Milliseconds for 2^25 samples on the device and for reading them; with launch, the device waits for Python."""
    import cupy

    small = samples_of(part_of("int32", "uniform", 2**27), "uniform", 1)
    binning = HistogramOptions().binning(np.dtype("int32"))
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
