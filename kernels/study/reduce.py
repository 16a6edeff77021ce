"""The ladder of reductions, sum and maximum: the plain reference, the bound of its rounding, the launch wrappers.

int32 sums are exact. float32 and float64 sums accumulate in float64, in an order fixed by the variant, its `block` and
the number of samples: the same bits each time. Those of ``production`` are exact and rounded once.
A sum that is zero is 0.0. The maximum is exact: NaN wins, as in `numpy.max`, and 0.0 counts as larger than -0.0, except
in ``production``, which has the first of equal samples. An empty array has neither.

A variant returns partials on the device; `finish` is the second pass, on the host. ``production`` returns the one
partial of `kernels.reduce.partial`, which `finish_exact` reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.checks import blocks_for, check_address, check_array, check_block, check_shared
from kernels.common.dtypes import COURSE_TYPES
from kernels.common.memory import empty
from kernels.reduce import exact_sum
from kernels.reduce import partial as exact
from kernels.reduce.gpu import reduce_on_device
from kernels.study.variant import Variant, by_name

SOURCE = Path(__file__).with_suffix(".cu")

OPERATIONS = {"sum": "Sum", "max": "Max"}  # functors in reduce.cu
# dtype of the partials. Those of a maximum are integers in the order of the samples: see `ordered`.
PARTIALS: dict[tuple[str, str], np.dtype[Any]] = {
    ("sum", "int32"): np.dtype("i8"), ("sum", "float32"): np.dtype("f8"), ("sum", "float64"): np.dtype("f8"),
    ("max", "int32"): np.dtype("i4"), ("max", "float32"): np.dtype("i4"), ("max", "float64"): np.dtype("i8"),
}  # fmt: skip
SMALLEST_POWER = {"sequential": 1, "warp_shuffle": 32, "missing_barrier": 1, "past_the_end": 1}  # blocks are halved
LATE, IN_TIME = ", true", ", false"  # warps of missing_barrier that wait on purpose
UNIT = 2.0**-53  # of rounding to float64
PART = 2**16  # samples per step of the references
_empty = partial(empty, "reduce")


def sum_reference(samples: NDArray[Any]) -> int | float:
    """Exact sum: of floats rounded once, the same as `math.fsum` and twenty times as fast.

    Parameters
    ----------
    samples : int32, float32 or float64 array, shape (n,)
        Infinities of one sign sum to it; with NaN or both infinities the sum is NaN.

    Raises
    ------
    OverflowError
        If finite float64 samples sum to more than float64 holds.
    """
    if samples.dtype.kind == "i":
        return sum(int(part.sum(dtype=np.int64)) for part in _parts(samples))
    if not all(np.isfinite(part).all() for part in _parts(samples)):
        return float(sum(samples[~np.isfinite(samples)].tolist()))
    exact: list[float] = []
    for part in _parts(samples):
        rest = part.astype(np.float64)
        while top := float(np.abs(rest).max()):
            _, exponent = math.frexp(top)
            if exponent > 1000:
                return math.fsum(samples.tolist())
            # Next to this number the spacing of float64 is 2**(exponent - 36): what adding and subtracting it keeps of
            # a sample is at most 2**36 steps, of 2**16 samples 2**52, which float64 sums without rounding.
            large = 2.0 ** (exponent + 17)
            high = (rest + large) - large
            exact.append(float(high.sum()))
            rest -= high
    return math.fsum(exact)


def max_reference(samples: NDArray[Any]) -> int | float:
    """Maximum with NumPy, except that 0.0 is larger than -0.0, which NumPy leaves open.

    Parameters
    ----------
    samples : int32, float32 or float64 array, shape (n,), n >= 1
    """
    largest: int | float = np.max(samples).item()
    if samples.dtype.kind == "f" and largest == 0:
        return -0.0 if np.signbit(samples[samples == 0]).all() else 0.0
    return largest


def sum_bound(samples: NDArray[Any], partials: int) -> float:
    """How far a correct variant's float sum, in this many partials, may be from `sum_reference`.

    A block sums m samples or fewer, in whatever order, and the host adds p partials one after the other: a sample takes
    part in fewer than k = min(n, m + p) additions that round. Each multiplies it by 1 + d, |d| <= u = 2**-53 (float64
    adds without rounding where it underflows): an error of at most gamma_k * sum|x|, gamma_k = k u / (1 - k u). The
    reference is rounded once, u * sum|x| at most: k + 1 covers it. m is n / p plus less than 2**16 samples, by which
    a block may exceed the others at the ragged end.

    Parameters
    ----------
    samples : float32 or float64 array, shape (n,), whose sum of magnitudes is within the range of float64
    partials
        p.
    """
    n = len(samples)
    rounded = (min(n, n // partials + 2**16 + partials) + 1) * UNIT
    magnitude = math.fsum(float(np.abs(part).sum(dtype=np.float64)) for part in _parts(samples))
    # The last factor is for rounding on the way here: fewer than 2**16 additions at a time.
    return rounded / (1 - rounded) * magnitude * (1 + 2.0**-30)


def _parts(samples: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (samples[start : start + PART] for start in range(0, len(samples), PART))


def ordered(samples: NDArray[Any]) -> NDArray[Any]:
    """Integers in the order of the samples, as the kernels compare them.

    A float's bits are sign and magnitude: as integers, positive floats are in order, and flipping the magnitude
    reverses the order of negative ones. -0.0 comes right below 0.0; NaN of either sign is the largest.
    """
    if samples.dtype.kind == "i":
        return samples
    integer = np.dtype(f"i{samples.itemsize}")
    return np.where(np.isnan(samples), np.iinfo(integer).max, _flipped(samples.view(integer)))


def _flipped(bits: NDArray[Any]) -> NDArray[Any]:
    """Flipping leaves the sign, so that flipping again gives the same bits back."""
    flipped: NDArray[Any] = bits ^ ((bits >> bits.dtype.type(8 * bits.itemsize - 1)) & np.iinfo(bits.dtype).max)
    return flipped


def finish(partials: NDArray[Any], op: str, dtype: str) -> int | float:
    """Second pass on the host: partials to the result, in the order of their index.

    Parameters
    ----------
    partials : array of ``PARTIALS[op, dtype]``, shape (at least 1,)
    op
        ``"sum"`` or ``"max"``.
    dtype
        Of the samples.

    Returns
    -------
    int for int32 samples, exact whatever its size; float for others
    """
    if op == "sum":
        total: int | float = partials.dtype.type(0).item()
        for value in partials.tolist():  # not sum(), which compensates floats from Python 3.12 on
            total += value
        return total
    largest = partials.max(keepdims=True)
    result: int | float = (largest if dtype == "int32" else _flipped(largest).view(dtype)).item()
    return result


def finish_exact(partial: NDArray[np.int64], op: str, dtype: str) -> int | float:
    """The result of ``production``: the sum rounded once, or the maximum.

    Parameters
    ----------
    partial : int64 array, as `kernels.reduce.partial` describes it
    op
        ``"sum"`` or ``"max"``.
    dtype
        Of the samples.
    """
    if partial[exact.NAN]:
        return math.nan
    if op == "max":
        return exact.from_key(int(partial[exact.MAX_KEY]), np.dtype(dtype), bool(partial[exact.MAX_AT] % 2))
    if partial[exact.POSITIVE] or partial[exact.NEGATIVE]:
        positive, negative = bool(partial[exact.POSITIVE]), bool(partial[exact.NEGATIVE])
        return math.nan if positive and negative else math.inf if positive else -math.inf
    total = exact_sum.from_words(partial[exact.SUM_AT])
    if np.dtype(dtype).kind != "f":
        return total >> exact_sum.SUM_BITS
    return exact_sum.quotient(Fraction(total, 2**exact_sum.SUM_BITS))


def _check(samples: Any, op: str, operations: tuple[str, ...] = tuple(OPERATIONS)) -> None:
    check_array("reduce", samples, tuple(COURSE_TYPES), 1)
    if op not in operations:
        raise ValueError(f"reduce: expected op {' or '.join(operations)} here, got {op!r}")
    if not samples.size:
        raise ValueError("reduce: expected at least 1 sample, got an empty array")
    check_address(samples)


def _check_blocks(kernel: str, samples: Any, op: str, block: int) -> int:
    """Check that the kernel and the device can run blocks of this size; return how many cover the samples."""
    check_block(block)
    smallest = SMALLEST_POWER.get(kernel)
    if smallest and (block & (block - 1) or block < smallest):
        raise ValueError(f"{kernel}: expected a block of a power of two of at least {smallest} threads, got {block}; "
                         "any_size takes others")  # fmt: skip
    check_shared(f"{kernel} with a block of {block}", _shared(samples, op, block))
    return blocks_for(int(samples.size), block)


def _shared(samples: Any, op: str, block: int) -> int:
    return block * PARTIALS[op, str(samples.dtype)].itemsize


def _load(kernel: str, samples: Any, op: str, own: str = "") -> nvrtc.Kernel:
    return nvrtc.load(SOURCE, f"{kernel}<{OPERATIONS[op]}<{COURSE_TYPES[str(samples.dtype)]}>{own}>")


def _per_block(kernel: str, samples: Any, op: str = "sum", block: int = 1024) -> Any:
    """Run a variant that leaves one partial per block of one sample per thread."""
    return _partials(kernel, LATE if kernel == "missing_barrier" else "", samples, op, block)


def _partials(kernel: str, own: str, samples: Any, op: str, block: int) -> Any:
    """The same; `own` is a template argument that only this kernel has."""
    _check(samples, op)
    blocks = _check_blocks(kernel, samples, op, block)
    partials = _empty(blocks, PARTIALS[op, str(samples.dtype)])
    arguments = (samples, np.int64(samples.size), partials)
    _load(kernel, samples, op, own)((blocks,), (block,), arguments, shared_mem=_shared(samples, op, block))
    return partials


def _atomic_max(samples: Any, op: str = "max", block: int = 1024) -> Any:
    """All blocks share one partial, which starts below every sample."""
    _check(samples, op, ("max",))
    blocks = _check_blocks("atomic_max", samples, op, block)
    largest = _empty(1, PARTIALS[op, str(samples.dtype)])
    largest.fill(largest.dtype.type(np.iinfo(largest.dtype).min))
    arguments = (samples, np.int64(samples.size), largest)
    _load("atomic_max", samples, op)((blocks,), (block,), arguments, shared_mem=_shared(samples, op, block))
    return largest


def _production(samples: Any, op: str = "sum") -> Any:
    """The exact partial of the job; `finish_exact` turns it into the result."""
    _check(samples, op)
    return reduce_on_device(samples, exact.SUM if op == "sum" else exact.EXTREMES)


def _float_drift(samples: Any, op: str = "sum", block: int = 32) -> Any:
    """One block, one partial per thread."""
    _check(samples, op, ("sum",))
    check_array("float_drift", samples, ("float32",), 1)
    check_block(block)
    partials = _empty(block, PARTIALS[op, "float32"])
    nvrtc.load(SOURCE, "float_drift")((1,), (block,), (samples, np.int64(samples.size), partials))
    return partials


def _past_the_end(samples: Any, op: str = "sum", block: int = 1024) -> Any:
    """Reads a copy padded with the largest number, so that out-of-bounds reads stay in memory of our own."""
    return _past_the_end_launch(samples, op, block)()


def _past_the_end_launch(samples: Any, op: str, block: int) -> Callable[[], Any]:
    _check(samples, op)
    blocks = _check_blocks("past_the_end", samples, op, block)
    n, dtype = int(samples.size), samples.dtype
    padded = _empty(blocks * block, dtype)
    padded[:n] = samples
    padded[n:] = (np.iinfo(dtype) if dtype.kind == "i" else np.finfo(dtype)).max
    return partial(_per_block, "past_the_end", padded, op, block)


VARIANTS = by_name(
    Variant("modulo", "one sample per thread in shared memory; every second, fourth, ... thread adds its neighbour's",
            partial(_per_block, "modulo"), {"op": "sum", "block": 1024}),
    Variant("sequential", "the first half of the threads adds the second half: no modulo, and whole warps fall idle",
            partial(_per_block, "sequential"), {"op": "sum", "block": 1024}),
    Variant("any_size", "halves rounded up, so that the block need not be a power of two",
            partial(_per_block, "any_size"), {"op": "sum", "block": 1024}),
    Variant("atomic_max", "no loop: every thread raises one maximum by an atomic operation; maximum only",
            _atomic_max, {"op": "max", "block": 1024}),
    Variant("warp_shuffle", "sequential down to one warp, which exchanges registers and needs no barrier",
            partial(_per_block, "warp_shuffle"), {"op": "sum", "block": 1024}),
    Variant("production", "the kernel of the job, in reduce/gpu.cu: exact sums, rounded once; one partial for all",
            _production, {"op": "sum"}),
    Variant("float_drift", "one float accumulator per thread", _float_drift, {"op": "sum", "block": 32},
            broken="every addition rounds to float, and the errors add up"),
    Variant("missing_barrier", "sequential without the barriers in and before its loop",
            partial(_per_block, "missing_barrier"), {"op": "sum", "block": 1024},
            broken="a warp reads what is yet unwritten",
            timed=lambda *samples, **own: partial(_partials, "missing_barrier", IN_TIME, *samples, **own)),
    Variant("past_the_end", "sequential without its guard", _past_the_end, {"op": "sum", "block": 1024},
            broken="the last block adds what lies behind the last sample", timed=_past_the_end_launch),
)  # fmt: skip
INSTANCES = {
    name: f"{name}<{'Max' if name == 'atomic_max' else 'Sum'}<float>>" for name in VARIANTS if name != "production"
}
INSTANCES |= {"float_drift": "float_drift", "missing_barrier": f"missing_barrier<Sum<float>{LATE}>"}
