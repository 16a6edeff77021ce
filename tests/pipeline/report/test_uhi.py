"""Histograms as UHI in a `.json` file: what other programs read, and what `uhi add` adds up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import boost_histogram as bh
import numpy as np
import pytest
import uhi.__main__
import uhi.schema
from uhi.numpy_plottable import ensure_plottable_histogram

from pipeline.report.result_file import render
from pipeline.storage.atomic_file import write_file
from workflows.histogram import HistogramResult
from workflows.rows import Rows
from workflows.rows_result import HistogramRows

EDGES = np.array([-0.1, 0.2, 1 / 3, 1e300])
RESULT = HistogramResult(np.array([1, 2**40, 0]), EDGES, underflow=5, overflow=6, nan=7, regular=False)
REGULAR = HistogramResult(np.array([3, 4]), np.array([0.0, 0.5, 1.0]), underflow=0, overflow=0, nan=0, regular=True)


@pytest.mark.parametrize("result", [RESULT, REGULAR], ids=["variable", "regular"])
def test_json_is_uhi(tmp_path: Path, result: HistogramResult) -> None:
    path = tmp_path / "result.json"
    write_file(path, render(str(path), result))
    document = json.loads(path.read_text(encoding="ascii"))
    uhi.schema.validate(document)
    assert list(document) == ["histogram", "nan"]
    assert (document["nan"]["axes"], document["nan"]["storage"]) == ([], {"type": "int", "values": result.nan})
    document = document["histogram"]
    values = [result.underflow, *result.counts.tolist(), result.overflow]
    assert document["storage"] == {"type": "int", "values": values}
    (axis,) = document["axes"]
    assert (axis["underflow"], axis["overflow"]) == (True, True)
    if result.regular:
        assert (axis["type"], axis["lower"], axis["upper"], axis["bins"]) == ("regular", 0.0, 1.0, 2)
    else:
        assert (axis["type"], axis["edges"]) == ("variable", EDGES.tolist())


def test_uhi_add_loses_no_count(tmp_path: Path) -> None:
    """Of files with 7 NaN and 2 of them, the second not the first."""
    other = HistogramResult(np.array([10, 20, 30]), EDGES, underflow=1, overflow=3, nan=2, regular=False)
    paths = [str(tmp_path / name) for name in ("a.json", "b.json", "sum.json")]
    for path, result in zip(paths, (RESULT, other), strict=False):
        write_file(path, render(path, result))
    uhi.__main__.main(["add", paths[2], *paths[:2]])
    document = json.loads(Path(paths[2]).read_bytes())
    assert document["histogram"]["storage"]["values"] == [6, 11, 2**40 + 20, 30, 9]
    assert document["nan"]["storage"]["values"] == 9
    loaded = {name: bh.Histogram(bh.serialization.from_uhi(single)) for name, single in document.items()}
    assert loaded["histogram"].view(flow=True).tolist() == [6, 11, 2**40 + 20, 30, 9]
    assert int(loaded["nan"].view()) == 9


@pytest.mark.parametrize("result", [RESULT, REGULAR], ids=["variable", "regular"])
def test_other_libraries_take_the_result_itself(result: HistogramResult) -> None:
    loaded = bh.Histogram(result)
    np.testing.assert_array_equal(loaded.values(flow=True), result.values(flow=True))
    np.testing.assert_array_equal(loaded.axes[0].edges, result.edges)
    plottable = ensure_plottable_histogram(result)
    assert (plottable.kind, len(plottable.axes), plottable.axes[0].traits.discrete) == ("COUNT", 1, False)
    assert list(plottable.axes[0]) == list(zip(result.edges[:-1], result.edges[1:], strict=True))
    assert plottable.axes[0] == plottable.axes[0] and plottable.axes[0][-1] == tuple(result.edges[-2:])
    np.testing.assert_array_equal(plottable.values(), result.counts)
    np.testing.assert_array_equal(plottable.variances(), result.counts)


@pytest.mark.parametrize("names", [(), ("a", "b")])
def test_histograms_of_rows(names: tuple[str, ...]) -> None:
    rows = Rows("file", (2,), None, sizes=(3, 4), names=names)
    result = HistogramRows(rows, (REGULAR, replace(REGULAR, underflow=9, nan=1)))
    document = json.loads(render("rows.json", result))
    uhi.schema.validate(document)
    for loaded in (bh.Histogram(result), bh.Histogram(bh.serialization.from_uhi(document["histogram"]))):
        np.testing.assert_array_equal(loaded.values(flow=True), [[0, 3, 4, 0], [9, 3, 4, 0]])
    assert bh.Histogram(bh.serialization.from_uhi(document["nan"])).values().tolist() == [0, 1]
    plottable = ensure_plottable_histogram(result)
    assert list(plottable.axes[0]) == list(names or [(0, 1), (1, 2)])
    np.testing.assert_array_equal(plottable.values(), [[3, 4], [3, 4]])
