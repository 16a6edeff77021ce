"""Histogram, sum and position of the largest sample of a file of every format: the same bits on the CPU and all GPUs.

python -m tests.benchmarks OUT_FOLDER --only format_bits

The oracle is what the format's own library reads, in NumPy. Chunks are small, so that each GPU gets some of each file.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray

import pipeline
from pipeline.gpu.devices import find_devices
from tests.cases.format_case import Case
from tests.cases.format_files import CASES

BINS = 64
CHUNKS = 8  # of a file, if its pieces can be cut


@contextmanager
def places() -> Iterator[dict[str, dict[str, Any]]]:
    """Where it runs here: the CPU, one GPU, and clusters of 2, 4 … GPUs, which are started once."""
    usable = find_devices().usable
    made: dict[str, dict[str, Any]] = {"cpu": {"device": "cpu"}} | ({"1 gpu": {"gpus": 1}} if usable else {})
    with ExitStack() as stack:
        for number in (1 << power for power in range(1, usable.bit_length())):
            from dask_cuda import LocalCUDACluster

            cluster = LocalCUDACluster(CUDA_VISIBLE_DEVICES=list(range(number)), dashboard_address=None)
            client = stack.enter_context(Client(stack.enter_context(cluster), set_as_default=False))
            made[f"{number} gpu"] = {"client": client, "device": "gpu"}
        yield made


def asked(item: str, limits: tuple[float, float], nbytes: int, where: dict[str, Any]) -> dict[str, Any]:
    """What our jobs find."""
    how = {"chunk_bytes": max(nbytes // CHUNKS, 4096), "verify": "full", **where}
    counts = pipeline.run("histogram", item, bins=BINS, range=limits, **how).counts
    values = pipeline.run("reduce", item, op="sum,argmax", **how).values
    return {"counts": np.asarray(counts, np.int64), "sum": values["sum"], "argmax": int(values["argmax"])}


def expected(array: NDArray[Any], limits: tuple[float, float]) -> dict[str, Any]:
    """The same of what the library read: exact sums, of floats rounded once to 64 bits."""
    flat = array.reshape(-1)
    counts, _ = np.histogram(flat[np.isfinite(flat)] if flat.dtype.kind == "f" else flat, BINS, limits)
    total = math.fsum(flat.tolist()) if flat.dtype.kind == "f" else sum(flat.tolist())
    return {"counts": counts, "sum": total, "argmax": int(flat.argmax())}


def digest(found: dict[str, Any]) -> str:
    """Of all bits."""
    total = found["sum"]
    words = float(total).hex() if isinstance(total, float | np.floating) else str(int(total))
    return hashlib.sha256(found["counts"].tobytes() + f"{words} {found['argmax']}".encode()).hexdigest()[:16]


def row(case: Case, where: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Digests of a file in each place, and whether they are the same."""
    with tempfile.TemporaryDirectory() as folder:
        item, array = case.write(Path(folder))
        finite = array[np.isfinite(array)]
        limits = float(finite.min()), float(finite.max()) + 1
        found = {place: digest(asked(item, limits, array.nbytes, how)) for place, how in where.items()}
        found["library"] = digest(expected(array, limits))
    return {"identical": len(set(found.values())) == 1, "digests": found}


def measure(every: int = 1) -> Iterator[dict[str, Any]]:
    """Digest of each format in each place, and of its library, after every format; `every`: one out of so many."""
    rows: dict[str, Any] = {}
    left_out: dict[str, Any] = {}
    with places() as where:
        for name in list(CASES)[::every]:
            case = CASES[name]
            if missing := [package for package in case.packages if find_spec(package) is None]:
                left_out[name] = missing
                print(f"{name}: left out, {', '.join(missing)} missing", flush=True)
            else:
                rows[name] = row(case, where)
                print(name, rows[name], flush=True)
            yield {"formats": rows, "left out": left_out, "identical": all(one["identical"] for one in rows.values())}
