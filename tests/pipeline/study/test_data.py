"""Inputs and references are computed once for all cases that share them, and not reused for others."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.study.data import Data
from tests.cases.toy_study import case, toy
from workflows.study.study import Case, parameters

RADII = [case("double", parameters=parameters(radius=radius, block=block)) for radius in (1, 2) for block in (32, 64)]


class Counted:
    """A reference that counts its calls."""

    def __init__(self, compute: Any) -> None:
        self.compute = compute
        self.calls = 0

    def __call__(self, arrays: Any, of: Case) -> Any:
        self.calls += 1
        return self.compute(arrays, of)


def references(compute: Any, cases: list[Case]) -> tuple[int, list[Any]]:
    counted = Counted(compute)
    data = Data(toy(*cases, reference=counted))
    shared = [data.of(c)[1] for c in cases]
    return counted.calls, shared


def test_shared_where_nothing_is_read() -> None:
    calls, shared = references(lambda arrays, _: 2 * arrays[0], RADII)
    assert calls == 1 and all(one is shared[0] for one in shared)


def test_not_shared_where_a_parameter_matters() -> None:
    calls, shared = references(lambda arrays, c: c.parameters["radius"] * arrays[0], RADII)
    assert calls == 2 and shared[0] is shared[1] and shared[2] is shared[3]
    assert (2 * shared[0] == shared[2]).all()


def test_not_shared_where_all_parameters_are_read() -> None:
    calls, _ = references(lambda arrays, c: len(dict(**c.parameters)) * arrays[0], RADII)
    assert calls == 4


def test_absent_parameters_differ_from_present_ones() -> None:
    cases = [case("double"), case("double", parameters=parameters(radius=3)), case("double")]
    calls, shared = references(lambda arrays, c: c.parameters.get("radius", 1) * arrays[0], cases)
    assert calls == 2 and shared[0] is shared[2]
    calls, shared = references(lambda arrays, c: np.array([name for name in c.parameters]), cases)
    assert calls == 2 and shared[1].tolist() == ["radius"]


def test_fields_that_are_read_matter() -> None:
    cases = [case("double"), case("twice"), case("double", n=7), case("double", dtype="int64")]
    calls, shared = references(lambda arrays, c: np.array(c.variant), cases[:2])
    assert calls == 2 and [str(one) for one in shared] == ["double", "twice"]
    calls, shared = references(lambda arrays, c: 2 * arrays[0], cases)  # the inputs differ
    assert calls == 3 and [(one.size, one.dtype.name) for one in shared] == [
        (100, "int32"), (100, "int32"), (7, "int32"), (100, "int64")
    ]  # fmt: skip


def test_inputs_are_the_same_every_time_and_stay_so() -> None:
    first, second = (Data(toy()).of(case("double"))[0][0] for _ in range(2))
    assert first is not second and (first == second).all()
    assert not first.flags.writeable
