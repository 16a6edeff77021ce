"""The jobs of the scenarios, each from a number, with the right result by NumPy and fractions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.map.gpu import OPERATIONS as MAPS
from tests.benchmarks.planted import right
from tests.benchmarks.planted.sample_jobs import SAMPLE_MAKERS
from tests.benchmarks.planted.scenario import (
    FLOATS,
    INTEGERS,
    KINDS,
    Random,
    Scenario,
    array_job,
    numbers,
    sample_count,
    streamed,
)
from workflows.reduce import OPERATIONS as REDUCTIONS

BOUNDARIES = ("zero", "nearest", "reflect", "wrap", "valid")


def _histogram(random: Random) -> Scenario:
    dtype, kind = str(random.choice([*INTEGERS, "uint32", *FLOATS[1:]])), str(random.choice(KINDS))
    samples = numbers(random, dtype, sample_count(random), kind)
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
    return streamed("histogram", (samples,), options, random, lambda got: right.histogram(samples, options, got))


def _reduce(random: Random) -> Scenario:
    dtype, kind = str(random.choice([*INTEGERS, "uint64", *FLOATS])), str(random.choice(KINDS))
    samples = numbers(random, dtype, sample_count(random), kind, 1e5)
    chosen = random.choice(list(REDUCTIONS), int(random.integers(1, 7)), replace=False)
    options = {"op": ",".join(map(str, chosen)), "nan": str(random.choice(["propagate", "omit"]))}
    return streamed("reduce", (samples,), options, random, lambda got: right.reduction(samples, options, got))


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
    return array_job("map", inputs, options, random, lambda got: right.mapped(inputs, operation, got))


def _transpose(random: Random) -> Scenario:
    dtype, kind = str(random.choice([*INTEGERS, *FLOATS, "complex128"])), str(random.choice(KINDS))
    shape = tuple(int(random.integers(64, 170)) for _ in range(2))
    if random.integers(4) == 0:
        shape = tuple(int(random.integers(10, 40)) for _ in range(3))
    if dtype == "complex128":
        array = numbers(random, "float64", (*shape, 2), kind).view("complex128")[..., 0]
    else:
        array = numbers(random, dtype, shape, kind)
    scenario = array_job("transpose", (array,), {}, random, lambda got: False)
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
    return array_job("stencil", (array,), options, random, lambda got: right.windows(array, options, got))


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
    return array_job("matmul", inputs, {}, random, lambda got: right.product(*inputs, got), 8 * int(np.prod(written)))


MAKERS: dict[str, Callable[[Random], Scenario]] = {
    "histogram": _histogram, "reduce": _reduce, "matmul": _matmul, "transpose": _transpose, "stencil": _stencil,
    "map": _map, **SAMPLE_MAKERS,
}  # fmt: skip
JOBS = tuple(MAKERS)


def job_of(number: int) -> str:
    """The job of a scenario; the jobs take turns."""
    return JOBS[number % len(JOBS)]


def scenario(number: int) -> Scenario:
    """The scenario of a number."""
    return MAKERS[job_of(number)](np.random.default_rng([number, 1]))
