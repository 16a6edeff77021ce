"""Small jobs on ordinary and hard data, each from a number, with the right result by NumPy and fractions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.map.gpu import OPERATIONS as MAPS
from tests.benchmarks.planted import right
from workflows.reduce import OPERATIONS as REDUCTIONS

JOBS = ("histogram", "reduce", "matmul", "transpose", "stencil", "map")
INTEGERS, FLOATS = ("int8", "uint8", "int16", "uint16", "int32", "int64"), ("float16", "float32", "float64")
KINDS = ("ordinary", "ordinary", "hard", "few", "sorted")
BOUNDARIES = ("zero", "nearest", "reflect", "wrap", "valid")
BLOCK_BYTES = 2**15

Array = NDArray[Any]
Random = np.random.Generator


@dataclass(frozen=True)
class Scenario:
    """A job on its inputs.

    Attributes
    ----------
    job
    inputs
    options
        Of the job.
    is_right
        (result, or the array that was written) -> whether it is the right one.
    chunk_bytes
    fortran, swapped
        Whether the files are in Fortran order, or have the other byte order.
    mappable
        Whether the file system allocates space for the output.
    """

    job: str
    inputs: tuple[Array, ...]
    options: dict[str, Any]
    is_right: Callable[[Any], bool]
    chunk_bytes: int
    fortran: bool = False
    swapped: bool = False
    mappable: bool = True
    names: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> list[str]:
        """Paths of the input files."""
        for number, array in enumerate(self.inputs):
            array = array.astype(array.dtype.newbyteorder()) if self.swapped else array
            np.save(folder / f"{number}.npy", np.asfortranarray(array) if self.fortran else array)
            self.names.append(str(folder / f"{number}.npy"))
        return self.names

    @property
    def dtype(self) -> str:
        """Of the first input."""
        return self.inputs[0].dtype.name


@np.errstate(all="ignore")
def numbers(random: Random, dtype: str, size: Any, kind: str, most: float = 1000.0) -> Array:
    """Samples of a dtype: of magnitudes up to about `most`; hard ones are extreme, special or of any bits."""
    kinds = np.dtype(dtype)
    count = int(np.prod(size))
    if kinds.kind == "f":
        values = (random.standard_normal(count) * most / 4).astype(dtype)
        if kind == "hard":
            special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).tiny, np.finfo(dtype).max], dtype)
            some = random.choice(count, max(1, count // 500))
            values[some] = random.choice(special[random.integers(0, 7, 3)], len(some))
            wide = random.choice(count, count // 3)
            scaled = values[wide].astype(np.float64) * 2.0 ** random.integers(-12, 5, len(wide))
            values[wide] = scaled.astype(dtype)
    else:
        limits = np.iinfo(dtype)
        low, high = max(limits.min, int(-most)), min(limits.max, int(most))
        values = random.integers(low, high, count, endpoint=True).astype(dtype)
        if kind == "hard":
            some = random.choice(count, max(1, count // 100))
            values[some] = random.choice(np.array([low, high, 0], dtype), len(some))
    if kind == "few":
        values = random.choice(values[:5], count)
    elif kind == "sorted":
        values = np.sort(values)
    return values.reshape(size)


def _histogram(random: Random) -> Scenario:
    dtype, kind = str(random.choice([*INTEGERS, "uint32", *FLOATS[1:]])), str(random.choice(KINDS))
    samples = numbers(random, dtype, _samples(random), kind)
    bins = int(random.integers(1, 200))
    options: dict[str, Any] = {"bins": bins, "range": (-500.0, 400.0)}
    how = random.integers(4)
    if how == 0:
        options["range"] = "auto"
    elif how == 1:
        options = {"edges": np.unique(np.round(random.uniform(-600, 600, bins + 1), 3))}
        if len(options["edges"]) < 2:
            options = {"bins": bins, "range": (0.0, 1024.0)}
    elif how == 2:
        options["range"] = (0.0, float(bins * 2 ** random.integers(4)))
    return _streamed("histogram", samples, options, random, lambda got: right.histogram(samples, options, got))


def _reduce(random: Random) -> Scenario:
    dtype, kind = str(random.choice([*INTEGERS, "uint64", *FLOATS])), str(random.choice(KINDS))
    samples = numbers(random, dtype, _samples(random), kind, 1e5)
    chosen = random.choice(list(REDUCTIONS), int(random.integers(1, 7)), replace=False)
    options = {"op": ",".join(map(str, chosen)), "nan": str(random.choice(["propagate", "omit"]))}
    return _streamed("reduce", samples, options, random, lambda got: right.reduction(samples, options, got))


def _samples(random: Random) -> int:
    return int(2 ** random.uniform(14.3, 16.5))


def _streamed(job: str, samples: Array, options: dict[str, Any], random: Random, is_right: Any) -> Scenario:
    itemsize = samples.dtype.itemsize
    chunk = -(-samples.nbytes // int(random.integers(2, 6))) // itemsize * itemsize
    return Scenario(job, (samples,), options, is_right, chunk, swapped=bool(random.integers(5) == 0))


def _map(random: Random) -> Scenario:
    operation = str(random.choice(list(MAPS)))
    shape = (int(random.integers(60, 200)), int(random.integers(60, 300)))
    first = str(random.choice([*INTEGERS, *FLOATS]))
    dtypes = [first if random.integers(3) else str(random.choice([*INTEGERS, *FLOATS]))
              for _ in range(MAPS[operation][1])]  # fmt: skip
    inputs = tuple(numbers(random, dtype, shape, str(random.choice(KINDS))) for dtype in dtypes)
    if random.integers(4) == 0:
        inputs = (*inputs[:-1], inputs[-1][:1])  # broadcast
    options = {"operation": operation.replace("_", "-")}
    return _array("map", inputs, options, random, lambda got: right.mapped(inputs, operation, got))


def _transpose(random: Random) -> Scenario:
    dtype, kind = str(random.choice([*INTEGERS, *FLOATS, "complex128"])), str(random.choice(KINDS))
    shape = tuple(int(random.integers(64, 170)) for _ in range(2))
    if random.integers(4) == 0:
        shape = tuple(int(random.integers(10, 40)) for _ in range(3))
    if dtype == "complex128":
        array = numbers(random, "float64", (*shape, 2), kind).view("complex128")[..., 0]
    else:
        array = numbers(random, dtype, shape, kind)
    scenario = _array("transpose", (array,), {}, random, lambda got: False)
    order = array.dtype.newbyteorder() if scenario.swapped else array.dtype  # every bit of the file is kept
    expected = np.ascontiguousarray(array.T).astype(order)
    return replace(scenario, is_right=lambda got: right.same(expected, got))


def _stencil(random: Random) -> Scenario:
    dtype, kind = str(random.choice([*INTEGERS, *FLOATS])), str(random.choice(KINDS))
    shape: tuple[int, ...] = (int(random.integers(8000, 30000)),)
    if random.integers(2):
        shape = (int(random.integers(50, 150)), int(random.integers(50, 200)))
    array = numbers(random, dtype, shape, kind)
    radius = int(random.integers(0, 9))
    options: dict[str, Any] = {"radius": radius, "boundary": str(random.choice(BOUNDARIES))}
    options["axis"] = int(random.integers(len(shape)))
    if random.integers(4) == 0:
        options["weights"] = random.standard_normal(2 * radius + 1).astype(random.choice(["float32", "float64"]))
    return _array("stencil", (array,), options, random, lambda got: right.windows(array, options, got))


def _matmul(random: Random) -> Scenario:
    dtype, kind = str(random.choice([*INTEGERS[:1], "int16", "int32", *FLOATS])), str(random.choice(KINDS))
    rows, inner, columns = (int(random.integers(64, 120)) for _ in range(3))
    shapes: list[tuple[int, ...]] = [(rows, inner), (inner, columns)]
    how = random.integers(5)
    if how == 0:
        shapes = [(int(random.integers(3, 40)), 20, 24), (24, 17)]
    elif how == 1:  # so many columns that sums of groups of them are checked
        shapes = [(16, 24), (24, int(random.integers(900, 1200)))]
    most = 1000.0 if np.dtype(dtype).kind != "f" else 16.0
    inputs = tuple(numbers(random, dtype, shape, kind, most) for shape in shapes)
    written = shapes[0][:-1] + shapes[1][-1:]
    return _array("matmul", inputs, {}, random, lambda got: right.product(*inputs, got), 8 * int(np.prod(written)))


def _array(
    job: str, inputs: tuple[Array, ...], options: dict[str, Any], random: Random, is_right: Callable[[Any], bool],
    written: int | None = None,
) -> Scenario:  # fmt: skip
    read = sum(array.nbytes for array in inputs)
    nbytes = read + (read if written is None else written)
    chunk = max(1, nbytes // int(random.integers(2, 6)))
    fortran, swapped, mappable = (bool(random.integers(share) == 0) for share in (6, 6, 4))
    inputs = tuple(map(np.ascontiguousarray, inputs))
    return Scenario(job, inputs, options, is_right, chunk, fortran, swapped, not mappable)


MAKERS: dict[str, Callable[[Random], Scenario]] = {
    "histogram": _histogram, "reduce": _reduce, "matmul": _matmul, "transpose": _transpose, "stencil": _stencil,
    "map": _map,
}  # fmt: skip


def scenario(number: int, job: str | None = None) -> Scenario:
    """The scenario of a number; the jobs take turns."""
    return MAKERS[job or JOBS[number % len(JOBS)]](np.random.default_rng([number, 1]))
