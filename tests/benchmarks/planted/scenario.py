"""A small job on ordinary or hard data, with what says whether its result is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

INTEGERS, FLOATS = ("int8", "uint8", "int16", "uint16", "int32", "int64"), ("float16", "float32", "float64")
KINDS = ("ordinary", "ordinary", "hard", "few", "sorted")
BLOCK_BYTES = 2**15
GATHERED = 2**9  # samples whose keys a pass of a search returns: so few that most searches take a pass more
WRITING = ("matmul", "transpose", "stencil", "map")

Array = NDArray[Any]
Random = np.random.Generator
BESIDE = "beside"  # how the names of files beside the inputs begin


class Written(NamedTuple):
    """Paths of the input files, what a run gets as its inputs, and its options."""

    files: list[str]
    inputs: list[str]
    options: dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """A job on its inputs.

    Attributes
    ----------
    job
        Its name in tables.
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
    workflow
        What runs; by default `job`.
    beside
        Arrays in files of their own, by the option that names them: a mask, or ``"columns"``.
    index
        In brackets after each input.
    """

    job: str
    inputs: tuple[Array, ...]
    options: dict[str, Any]
    is_right: Callable[[Any], bool]
    chunk_bytes: int
    fortran: bool = False
    swapped: bool = False
    mappable: bool = True
    workflow: str = ""
    beside: Mapping[str, Array] = field(default_factory=dict)
    index: str = ""

    def write(self, folder: Path) -> Written:
        """Write the input files."""
        files, beside = [], {}
        for number, array in enumerate(self.inputs):
            array = array.astype(array.dtype.newbyteorder()) if self.swapped else array
            np.save(folder / f"{number}.npy", np.asfortranarray(array) if self.fortran else array)
            files.append(str(folder / f"{number}.npy"))
        for name, array in self.beside.items():
            path = str(folder / f"{BESIDE}-{name}.npy")
            np.save(path, array)
            beside[name] = {"c": path} if name == "columns" else path
        return Written(files, [path + self.index for path in files], self.options | beside)

    @property
    def runs(self) -> str:
        """The name of the job that runs."""
        return self.workflow or self.job

    @property
    def writes(self) -> bool:
        """Whether the job writes an array."""
        return self.runs in WRITING

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


def sample_count(random: Random) -> int:
    """A number of samples."""
    return int(2 ** random.uniform(14.3, 16.5))


def streamed(
    job: str, inputs: tuple[Array, ...], options: dict[str, Any], random: Random, is_right: Callable[[Any], bool],
    **others: Any,
) -> Scenario:  # fmt: skip
    """A job that reads samples once or several times, in two to five chunks."""
    itemsize, nbytes = inputs[0].itemsize, sum(array.nbytes for array in inputs)
    chunk = -(-nbytes // int(random.integers(2, 6))) // itemsize * itemsize
    return Scenario(job, inputs, options, is_right, chunk, swapped=bool(random.integers(5) == 0), **others)


def array_job(
    job: str, inputs: tuple[Array, ...], options: dict[str, Any], random: Random, is_right: Callable[[Any], bool],
    written: int | None = None,
) -> Scenario:  # fmt: skip
    """A job that writes an array, in two to five tasks."""
    read = sum(array.nbytes for array in inputs)
    nbytes = read + (read if written is None else written)
    chunk = max(1, nbytes // int(random.integers(2, 6)))
    fortran, swapped, mappable = (bool(random.integers(share) == 0) for share in (6, 6, 4))
    inputs = tuple(map(np.ascontiguousarray, inputs))
    return Scenario(job, inputs, options, is_right, chunk, fortran, swapped, not mappable)
