"""Results that a program keeps, copies and changes."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import UsageError


def test_edges_belong_to_nobody() -> None:
    """Results of equal options share them: after a program had changed those of one, the next run counted by them."""
    samples = np.arange(100, dtype=np.int32)
    first = pipeline.run("histogram", samples, bins=5, range=(0, 100))
    with pytest.raises(ValueError, match="read-only"):
        first.edges[:] *= 2
    again = pipeline.run("histogram", samples.astype(np.float64), bins=5, range=(0, 100))
    assert again.counts.tolist() == [20] * 5 and again.edges.tolist() == [0, 20, 40, 60, 80, 100]


@pytest.mark.parametrize("bins", [5, 50_000])  # more than what is kept for later calls
def test_edges_that_the_caller_changes_later(bins: int) -> None:
    edges = np.linspace(0, 100, bins + 1)
    view = edges.view()
    view.flags.writeable = False
    results = [pipeline.run("histogram", np.arange(100), edges=given) for given in (edges, view)]
    edges[1:] += 1  # the caller's own
    for result in results:
        np.testing.assert_array_equal(result.edges, np.linspace(0, 100, bins + 1))


@pytest.mark.parametrize("edges", [np.array([0, 1 + 1j]), np.ma.masked_equal([0.0, 25.0, 50.0], 25), [0, 10**400]])
def test_edges_that_would_be_cut(edges: Any) -> None:
    with pytest.raises(UsageError, match="--edges: expected an array of ascending numbers, got"):
        pipeline.run("histogram", np.arange(100), edges=edges)
    with pytest.raises(UsageError, match="--range: expected LO HI or auto, got"):
        pipeline.run("histogram", np.arange(100), range=(0, 10**400))


@pytest.mark.parametrize("suffix", [".npy", ".bin"])
def test_array_stays_what_the_job_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """It was looked for under its name at each access, and became what the next run wrote there."""
    monkeypatch.chdir(tmp_path)
    matrix, path = np.arange(12).reshape(3, 4), f"t{suffix}"
    first = pipeline.run("transpose", matrix, output=path)
    second = pipeline.run("transpose", matrix + 1, output=path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    np.testing.assert_array_equal(first.array, matrix.T)
    np.testing.assert_array_equal(second.array, matrix.T + 1)
    (tmp_path / path).unlink()
    np.testing.assert_array_equal(second.array, matrix.T + 1)
    assert not first.array.flags.writeable


def test_pickled_array_is_its_name(tmp_path: Path) -> None:
    """Its elements stay in the file, also once they were looked at."""
    result = pipeline.run("transpose", np.zeros((1000, 1000)), output=tmp_path / "t.npy")
    content = pickle.dumps(result)
    assert len(content) < 10_000
    for one in (pickle.loads(content), copy.deepcopy(result)):
        assert one == result and one.array.shape == (1000, 1000)


def test_results_compare_and_print() -> None:
    """Histograms of their own arrays did not compare; what selects samples printed as an object."""
    one, same, other = (pipeline.run("histogram", np.arange(10), bins=bins, range=(0, 10)) for bins in (5, 5, 2))
    assert one == pickle.loads(pickle.dumps(same)) and one != other and one != "histogram"

    def run(where: str, **rows: int) -> Any:
        return pipeline.run("histogram", np.arange(10), bins=2, range=(0, 10), where=where, **rows)

    for rows in ({}, {"segment": 5}):
        result = run("x < 7", **rows)
        assert result == run("x < 7", **rows) == pickle.loads(pickle.dumps(result)) and result != run("x < 6", **rows)
        assert f"excluded={result.excluded}" in repr(result) and repr(result.result) in repr(result)


@pytest.mark.parametrize("rows", [{"channels": 100}, {"segment": 100}, {"axis": 1}])
def test_rows_by_narrow_integers(rows: dict[str, int]) -> None:
    """They wrapped, or failed, once they were multiplied."""
    samples = np.arange(3000).reshape(30, 100)
    expected = pipeline.run("reduce", samples, op="sum", **rows).arrays()["sum"]
    narrow = {name: np.int8(value) for name, value in rows.items()}
    np.testing.assert_array_equal(pipeline.run("reduce", samples, op="sum", **narrow).arrays()["sum"], expected)
