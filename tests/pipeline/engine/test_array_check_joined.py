"""Adjacent regions that are checked at once: which are joined, and that each is computed, checked and kept once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import pipeline.engine.array_regions
from pipeline.cluster.workers import Workers
from pipeline.engine.array import run_array
from pipeline.engine.array_check_joined import join
from pipeline.engine.array_journal import digest_regions
from pipeline.engine.array_plan import nbytes_of
from pipeline.engine.array_task import check_regions, compute_regions
from pipeline.engine.outcome import Outcome
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.array import ON_CPU
from tests.cases.array import workers as workers
from tests.pipeline.engine.journaled import Runner
from workflows.matmul import MATMUL, MatmulOptions
from workflows.matmul_check import ProductCheck
from workflows.regions import Bounds, Spec, all_of, sizes

CHECKED: list[Bounds] = []  # by each task; the cluster is in this process
SIDE, TILE = 64, 16


def tiles(shape: tuple[int, ...], height: int, width: int) -> list[Bounds]:
    """As a product is cut: matrix by matrix, row by row."""
    *batch, rows, columns = shape
    return [
        (*((i, i + 1) for i in index), (row, min(row + height, rows)), (column, min(column + width, columns)))
        for index in np.ndindex(*batch)
        for row in range(0, rows, height)
        for column in range(0, columns, width)
    ]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, tiles((6, 9), 2, 3)), (27, tiles((6, 9), 2, 6)), (36, tiles((6, 9), 2, 9)), (80, tiles((6, 9), 4, 9)),
        (108, [((0, 6), (0, 9))]),
    ],
)  # fmt: skip
def test_tiles_become_rows_of_tiles_and_these_become_one(most: int, expected: list[Bounds]) -> None:
    assert [group.bounds for group in join(tiles((6, 9), 2, 3), Spec((6, 9), np.dtype("<i2")), most)] == expected


@given(
    shape=st.lists(st.integers(1, 12), min_size=2, max_size=4), height=st.integers(1, 5), width=st.integers(1, 5),
    most=st.integers(0, 200), dropped=st.sets(st.integers(0, 30)),
)  # fmt: skip
def test_every_region_is_in_one_group(shape: list[int], height: int, width: int, most: int, dropped: set[int]) -> None:
    """Also where an earlier run has finished some: a group is a region of one matrix, and as large as its members."""
    spec = Spec(tuple(shape), np.dtype("u1"))
    regions = [one for number, one in enumerate(tiles(spec.shape, height, width)) if number not in dropped]
    groups = join(regions, spec, most)
    assert [region for group in groups for region in group.regions] == regions
    for group in groups:
        assert sum(nbytes_of(spec, region) for region in group.regions) == nbytes_of(spec, group.bounds)
        assert len(group.regions) == 1 or nbytes_of(spec, group.bounds) <= most
        assert math.prod(sizes(group.bounds)[:-2]) == 1


def test_many_regions_take_no_longer_each() -> None:
    """Of a long vector, in tasks of a few bytes."""
    number = 300_000
    (group,) = join([((start, start + 1),) for start in range(number)], Spec((number,), np.dtype("u1")), number)
    assert (group.bounds, len(group.regions)) == (((0, number),), number)


def on_cpu(plan: Any, regions: Any, device: str) -> Any:
    return compute_regions(plan, regions, "cpu")


def digest_on_cpu(plan: Any, regions: Any, device: str, after: Any = None) -> Any:
    return digest_regions(plan, regions, "cpu", after)


def noting(plan: Any, regions: Sequence[Bounds], *more: Any) -> Any:
    CHECKED.extend(regions)
    return check_regions(plan, regions, *more)


@pytest.fixture(params=[False, True], ids=["", "prepared"])
def factors(
    request: pytest.FixtureRequest, tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> list[NDArray[Any]]:
    """Two matrices, in files; tasks for a GPU compute tiles on the CPU, and rows of tiles are checked.

    As by workers in other processes, or by one in this process, whose checks are prepared.
    """
    random = np.random.default_rng(0)
    arrays = [random.integers(-(2**20), 2**20, (SIDE, SIDE)) for _ in range(2)]
    for name, array in zip("ab", arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    gpu = replace(workers, device="gpu", computing=1, resources={})

    def opened(placement: Any, nbytes: int, compiled: Any, load: Any, here: Any) -> Any:
        if request.param:
            here("gpu")
        return nullcontext(gpu)

    monkeypatch.setattr("pipeline.engine.run_loop.open_workers", opened)
    monkeypatch.setattr(pipeline.engine.array_regions, "compute_regions", on_cpu)
    monkeypatch.setattr(pipeline.engine.array_regions, "digest_regions", digest_on_cpu)
    monkeypatch.setattr("pipeline.engine.array_journal.digest_regions", digest_on_cpu)
    monkeypatch.setattr(pipeline.engine.array_regions, "JOINED_BYTES", {"gpu": SIDE * TILE * 8})
    monkeypatch.setattr("pipeline.engine.array_check_joined.check_regions", noting)
    monkeypatch.chdir(tmp_path)
    CHECKED.clear()
    return arrays


IN_TILES = replace(MATMUL, regions=lambda specs, output, options, elements: iter(tiles(output.shape, TILE, TILE)))
ROWS = [((row, row + TILE), (0, SIDE)) for row in range(0, SIDE, TILE)]


def multiplied(workflow: Any = IN_TILES, **settings: Any) -> Outcome:
    sources = [open_source([f"{name}.npy"], samples=False) for name in "ab"]
    return run_array(workflow, MatmulOptions(), sources, "out.npy", Settings(ON_CPU, **settings))


@pytest.mark.parametrize("verify", ["auto", "sample", "full"])
def test_rows_of_tiles_are_checked_once(factors: list[NDArray[Any]], verify: str) -> None:
    verdict = multiplied(verify=verify).verdict
    assert sorted(CHECKED) == ROWS and verdict.checked == SIDE**2 and verdict.chunks == (SIDE // TILE) ** 2
    np.testing.assert_array_equal(np.load("out.npy"), factors[0] @ factors[1])


@pytest.mark.parametrize("shapes", [((200, 30), (30,)), ((3, 40, 30), (30, 50)), ((30,), (30,))])
def test_vectors_and_stacks(factors: list[NDArray[Any]], shapes: tuple[tuple[int, ...], ...]) -> None:
    """Whatever is joined, every element is checked once."""
    arrays = [np.arange(math.prod(shape)).reshape(shape) for shape in shapes]
    for name, array in zip("ab", arrays, strict=True):
        np.save(f"{name}.npy", array)
    verdict = multiplied(MATMUL, chunk_bytes=2000).verdict
    expected = arrays[0] @ arrays[1]
    assert verdict.checked == expected.size == sum(math.prod(sizes(region)) for region in CHECKED)
    np.testing.assert_array_equal(np.load("out.npy"), expected)


@pytest.mark.parametrize("settings", [{"verify": "off"}, {"memory_limit": 2**30}])
def test_tiles_stay_apart(factors: list[NDArray[Any]], settings: dict[str, Any]) -> None:
    """Under a memory limit a check must not take more than a task."""
    multiplied(**settings)
    assert CHECKED == []
    np.testing.assert_array_equal(np.load("out.npy"), factors[0] @ factors[1])


def test_wrong_tile_is_seen(factors: list[NDArray[Any]]) -> None:
    def wrong(read: Any, region: Bounds, *rest: Any) -> Any:
        counted = MATMUL.compute(read, region, *rest)
        if region == ((TILE, 2 * TILE), (2 * TILE, 3 * TILE)):
            counted.elements[3, 5] += 1
        return counted

    with pytest.raises(VerificationError, match=r"region \[\(16, 32\), \(0, 64\)\] on worker inproc.*row \[3\]"):
        multiplied(replace(IN_TILES, compute=wrong))
    assert not Path("out.npy").exists()


@pytest.mark.parametrize("after", [3, 9, 15])
def test_only_rows_that_were_checked_are_kept(
    factors: list[NDArray[Any]], after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is interrupted goes on with the tiles of the others."""
    np.save("a.npy", np.eye(SIDE, dtype=np.int64))
    to_itself = replace(
        IN_TILES, operands=lambda options: None, notes=None,
        outline=lambda specs, options: specs[0],
        needs=lambda region, specs, options: MATMUL.needs(region, specs * 2, options),
        compute=lambda read, region, specs, options: MATMUL.compute(
            lambda _, bounds: read(0, bounds), region, specs * 2, options
        ),
        check=lambda read, elements, region, specs, options, random: MATMUL.check(
            lambda _, bounds: read(0, bounds), elements, region, specs * 2, options, random
        ),
        prepare=lambda read, region, specs, options, random, shared: ProductCheck(
            lambda _, bounds: read(0, bounds), region, specs * 2, options, random, shared
        ),
    )  # fmt: skip
    runner = Runner(monkeypatch, tmp_path / "state")
    assert runner.array(to_itself, MatmulOptions(), tmp_path / "a.npy", tmp_path / "out.npy", after) is None
    finished = len(CHECKED)
    CHECKED.clear()
    outcome = runner.array(to_itself, MatmulOptions(), tmp_path / "a.npy", tmp_path / "out.npy", resume=True)
    assert outcome is not None and outcome.verdict.checked == SIDE**2
    again, of_each = divmod(len(runner.logged), SIDE // TILE)
    redone = set(CHECKED)  # a check that the first run had begun may have ended since
    assert of_each == 0 and again == len(redone) >= len(ROWS) - finished
    np.testing.assert_array_equal(np.load("out.npy"), np.eye(SIDE))
    assert all_of(outcome.result.spec) == ((0, SIDE), (0, SIDE))
