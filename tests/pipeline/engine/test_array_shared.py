"""Parts of matrices that tiles of a product share: read to the device once, told apart, freed."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.engine.array_gpu
from pipeline.engine.array_gpu import compute_on_device
from pipeline.engine.array_plan import nbytes_of
from pipeline.engine.array_task import compute_regions
from pipeline.engine.replay import compute_regions_again
from pipeline.gpu import resident
from pipeline.storage.output_file import output_file
from pipeline.timeline import Timeline
from tests.pipeline.engine.test_array_gpu import job_of
from tests.pipeline.engine.test_array_gpu import limits as limits
from workflows.matmul import MATMUL, MatmulOptions
from workflows.regions import Spec


@pytest.mark.gpu
@pytest.mark.parametrize(("order", "layout"), [("<", "C"), (">", "C"), ("<", "F")])
@pytest.mark.parametrize(("run", "limit", "reads"), [("a run", None, 2 + 3), ("", None, 12), ("a run", 2**30, 12)])
def test_tiles_of_a_product_read_what_they_share_once(
    tmp_path: Path, limits: list[int], monkeypatch: pytest.MonkeyPatch, order: str, layout: Any, run: str,
    limit: int | None, reads: int,
) -> None:  # fmt: skip
    """Rows of A for all tiles beside each other, columns of B for all above each other; not within a limit."""
    resident.forget()
    shapes = (40, 30), (30, 60)
    a, b = (np.random.default_rng(0).integers(-99, 99, shape).astype(f"{order}f4", layout) for shape in shapes)
    on = job_of(tmp_path, MATMUL, MatmulOptions(), a, b, limit=limit)
    asked: list[Any] = []
    given = pipeline.engine.array_gpu._to_device

    def noted(array: Any, bounds: Any, timeline: Timeline) -> Any:
        asked.append((array, bounds))
        return given(array, bounds, timeline)

    monkeypatch.setattr(pipeline.engine.array_gpu, "_to_device", noted)
    spec, timeline = Spec((40, 60), np.dtype("f4")), Timeline()
    with output_file(str(tmp_path / "out.npy"), spec) as ready:
        plan = replace(on(ready()), run=run)
        for region in itertools.product([(0, 20), (20, 40)], [(0, 20), (20, 40), (40, 60)]):
            compute_on_device(plan, region, timeline)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), a.astype("f8") @ b)
    assert len(asked) == reads and sum(
        timeline.nbytes[name] for name in ("read", "read+copy") if name in timeline.nbytes
    ) == sum(nbytes_of(array.spec, bounds) for array, bounds in asked)
    assert resident.forget() == (reads == 5)


@pytest.mark.gpu
def test_slabs_of_both_factors_are_told_apart_and_replays_read_again(
    tmp_path: Path, limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slab of A and one of B may have the same bounds."""
    resident.forget()
    monkeypatch.setattr("workflows.matmul.SLAB", 20)
    for name, module in itertools.product(
        ("device_name", "unit_name", "worker_address"), ("array_task", "array_journal", "replay")
    ):
        monkeypatch.setattr(f"pipeline.engine.{module}.{name}", lambda *_: "here")
    a, b = (np.random.default_rng(n).integers(-99, 99, (40, 40)).astype("f4") for n in range(2))
    on = job_of(tmp_path, MATMUL, MatmulOptions(), a, b)
    asked: list[Any] = []
    given = pipeline.engine.array_gpu._to_device
    monkeypatch.setattr(pipeline.engine.array_gpu, "_to_device", lambda *one: asked.append(one) or given(*one))
    regions = list(itertools.product([(0, 20), (20, 40)], repeat=2))
    with output_file(str(tmp_path / "out.npy"), Spec((40, 40), np.dtype("f4"))) as ready:
        plan = replace(on(ready()), run="a run")
        compute_regions(plan, regions, "gpu")
        assert len(asked) == 4 + 4
        assert compute_regions_again(plan, regions[:1], "gpu").same and len(asked) == 8 + 2 * 4
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), a.astype("f8") @ b)


@pytest.mark.gpu
def test_without_room_a_region_holds_no_more_than_a_slab(
    tmp_path: Path, limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long its sums are."""
    resident.forget()
    monkeypatch.setattr("workflows.matmul.SLAB", 10)
    monkeypatch.setattr(resident, "_room", lambda nbytes: False)
    a, b = (
        np.random.default_rng(n).integers(-99, 99, shape).astype("f4") for n, shape in enumerate(((40, 90), (90, 40)))
    )
    given, loaded, alive = pipeline.engine.array_gpu._to_device, list[Any](), list[int]()

    def noted(*one: Any) -> Any:
        alive.append(sum(part() is not None for part in loaded))
        block = given(*one)
        loaded.append(weakref.ref(block))
        return block

    monkeypatch.setattr(pipeline.engine.array_gpu, "_to_device", noted)
    with output_file(str(tmp_path / "out.npy"), Spec((40, 40), np.dtype("f4"))) as ready:
        plan = replace(job_of(tmp_path, MATMUL, MatmulOptions(), a, b)(ready()), run="a run")
        for region in itertools.product([(0, 20), (20, 40)], repeat=2):
            compute_on_device(plan, region, Timeline())
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), a.astype("f8") @ b)
    assert len(alive) == 4 * 2 * 2 * 9 and max(alive) <= 2


@pytest.mark.gpu
def test_a_product_of_one_region_keeps_nothing(tmp_path: Path, limits: list[int]) -> None:
    resident.forget()
    a = np.eye(5, dtype="f4")
    with output_file(str(tmp_path / "out.npy"), Spec((5, 5), a.dtype)) as ready:
        plan = replace(job_of(tmp_path, MATMUL, MatmulOptions(), a, a)(ready()), run="a run")
        compute_on_device(plan, ((0, 5), (0, 5)), Timeline())
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), a)
    assert not resident.forget()
