"""The ladder of stencils, sums within a radius of each sample: the plain reference, its bound, the launch wrappers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.checks import blocks_for, check_array, check_block, check_shared
from kernels.common.dtypes import COURSE_TYPES
from kernels.common.memory import empty
from kernels.stencil.box import box
from kernels.study.variant import Variant, by_name

SOURCE = Path(__file__).with_suffix(".cu")

OUT = {"int32": "int64", "float32": "float32", "float64": "float64"}  # Out<T> in stencil.cu
MAX_RADIUS = 4096
REFERENCE_STEP = 2**20  # outputs that the reference computes at a time
_empty = partial(empty, "stencil")


def stencil_reference(x: NDArray[Any], radius: int = 3) -> NDArray[Any]:
    """Sum the samples within a radius of each, with NumPy: integers exactly, floats in long double.

    Parameters
    ----------
    x : int32, float32 or float64 array, shape (n,)
        Treated as zero outside of the array.
    radius
        0 or more.

    Returns
    -------
    int64 array for int32, float64 array for floats, shape (n,)
        ``out[i] = x[i - radius] + ... + x[i + radius]``. Infinities and NaN affect only windows that contain them.
    """
    n = len(x)
    if x.dtype.kind == "i":
        before = np.zeros(n + 2 * radius + 1, np.int64)  # the sum of all samples before x[k - radius], at k
        np.cumsum(x, dtype=np.int64, out=before[radius + 1 :][:n])
        before[radius + 1 + n :] = before[radius + n]
        return np.asarray(before[2 * radius + 1 :] - before[:n])
    out = np.empty(n)
    for start in range(0, n, REFERENCE_STEP):
        first, stop = max(0, start - radius), min(start + REFERENCE_STEP, n)
        out[start:stop] = _window_sums(x[first : stop + radius], radius)[start - first : stop - first]
    return out


def _window_sums(x: NDArray[Any], radius: int) -> NDArray[Any]:
    """Additions only, at most one rounding per sample of the window: no prefix differences, which cancel.

    The array is cut every 2 * radius + 1 samples; a window is the end of one piece and the start of the next.
    """
    n, width = len(x), 2 * radius + 1
    padded = np.zeros(-(-(n + 2 * radius) // width) * width, np.longdouble)
    padded[radius : radius + n] = x
    pieces = padded.reshape(-1, width)
    with np.errstate(all="ignore"):
        starts = np.cumsum(pieces, axis=1).ravel()
        ends = np.cumsum(pieces[:, ::-1], axis=1)[:, ::-1].ravel()
        whole = np.arange(n) % width == 0
        return np.asarray(starts[width - 1 :][:n] + np.where(whole, 0, ends[:n]))


def stencil_bound(x: NDArray[Any], radius: int = 3) -> NDArray[np.float64]:
    """How far a float result may be from the reference, computed from the data.

    With u = 2**-53, w samples in a window and A the sum of their magnitudes: w terms added in any order are off by at
    most w u / (1 - w u) A, in a kernel as in the reference (in long double, which has at least 53 bits). The reference
    is rounded to float64 (u A), a float32 result once more to 24 bits (2**-24 A, or 2**-150 where it is subnormal;
    float64 sums of subnormals are exact). The factor covers second orders and the rounding of the bound itself.

    Parameters
    ----------
    x : float32 or float64 array, shape (n,)
    radius

    Returns
    -------
    float64 array, shape (n,)
    """
    single = x.dtype.itemsize == 4
    relative = (2 * (2 * radius + 1) + 1) * 2.0**-53 + (2.0**-24 if single else 0.0)
    with np.errstate(all="ignore"):
        return np.asarray(1.001 * (relative * stencil_reference(np.abs(x), radius) + (2.0**-150 if single else 0.0)))


def _check(x: Any, radius: int) -> None:
    check_array("x", x, tuple(COURSE_TYPES), 1)
    limit = min(MAX_RADIUS, x.size)
    if not 0 <= index(radius) <= limit:
        raise ValueError(f"radius: expected 0 to {limit} (at most {MAX_RADIUS}, and at most the {x.size} samples), "
                         f"got {radius}")  # fmt: skip


def _launch(instance: str, x: Any, radius: int, threads: int, tile: int, shared_mem: int = 0) -> Any:
    """Launch a correct kernel, or one that only lacks its barrier: `tile` outputs per block."""
    blocks = blocks_for(x.size, tile)
    out = _empty(x.size, np.dtype(OUT[str(x.dtype)]))
    if blocks:
        arguments = (x, out, np.int64(x.size), np.int32(radius))
        nvrtc.load(SOURCE, instance)((blocks,), (threads,), arguments, shared_mem=shared_mem)
    return out


def _global_memory(x: Any, radius: int = 3, block: int = 1024) -> Any:
    _check(x, radius)
    check_block(block)
    return _launch(f"global_memory<{COURSE_TYPES[str(x.dtype)]}>", x, radius, block, block)


def _with_halo(barrier: str, x: Any, radius: int = 3, block: int = 1024) -> Any:
    _check(x, radius)
    check_block(block)
    nbytes = (block + 2 * radius) * x.dtype.itemsize
    check_shared(f"block {block} with a halo of radius {radius}", nbytes)
    return _launch(f"shared_halo<{COURSE_TYPES[str(x.dtype)]}, {barrier}>", x, radius, block, block, nbytes)


def _past_the_end(x: Any, radius: int = 3, block: int = 1024) -> Any:
    """Works on a copy padded with ones, so that out-of-bounds accesses stay in memory of our own."""
    return _past_the_end_launch(x, radius, block)()


def _past_the_end_launch(x: Any, radius: int, block: int) -> Callable[[], Any]:
    _check(x, radius)
    check_block(block)
    n, blocks = int(x.size), blocks_for(x.size, block)
    padded = _empty(blocks * block + 2 * radius, x.dtype)
    padded[...] = 1
    padded[radius : radius + n] = x

    def launch() -> Any:
        out = _empty(blocks * block, np.dtype(OUT[str(x.dtype)]))
        if blocks:
            kernel = nvrtc.load(SOURCE, f"past_the_end<{COURSE_TYPES[str(x.dtype)]}>")
            kernel((blocks,), (block,), (padded[radius:], out, np.int32(radius)))
        return out[:n]

    return launch


def _production(x: Any, radius: int = 3) -> Any:
    """Sums of floats are float64, also those of float32."""
    _check(x, radius)
    return box(x.reshape(1, -1), radius, radius, radius).reshape(-1)


COURSE = {"radius": 3, "block": 1024}

VARIANTS = by_name(
    Variant("global_memory", "one output per thread, every sample read from global memory", _global_memory, COURSE),
    Variant("shared_halo", "the block's samples and a halo of radius on both sides in shared memory",
            partial(_with_halo, "true"), COURSE),
    Variant("production", "the kernels of the job, in stencil/gpu.cu: sums slide from window to window, exact",
            _production, {"radius": 3}),
    Variant("missing_barrier", "shared_halo without __syncthreads", partial(_with_halo, "false"), COURSE,
            broken="sums read samples that are not there yet"),
    Variant("past_the_end", "global_memory without a guard", _past_the_end, COURSE,
            broken="reads and writes outside of the array", timed=_past_the_end_launch),
)  # fmt: skip
INSTANCES = {name: f"{name}<float>" for name in VARIANTS if name != "production"} | {
    "shared_halo": "shared_halo<float, true>", "missing_barrier": "shared_halo<float, false>",
}  # fmt: skip
