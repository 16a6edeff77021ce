"""What computation and check must not share: one of these functions is wrong, and a full check sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from kernels.histogram.binning import Binning
from kernels.histogram.check import plan
from pipeline.errors import VerificationError
from workflows import WORKFLOWS, histogram, map, stencil
from workflows.histogram_options import HistogramOptions
from workflows.matmul_shapes import Matrices
from workflows.rows import Rows, Run, Stretch
from workflows.selection import Selection

RANDOM = np.random.default_rng(7)
FLOATS = RANDOM.standard_normal((60, 200))
SAMPLES = RANDOM.integers(-100, 100, 30_000).astype(np.int16)
CHUNK = 20_000  # bytes: arrays have several regions

Wrong = Callable[[pytest.MonkeyPatch], None]


def caught(wrong: Wrong, job: str, *arrays: Any, **options: Any) -> None:
    """The job is right, and an error once something is wrong."""
    assert str(pipeline.run(job, *arrays, verify="full", **options).verification).startswith("100 % of")
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        with pytest.raises(VerificationError):
            pipeline.run(job, *arrays, verify="full", **options)


def earlier(bounds: tuple[int, int]) -> tuple[int, int]:
    """As many elements, from one earlier on."""
    start, stop = bounds
    return (start - 1, stop - 1) if start else bounds


@pytest.mark.parametrize("boundary", stencil.BOUNDARIES)
def test_which_elements_a_window_has(boundary: str) -> None:
    pieces = stencil._pieces

    def wrong(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(stencil, "_pieces", lambda *given: [earlier(bounds) for bounds in pieces(*given)])

    caught(wrong, "stencil", FLOATS, radius=3, boundary=boundary, axis=0, chunk_bytes=CHUNK)


@pytest.mark.parametrize("boundary", ["zero", "nearest", "reflect"])
def test_which_elements_lie_outside(boundary: str) -> None:
    outside = stencil._outside

    def wrong(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(stencil, "_outside", lambda *given: outside(*given)[::-1])

    caught(wrong, "stencil", FLOATS, radius=3, boundary=boundary, axis=0, chunk_bytes=CHUNK)


def test_which_elements_are_combined() -> None:
    needs = map.needs

    def moved(*given: Any) -> Any:
        first, *others = needs(*given)
        return (tuple(earlier(bounds) for bounds in first), *others)

    def wrong(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(map, "needs", moved)
        patch.setitem(WORKFLOWS, "map", replace(map.MAP, needs=moved))

    for other in (FLOATS, FLOATS[:1], FLOATS[0]):
        caught(wrong, "map", FLOATS, other, operation="add", chunk_bytes=CHUNK)


@pytest.mark.parametrize("arithmetic", ["exact", "float"])
def test_which_rows_are_multiplied(arithmetic: str) -> None:
    needs = Matrices.needs

    def moved(self: Matrices, *given: Any) -> Any:
        a, b = needs(self, *given)
        return (earlier(a[0]), *a[1:]), b

    def wrong(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Matrices, "needs", moved)

    caught(wrong, "matmul", FLOATS, FLOATS.T.copy(), arithmetic=arithmetic, chunk_bytes=CHUNK)


def other_row(self: Rows, indices: range) -> Iterator[Run]:
    """Samples of each of two rows are those of the other one."""
    for run in runs(self, indices):
        yield run._replace(row=run.row ^ 1)


def other_bounds(self: Rows, indices: range) -> Iterator[Stretch]:
    """The last sample of each row is the first one of the next."""
    for stretch in stretches(self, indices):
        if stretch.bounds is None:
            yield stretch._replace(first=(stretch.first + 1) % stretch.number)
        else:
            yield stretch._replace(bounds=np.concatenate([[0], stretch.bounds[1:-1] - 1, stretch.bounds[-1:]]))


runs, stretches, turns = Rows.runs, Rows.stretches, Rows.turns
JOBS: list[tuple[str, dict[str, Any]]] = [
    ("histogram", {"bins": 10, "range": (-100, 100)}), ("reduce", {"op": "sum,argmax"}), ("quantile", {"q": [0.5]}),
]  # fmt: skip


@pytest.mark.parametrize(("job", "options"), JOBS)
def test_which_row_a_sample_belongs_to(job: str, options: dict[str, Any]) -> None:
    caught(lambda patch: patch.setattr(Rows, "runs", other_row), job, SAMPLES, segment=15_000, **options)
    if job != "quantile":
        caught(lambda patch: patch.setattr(Rows, "stretches", other_bounds), job, SAMPLES, segment=500, **options)


@pytest.mark.parametrize("rows", [{"segment": 500}, {"segment": 10_000}, {"channels": 6}])
def test_where_in_its_row_a_sample_is(rows: dict[str, int]) -> None:
    def wrong(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Rows, "turns", lambda self, indices: turns(self, indices) + 1)

    caught(wrong, "reduce", SAMPLES, op="argmax", **rows)
    caught(wrong, "reduce", SAMPLES[:300], op="argmax", segment=500)  # one row, and no others beside it


def test_which_index_a_sample_has() -> None:
    values = Selection.values

    def moved(self: Selection, samples: Any, indices: range) -> Any:
        given = values(self, samples, indices)
        return given | {"i": given["i"] + 1}

    def wrong(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Selection, "values", moved)

    caught(wrong, "reduce", SAMPLES, op="sum", where="i < 1000")


@pytest.mark.usefixtures("shared")
def test_which_rows_of_a_file_are_multiplied(tmp_path: Path) -> None:
    """Of regions that are checked one by one."""
    needs, a, b, c = Matrices.needs, *(str(tmp_path / f"{name}.npy") for name in "abc")
    np.save(a, RANDOM.integers(-9, 9, (400, 300)).astype(np.float64))
    np.save(b, RANDOM.integers(-9, 9, (300, 400)).astype(np.float64))

    def moved(self: Matrices, *given: Any) -> Any:
        first, second = needs(self, *given)
        return (earlier(first[0]), *first[1:]), second

    asked = {"output": c, "chunk_bytes": 600_000, "memory_limit": 2**28, "verify": "full", "device": "cpu"}
    pipeline.run("matmul", a, b, **asked)
    Path(c).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Matrices, "needs", moved)
        with pytest.raises(VerificationError):
            pipeline.run("matmul", a, b, **asked)
    assert not Path(c).exists()


@pytest.mark.parametrize("rows", [{"channels": 30}, {"segment": 1000}])
def test_edges_of_each_row(rows: dict[str, int]) -> None:
    """Many rows with edges of their own: what is made for a check of each would take longer than to count its few
    samples in another way."""
    edges = np.sort(RANDOM.uniform(-90, 90, (30, 6)), axis=1)
    planned: list[Any] = []

    def wrong(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(HistogramOptions, "binning", lambda self, dtype: Binning(dtype, self.all_edges + 1, False))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram, "plan", lambda *given: planned.append(given) or plan(*given))
        caught(wrong, "histogram", SAMPLES.astype(np.float32), edges=edges, **rows)
    assert len(planned) <= 4  # of the first row, to know whether there is a check
