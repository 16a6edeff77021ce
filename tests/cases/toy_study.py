"""A toy study and its device, without a GPU: NumPy in place of CuPy, and a scripted clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import numpy as np

from kernels.study.variant import Variant, by_name
from pipeline.study.profile import ACTIVITIES, CALLS, TO_DEVICE, TO_HOST
from workflows.study.study import (
    OURS,
    Arrays,
    Case,
    Conclusion,
    Figure,
    Row,
    Study,
    best,
    first_difference,
    parameters,
)


class DeviceLost(Exception):
    """What a driver raises after an illegal address."""


class ToyTracer:
    """Records a millisecond for each step."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str, float]] = []

    def upload(self, array: Any) -> Any:
        self.steps += [(CALLS, "cudaMalloc", 3.0), (ACTIVITIES, TO_DEVICE, 1.0)]
        return array

    def launch(self, name: str, work: Callable[[], Any]) -> Any:
        result = work()
        self.steps.append((ACTIVITIES, name, 2.0))
        return result

    def download(self, array: Any) -> None:
        self.steps.append((ACTIVITIES, TO_HOST, 1.0))


class FakeDevice:
    """NumPy in place of a GPU.

    `times` are the results of successive measurements; `log` lists the calls in order.
    """

    cache_bytes = 1000
    errors: tuple[type[Exception], ...] = (DeviceLost,)

    def __init__(self, times: Iterator[float] | None = None, free: int = 10**9) -> None:
        self.times = times or repeat(2.0)
        self.free = free
        self.log: list[str] = []
        self.timed: list[Any] = []

    def to_device(self, arrays: Arrays) -> Arrays:
        needed = sum(array.nbytes for array in arrays)
        if needed > self.free:
            raise MemoryError(f"needs {needed} bytes of device memory for the inputs, {self.free} are free")
        return tuple(array.copy() for array in arrays)

    def to_host(self, array: Any) -> Any:
        self.log.append("check")
        return np.array(array)

    def elapsed(self, work: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
        self.log.append("time" if before is None else "time again")
        self.timed.append(work())
        return next(self.times)

    def transfer(self, nbytes: int, to_host: bool) -> float:
        return nbytes / (1e3 if to_host else 2e3)

    def limit(self, name: str) -> float:
        self.log.append(name)
        return {"read": 0.001, "copy": 0.002}[name]

    def tracer(self) -> ToyTracer:
        return ToyTracer()

    def release(self) -> None:
        self.log.append("release")

    def environment(self) -> dict[str, Any]:
        return {"device": "NumPy", "driver": "none", "versions": {"numpy": np.__version__}, "date": "2000-01-01"}


def double(samples: Any, block: int = 32, **_: int) -> Any:
    if block > 1024:
        raise ValueError(f"block {block} x 1: expected at most 1024 threads | got {block}")
    return 2 * samples


def wrong(samples: Any) -> Any:
    result = 2 * samples
    result[1] += 1
    return result


def lost(samples: Any) -> Any:
    raise DeviceLost("illegal address")


class Racy:
    """Wrong in the third run only."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, samples: Any) -> Any:
        self.runs += 1
        return 2 * samples + (self.runs % 3 == 0)


def toy(*cases: Case, **fields: Any) -> Study:
    """A study of doubling."""
    given = {
        "job": "toy",
        "course": "A. Author, Doubling (1999), on an abacus",
        "unit": "GB/s",
        "limit": lambda case: "read",
        "variants": by_name(
            Variant("double", "doubles", double, parameters(block=32)),
            Variant("twice", "doubles again", double),
            Variant("wrong", "adds one", wrong),
            Variant("racy", "sometimes", Racy(), broken="no barrier"),
            Variant("lucky", "never wrong", double, broken="it is said"),
            Variant("lost", "crashes", lost),
            Variant("cpu", "doubles on the host", lambda samples: 2 * samples, on_host=True),
            Variant("cpu_wrong", "adds one on the host", wrong, on_host=True),
        ),
        "cases": cases,
        "inputs": lambda case, rng: (rng.integers(0, 100, case.sizes, case.dtype),),
        "reference": lambda arrays, case: 2 * arrays[0],
        "disagreement": lambda got, expected, arrays, case: first_difference(got, expected),
        "work": lambda case: 2000.0,
    }
    return Study(**(given | fields))


def case(variant: str, table: str = "blocks", n: int = 100, **fields: Any) -> Case:
    """A case of it."""
    return Case(table, variant, (n,), fields.pop("dtype", "int32"), **fields)


def faster(rows: list[Row]) -> tuple[bool, str]:
    """Whether double beats twice."""
    ours, theirs = best(rows, "double").ms or 0, best(rows, "twice").ms or 0
    return ours < theirs, f"{ours:g} against {theirs:g} ms"


SWEEP = tuple(
    case("double", "sweep", parameters=parameters(x=x, y=y)) for x in (1, 2, 4) for y in (8, 16) if (x, y) != (4, 16)
)
WHOLE = toy(
    case("double", parameters=parameters(block=32), course_ms=8.0, quick=True),
    case("double", parameters=parameters(block=64)),
    case("double", parameters=parameters(block=2048)),
    case("twice", quick=True),
    case("racy", quick=True),
    *SWEEP,
    conclusions=(
        Conclusion("double beats twice", "toys p. 1", faster),
        Conclusion("twice takes 2 ms", "toys p. 2", lambda rows: (best(rows, "twice").ms == 2.0, "2 ms")),
        Conclusion("nobody measured this", OURS, lambda rows: (best(rows, "absent").ms == 0, "")),
    ),
    figures=(Figure("blocks", "Rate of blocks", "block"), Figure("sweep", "Rate of x and y", "x", "y")),
)
