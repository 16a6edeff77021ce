"""The histogram kernel on one GPU beside the read stream and CuPy's histograms.

python -m tests.benchmarks.histogram_kernel OUT.json
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from kernels.histogram import histogram, histogram_reference
from kernels.limits import read_stream
from pipeline.generate import DISTRIBUTIONS, generate
from tests.benchmarks.common import device_medians, save
from workflows.histogram import HistogramOptions

# (dtype, bins, range); None: irregular edges over [0, 1024)
CASES: tuple[tuple[str, int, tuple[float, float] | None], ...] = (
    ("int32", 16, (0, 1024)), ("int32", 256, (0, 1024)), ("int32", 1024, (0, 1024)), ("int32", 1000, (0, 1024)),
    ("int32", 4096, (0, 4096)), ("int32", 16384, (0, 16384)), ("int32", 65536, (0, 65536)),
    ("int32", 2**20, (0, 2**20)), ("int32", 2**20, None),
    ("uint8", 256, (0, 256)), ("uint16", 1024, (0, 1024)), ("int16", 1000, (0, 1024)),
    ("float16", 1024, (0, 1024)), ("float32", 1024, (0, 1024)), ("float32", 1024, None), ("float64", 1024, (0, 1024)),
    ("int64", 1024, (0, 1024)),
)  # fmt: skip


def samples_of(dtype: str, distribution: str, nbytes: int) -> Any:
    """Device array of a distribution: a generated file of 1/16 of it, repeated with nothing else changed."""
    import cupy

    itemsize = np.dtype(dtype).itemsize
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "samples.bin")
        generate(path, nbytes // itemsize // 16, dtype, distribution)
        part = np.fromfile(path, dtype)
    # Sorted stays sorted when each sample is repeated; the others keep their distribution when the file is.
    return cupy.repeat(cupy.asarray(part), 16) if distribution == "sorted" else cupy.tile(cupy.asarray(part), 16)


def measure(nbytes: int = 2**30, repeats: int = 20) -> dict[str, Any]:
    """Rates of every case on every distribution, as a share of the read stream measured beside it."""
    import cupy

    ahead = cupy.zeros(nbytes // 4, cupy.uint32)
    rows = []
    data: dict[tuple[str, str], Any] = {}

    def lead() -> None:
        read_stream(ahead)

    for dtype, bins, limits in CASES:
        edges = None if limits else 1024 * np.sort(np.random.default_rng(0).random(bins + 1))
        options = HistogramOptions(bins=bins, range=limits or (0, 1024), edges=edges)
        binning = options.binning(np.dtype(dtype))
        main = (dtype, bins) == ("int32", 1024)
        for distribution in DISTRIBUTIONS if main else ("uniform", "constant"):
            if (dtype, distribution) not in data:
                data = {key: value for key, value in data.items() if key[0] == dtype}
                data[dtype, distribution] = samples_of(dtype, distribution, nbytes)
            samples = data[dtype, distribution]
            works = {
                "read": lambda s=samples.view(cupy.uint32): read_stream(s),
                "ours": lambda s=samples, b=binning: histogram(s, b),
            }
            if main:
                works["cupy.bincount"] = lambda s=samples: cupy.bincount(s, minlength=1024)
                works["cupy.histogram"] = lambda s=samples: cupy.histogram(s, 1024, (0, 1024))
            seconds = device_medians(works, repeats, lead)
            head = samples[: 2**16]
            right = bool((histogram(head, binning).get() == histogram_reference(head.get(), options.all_edges)).all())
            rates = {name: samples.nbytes / taken / 1e9 for name, taken in seconds.items()}
            rows.append({"dtype": dtype, "bins": bins, "edges": "regular" if limits else "irregular",
                         "distribution": distribution, "GB/s": rates, "share of read": rates["ours"] / rates["read"],
                         "verified": right})  # fmt: skip
            shown = {name: round(rate) for name, rate in rates.items()}
            print(dtype, bins, rows[-1]["edges"], distribution, shown, f"{rows[-1]['share of read']:.3f}", right)
    small = samples_of("int32", "uniform", 2**27)
    binning = HistogramOptions().binning(np.dtype("int32"))
    copies = [small.copy() for _ in range(4)]  # together larger than the second-level cache
    turns = iter(range(10**9))
    work = {"ours": lambda: histogram(copies[next(turns) % 4], binning)}
    kernel, launched = device_medians(work, 50, lead)["ours"], device_medians(work, 50, lambda: None)["ours"]
    small_file = {"kernel": 1000 * kernel, "launch included": 1000 * launched}
    return {"bytes": nbytes, "repeats": repeats, "cases": rows, "milliseconds of 2^25 int32": small_file}


if __name__ == "__main__":
    save(measure(), sys.argv[1])
