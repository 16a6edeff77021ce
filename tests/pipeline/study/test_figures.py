"""The place of every measurement in a figure."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

from pipeline.study.figures import _draw_panel, draw, drawable, drawing_png, grid, lines, times, value_of
from pipeline.study.run import Finding, StudyRun, run_study
from tests.cases.toy_study import WHOLE, FakeDevice, case, toy
from workflows.study.registry import STUDIES
from workflows.study.study import Case, Figure, Row, Study, parameters

HEAT_MAP = Figure("t", "Blocks", "x", "y")


def finding(rate: float | None, variant: str = "double", sizes: tuple[int, ...] = (8, 8), dtype: str = "float32",
            **values: object) -> Finding:  # fmt: skip
    case = Case("t", variant, sizes, dtype, parameters(**values))
    return Finding(Row(case, rate is not None, ms=1.0 if rate else None, rate=rate), "verified", "read")


def run_of(study: Study, *findings: Finding) -> StudyRun:
    return StudyRun(study, findings, (), {"read": 100.0}, {"device": "NumPy"})


def test_heat_map() -> None:
    findings = [finding(10.0, x=1, y=16), finding(20.0, x=2, y=16), finding(5.0, x=16, y=1), finding(None, x=32, y=64),
             finding(3.0, x=16, y=1)]  # fmt: skip
    ((label, (xs, ys, rates)),) = grid(HEAT_MAP, findings).items()
    assert label == "double" and xs == [1, 2, 16] and ys == [1, 16]
    expected = [[math.nan, math.nan, 5.0], [10.0, 20.0, math.nan]]
    np.testing.assert_array_equal(rates, expected)


def test_a_heat_map_for_each_variant_and_dtype() -> None:
    findings = [finding(1.0, variant=v, dtype=d, x=1, y=1) for v in ("a", "b") for d in ("float32", "float64")]
    assert list(grid(HEAT_MAP, findings)) == ["a float32", "a float64", "b float32", "b float64"]
    one, four = (
        imread(io.BytesIO(draw(HEAT_MAP, run_of(toy(), *shown))), format="png").shape
        for shown in (findings[:1], findings)
    )
    assert four[1] == 4 * one[1]


def test_lines() -> None:
    figure = Figure("t", "Blocks", "block")
    findings = [finding(2.0, block=64), finding(1.0, block=32), finding(7.0, block=32, slice=2),
             finding(3.0, "b", block=32), finding(4.0, "b", (9, 9), block=64), finding(None, "c", block=32),
             finding(9.0, "d")]  # fmt: skip
    assert lines(figure, findings) == {"double 8×8": [(32, 7.0), (64, 2.0)], "b 8×8": [(32, 3.0)], "b 9×9": [(64, 4.0)]}


def test_lines_over_size() -> None:
    findings = [finding(1.0, sizes=(32, 32)), finding(2.0, sizes=(16, 16))]
    assert lines(Figure("t", "Sizes", "size"), findings) == {"double": [(16, 2.0), (32, 1.0)]}
    assert value_of(case("double", n=5), "size") == 5
    assert value_of(Case("t", "v", (2, 3), "int32"), "size") == 6


def test_words_are_drawn_in_their_order() -> None:
    figure = Figure("t", "Layouts", "layout")
    findings = [finding(1.0, layout="rows"), finding(2.0, layout="columns")]
    assert lines(figure, findings)["double"] == [("columns", 2.0), ("rows", 1.0)]
    assert draw(figure, run_of(toy(), *findings)).startswith(b"\x89PNG")


def test_drawable() -> None:
    assert drawable(HEAT_MAP, [finding(1.0, x=1, y=1)])
    assert not drawable(HEAT_MAP, [finding(None, x=1, y=1), finding(1.0, x=1)])
    assert not drawable(Figure("another", "", "x"), [finding(1.0, x=1)])


def test_pictures_have_colours() -> None:
    run = run_study(WHOLE, WHOLE.cases, FakeDevice())
    for figure in WHOLE.figures:
        picture = imread(io.BytesIO(draw(figure, run)), format="png")
        assert picture.shape[0] == 600 and len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 50


def test_times_and_those_of_the_course() -> None:
    figure = Figure("t", "Blocks", "block")
    first, second = finding(2.0, block=64), finding(1.0, block=32)
    first = replace(first, row=replace(first.row, ms=5.0, case=replace(first.row.case, course_ms=8.0)))
    assert times(figure, [first, second]) == {"double": [(32, 1.0), (64, 5.0)], "double, course": [(64, 8.0)]}
    assert draw(figure, run_of(toy(), first, second)).startswith(b"\x89PNG")


def test_lines_differ_without_colours() -> None:
    """By mark or dashes; a line of the course has the mark of ours, open."""
    from matplotlib.figure import Figure as Canvas

    figure = Figure("t", "Blocks", "block")
    findings = [finding(1.0 + number, f"v{number}", block=block) for number in range(12) for block in (1, 2)]
    findings = [replace(one, row=replace(one.row, case=replace(one.row.case, course_ms=3.0))) for one in findings]
    axes = Canvas().subplots()
    _draw_panel(axes, figure, run_of(toy(), *findings), times(figure, findings))
    kinds = {line.get_label(): (line.get_marker(), line.get_linestyle()) for line in axes.get_lines()}
    assert len({kinds[f"v{number}"] for number in range(12)}) == 12
    assert all(kinds[f"v{number}"] == kinds[f"v{number}, course"] for number in range(12))
    assert {line.get_markerfacecolor() for line in axes.get_lines() if "course" in line.get_label()} == {"none"}


@pytest.mark.parametrize(("job", "number"), [("reduce", 1), ("transpose", 1)])
def test_drawings_are_grey(job: str, number: int) -> None:
    drawings = STUDIES[job].drawings
    assert len(drawings) == number
    for drawing in drawings:
        picture = imread(io.BytesIO(drawing_png(drawing)), format="png")[..., :3]
        assert np.ptp(picture, axis=2).max() < 0.02 and len(np.unique(picture)) > 50
