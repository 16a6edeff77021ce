"""Pictures of a study: lines of the rate over one launch parameter, heat maps over two."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.study.run import Finding, StudyRun
from workflows.study.study import Case, Figure

Points = list[tuple[Any, float]]


def drawable(figure: Figure, findings: Sequence[Finding]) -> bool:
    """Whether anything of a figure was timed."""
    return any(grid(figure, findings) if figure.y else lines(figure, findings))


def draw(figure: Figure, run: StudyRun) -> bytes:
    """A figure as PNG; ImportError where matplotlib is missing."""
    from matplotlib.figure import Figure as Canvas

    # Maps as wide as the numbers in their cells need.
    widths = [max(5.0, 0.65 * len(xs) + 1.5) for xs, _, _ in grid(figure, run.findings).values()] if figure.y else [9.0]
    canvas = Canvas(figsize=(sum(widths), 5), layout="constrained")
    canvas.suptitle(f"{figure.title}\n{run.environment.get('device', '')}", fontsize=11)
    (_draw_maps if figure.y else _draw_lines)(canvas, figure, run)
    file = io.BytesIO()
    canvas.savefig(file, format="png", dpi=120)
    return file.getvalue()


def lines(figure: Figure, findings: Sequence[Finding]) -> dict[str, Points]:
    """(x, rate) of every line, by its label; the best rate if other parameters vary, too."""
    best: dict[str, dict[Any, float]] = {}
    for label, x, rate in _labelled(figure, findings):
        points = best.setdefault(label, {})
        points[x] = max(rate, points.get(x, 0.0))
    return {label: sorted(points.items(), key=lambda point: _order(point[0])) for label, points in best.items()}


def grid(figure: Figure, findings: Sequence[Finding]) -> dict[str, tuple[list[Any], list[Any], NDArray[np.float64]]]:
    """(x values, y values, rates of shape (y, x)) of every heat map, by its label; NaN where nothing was timed."""
    best: dict[str, dict[tuple[Any, Any], float]] = {}
    y_name = str(figure.y)
    for finding, (label, x, rate) in zip(_timed(figure, findings), _labelled(figure, findings), strict=True):
        place = x, value_of(finding.row.case, y_name)
        rates = best.setdefault(label, {})
        rates[place] = max(rate, rates.get(place, 0.0))
    grids = {}
    for label, rates in best.items():
        xs = sorted({x for x, _ in rates}, key=_order)
        ys = sorted({y for _, y in rates}, key=_order)
        table = np.array([[rates.get((x, y), math.nan) for x in xs] for y in ys])
        grids[label] = (xs, ys, table)
    return grids


def value_of(case: Case, name: str) -> Any:
    """A launch parameter of a case, or its size: the side if all sides are equal, else the number of elements."""
    if name == "size":
        return case.sizes[0] if len(set(case.sizes)) == 1 else math.prod(case.sizes)
    return case.parameters[name]


def _timed(figure: Figure, findings: Sequence[Finding]) -> list[Finding]:
    """Findings to plot in a figure."""
    return [
        finding for finding in findings
        if finding.row.case.table == figure.table and finding.row.rate
        and all(name in ("size", None) or name in finding.row.case.parameters for name in (figure.x, figure.y))
    ]  # fmt: skip


def _labelled(figure: Figure, findings: Sequence[Finding]) -> list[tuple[str, Any, float]]:
    """(label, x, rate): the variant, with the dtype and the size if there are several."""
    timed = _timed(figure, findings)
    cases = [finding.row.case for finding in timed]
    dtypes = len({case.dtype for case in cases}) > 1
    sizes = "size" not in (figure.x, figure.y) and len({case.sizes for case in cases}) > 1
    points = []
    for finding, case in zip(timed, cases, strict=True):
        words = [case.variant, case.dtype if dtypes else "", "×".join(map(str, case.sizes)) if sizes else ""]
        points.append((" ".join(filter(None, words)), value_of(case, figure.x), float(finding.row.rate or 0)))
    return points


def _order(value: Any) -> tuple[bool, Any]:
    """Sort key: numbers in order, then strings in order."""
    return (False, value) if _is_number(value) else (True, str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _draw_lines(canvas: Any, figure: Figure, run: StudyRun) -> None:
    axes = canvas.add_subplot()
    drawn = lines(figure, run.findings)
    xs = sorted({x for points in drawn.values() for x, _ in points}, key=_order)
    logarithmic = all(_is_number(x) and x > 0 for x in xs)
    for label, points in drawn.items():
        places = [x if logarithmic else xs.index(x) for x, _ in points]
        axes.plot(places, [rate for _, rate in points], marker="o", label=label)
    if logarithmic:
        axes.set_xscale("log", base=2)
    axes.set_xticks(xs if logarithmic else range(len(xs)), [str(x) for x in xs],
                    rotation=45 if len(xs) > 8 else 0)  # fmt: skip
    axes.minorticks_off()
    axes.set_yscale("log")
    for name in dict.fromkeys(finding.limit for finding in _timed(figure, run.findings)):
        axes.axhline(run.limits[name], color="grey", linestyle="--", label=f"limit: {name}")
    axes.set(xlabel=_axis_label(figure.x, figure, run), ylabel=f"rate, {run.study.unit}")
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)


def _draw_maps(canvas: Any, figure: Figure, run: StudyRun) -> None:
    maps = grid(figure, run.findings)
    top = max(float(np.nanmax(rates)) for _, _, rates in maps.values())
    for axes, (label, (xs, ys, rates)) in zip(np.atleast_1d(canvas.subplots(1, len(maps))), maps.items(),
                                              strict=True):  # fmt: skip
        picture = axes.imshow(rates, origin="lower", aspect="auto", cmap="viridis", vmin=0, vmax=top)
        axes.set_facecolor("lightgrey")  # cases without a time
        axes.set_xticks(range(len(xs)), [str(x) for x in xs])
        axes.set_yticks(range(len(ys)), [str(y) for y in ys])
        axes.set(title=label, xlabel=_axis_label(figure.x, figure, run), ylabel=_axis_label(str(figure.y), figure, run))
        for (row, column), rate in np.ndenumerate(rates):
            if not math.isnan(rate):
                # Dark letters on the light end of the colours.
                axes.text(column, row, f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}", ha="center", va="center",
                          fontsize=7, color="black" if rate > 0.6 * top else "white")  # fmt: skip
    canvas.colorbar(picture, ax=canvas.axes, label=f"rate, {run.study.unit}")


def _axis_label(name: str, figure: Figure, run: StudyRun) -> str:
    if name != "size":
        return name.replace("_", " ")
    sizes = [finding.row.case.sizes for finding in _timed(figure, run.findings)]
    return "size, elements a side" if all(len(s) > 1 and len(set(s)) == 1 for s in sizes) else "size, elements"
