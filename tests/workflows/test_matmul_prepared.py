"""Checks of products that were prepared before there was one: the same verdicts, with fewer reads of the factors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from pickle import dumps, loads
from threading import Barrier, Thread
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.engine.array_check_ahead as module
from kernels.matmul import check_floats, check_integers, factors
from pipeline.engine.array_check_ahead import HELD, ChecksAhead
from pipeline.engine.array_plan import ArrayPlan
from pipeline.engine.array_task import RegionsResult, check_regions
from pipeline.storage.array_file import join
from pipeline.storage.output_array import OutputFile
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.matmul import on_cpu
from workflows.array_job import Checked
from workflows.matmul import MATMUL, MatmulOptions
from workflows.regions import Bounds, all_of

Array = NDArray[Any]
RESULT = RegionsResult("worker", "cpu", "", {}, Timeline())
WAIT = 30.0  # seconds, for what takes milliseconds


def plan_of(folder: Path, a: Array, b: Array, c: Array, **options: str) -> ArrayPlan:
    """Of a product whose output is in its file already."""
    for name, array in (("a", a), ("b", b), ("c", c)):
        np.save(folder / f"{name}.npy", array)
    inputs = tuple(join(open_source((str(folder / f"{name}.npy"),), samples=False)) for name in "ab")
    chosen = MatmulOptions(**options)
    spec = MATMUL.outline([array.spec for array in inputs], chosen)
    assert (spec.shape, spec.dtype) == (c.shape, c.dtype)
    path = str(folder / "c.npy")
    offset = Path(path).stat().st_size - spec.nbytes
    return ArrayPlan(MATMUL, chosen, inputs, OutputFile(path, offset, spec, mappable=False), "full", 7)


def checked(plan: ArrayPlan, regions: Sequence[Bounds], ahead: ChecksAhead | None = None) -> list[Checked]:
    return [check_regions(plan, [region], RESULT, True, ahead).checked for region in regions]


def prepared(plan: ArrayPlan, regions: Sequence[Bounds]) -> list[Checked]:
    """The same, by preparations that have all been made before, if there are `HELD` at most."""
    with closing(ChecksAhead(plan)) as ahead:
        ahead.begin(regions)
        for region in regions[:HELD]:
            assert ahead._checks[region].result(WAIT) is not None
        return checked(plan, regions, ahead)


def ordinary(dtype: str, shape: tuple[int, ...]) -> Array:
    random = np.random.default_rng(len(shape))
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(-100, 100, shape).astype(dtype)


@pytest.fixture(params=["few parts", "many parts", "large"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors that are kept, or read in parts; compiled checks, as of large products, or those of small ones."""
    if request.param != "few parts":
        monkeypatch.setattr(factors, "HELD", 2000)
        monkeypatch.setattr(factors, "READ", 1000)
    if request.param == "large":
        monkeypatch.setattr(check_floats, "COMPILED", 0)
        monkeypatch.setattr(check_integers, "COMPILED", 0)


SHAPES = [((130, 70), (70, 90)), ((3, 5), (5, 2)), ((40,), (40, 30)), ((30, 40), (40,)), ((2, 1, 9, 8), (3, 8, 7))]


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("kind", ["ordinary", "special"])
@pytest.mark.parametrize(
    ("dtype", "arithmetic"),
    [("float16", "exact"), ("float32", "exact"), ("float64", "exact"), ("float16", "float"), ("float32", "float"),
     ("float64", "float"), ("int32", "exact")],
)  # fmt: skip
def test_verdicts_are_those_of_checks_that_begin_with_the_product(
    tmp_path: Path, dtype: str, arithmetic: str, kind: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """Of right products and of wrong ones: details, elements, escape and what is admitted."""
    a, b = (ordinary(dtype, shape) for shape in shapes)
    if kind == "special" and dtype.startswith("float"):
        largest = np.finfo(dtype).max
        a.reshape(-1, a.shape[-1])[0], b[..., -1:] = largest / 2, largest / 2  # a row and a column of overflows
        a.reshape(-1, a.shape[-1])[-1, 1], b.reshape(-1)[3] = np.nan, np.inf
    right = on_cpu(np.atleast_2d(a), b if b.ndim > 1 else b[:, None])
    right = right.reshape(np.matmul(np.zeros(a.shape), np.zeros(b.shape)).shape)
    wrong = right.copy()
    wrong.reshape(-1)[wrong.size // 2] = 77
    for product, is_right in ((right, True), (wrong, False)):
        plan = plan_of(tmp_path, a, b, product, arithmetic=arithmetic)
        region = all_of(plan.output.spec)
        (expected,) = checked(plan, [region])
        assert prepared(plan, [region]) == [expected] and expected.elements == right.size
        assert bool(expected.details) != is_right


ROWS = [((row, row + 40), (0, 90)) for row in range(0, 160, 40)]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All products are checked by compiled sums of factors that are not kept."""
    for each in (check_floats, check_integers):
        monkeypatch.setattr(each, "COMPILED", 0)
    monkeypatch.setattr(check_floats.FloatCheck, "_worth_it", lambda *_: True)
    monkeypatch.setattr(factors, "HELD", 0)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_what_regions_of_the_same_columns_share_is_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """B is read for the first one only; every error in any of them is found."""
    a, b = ordinary(dtype, (160, 70)), ordinary(dtype, (70, 90))
    right = on_cpu(a, b)
    plan, reads = plan_of(tmp_path, a, b, right), list[tuple[int, int]]()
    read_region = module.read_region

    def counted(array: Any, bounds: Bounds, *rest: Any) -> Array:
        block = read_region(array, bounds, *rest)
        reads.append((plan.inputs.index(array), block.size))
        return block

    with monkeypatch.context() as patches:
        patches.setattr(module, "read_region", counted)
        verdicts = prepared(plan, ROWS)
        of_b = sum(size for number, size in reads if number == 1)
        reads.clear()
        (alone,) = prepared(plan, ROWS[:1])
    assert not any(verdict.details for verdict in verdicts) and of_b >= b.size
    if dtype != "float16":  # whose suspects are looked at with both factors
        assert of_b == sum(size for number, size in reads if number == 1)
    assert alone == verdicts[0] and len({verdict.escape for verdict in verdicts}) == 1
    for number, (rows, _) in enumerate(ROWS):
        wrong = right.copy()
        wrong[rows[0] + 7, 3 * number] += 9
        verdicts = prepared(plan_of(tmp_path, a, b, wrong), ROWS)
        assert [bool(verdict.details) for verdict in verdicts] == [other == number for other in range(len(ROWS))]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_other_columns_are_not_shared(tmp_path: Path, dtype: str) -> None:
    a, b = ordinary(dtype, (20, 30)), ordinary(dtype, (30, 40))
    b[:, 20:] *= 2**20
    regions = [((0, 20), (0, 20)), ((0, 20), (20, 40))]
    plan = plan_of(tmp_path, a, b, on_cpu(a, b))
    assert prepared(plan, regions) == checked(plan, regions)


def test_a_region_is_checked_twice_at_a_time(tmp_path: Path) -> None:
    """Neither waits for the other, which prepares it itself."""
    a, b = ordinary("float32", (160, 70)), ordinary("float32", (70, 90))
    plan, prepare, both = plan_of(tmp_path, a, b, on_cpu(a, b)), MATMUL.prepare, Barrier(2)

    def together(read: Any, region: Bounds, *rest: Any) -> Any:
        if region == ROWS[-1]:
            both.wait(WAIT)
        assert prepare
        return prepare(read, region, *rest)

    plan, results = replace(plan, workflow=replace(MATMUL, prepare=together)), list[Checked]()
    with closing(ChecksAhead(plan)) as ahead:
        ahead.begin(ROWS)
        for region in ROWS[:HELD]:
            ahead._checks[region].result(WAIT)
        check = partial(checked, plan, ROWS[-1:], ahead)
        threads = [Thread(target=lambda: results.extend(check()), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    assert len(results) == 2 and not any(result.details for result in results)


def test_time_is_counted_once(tmp_path: Path) -> None:
    """Also where a check waits for its preparation."""
    a, b = ordinary("float32", (20, 30)), ordinary("float32", (30, 40))
    plan, prepare = plan_of(tmp_path, a, b, on_cpu(a, b)), MATMUL.prepare

    def slow(*arguments: Any) -> Any:
        sleep(0.2)
        assert prepare
        return prepare(*arguments)

    plan = replace(plan, workflow=replace(MATMUL, prepare=slow))
    region = all_of(plan.output.spec)
    with closing(ChecksAhead(plan)) as ahead:
        began = perf_counter()
        ahead.begin([region])
        timeline = check_regions(plan, [region], RESULT, True, ahead).timeline
        assert 0.2 <= timeline.seconds["verify"] <= perf_counter() - began


def test_a_few_are_prepared_ahead_and_any_can_be_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = ordinary("float32", (160, 70)), ordinary("float32", (70, 90))
    plan, begun = plan_of(tmp_path, a, b, on_cpu(a, b)), list[Bounds]()
    prepare = MATMUL.prepare

    def noting(read: Any, region: Bounds, *rest: Any) -> Any:
        begun.append(region)
        assert prepare
        return prepare(read, region, *rest)

    plan = replace(plan, workflow=replace(MATMUL, prepare=noting))
    with closing(ChecksAhead(plan)) as ahead:
        ahead.begin(ROWS)
        for region in ROWS[:HELD]:
            ahead._checks[region].result(WAIT)
        assert begun == ROWS[:HELD]
        for region in reversed(ROWS):  # those that have not begun are prepared by their checks
            assert not checked(plan, [region], ahead)[0].details
        assert sorted(begun) == ROWS and not ahead._left and not ahead._checks
        assert not checked(plan, ROWS[:1], ahead)[0].details  # again, as after a task was lost
        assert loads(dumps(ahead)) is ahead
        pickled = dumps(ahead)
    del ahead
    assert loads(pickled) is None  # as in another process
