"""Pictures of a study: lines of times and rates over one launch parameter, heat maps over two.

Lines differ in marks and dashes, and the colours of heat maps in lightness: they can be read without colours.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.study import drawings
from pipeline.study.run import Finding, StudyRun
from workflows.study.drawing import Drawing
from workflows.study.study import Case, Figure, Row

Points = list[tuple[Any, float]]
IN_COURSE = ", course"
MARKS, DASHES = "os^DvPX*", ("-", "--", "-.")  # of different lengths, so that eight marks make 24 kinds of lines


def drawable(figure: Figure, findings: Sequence[Finding]) -> bool:
    """Whether anything of a figure was timed."""
    return any(grid(figure, findings) if figure.y else lines(figure, findings))


def drawing_png(drawing: Drawing) -> bytes:
    """A drawing as PNG; ImportError where matplotlib is missing."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=drawings.size(drawing), layout="constrained")
    canvas.suptitle(drawing.title, fontsize=11)
    drawings.draw(drawing, canvas)
    return _png(canvas)


def draw(figure: Figure, run: StudyRun) -> bytes:
    """A figure as PNG; ImportError where matplotlib is missing."""
    from matplotlib.figure import Figure as Canvas

    # Maps as wide as the numbers in their cells need.
    maps = grid(figure, run.findings).values() if figure.y else ()
    widths = [max(5.0, 0.65 * len(xs) + 1.5) for xs, _, _ in maps] or [13.0]
    canvas = Canvas(figsize=(sum(widths), 5), layout="constrained")
    canvas.suptitle(f"{figure.title}\n{run.environment.get('device', '')}", fontsize=11)
    (_draw_maps if figure.y else _draw_lines)(canvas, figure, run)
    return _png(canvas)


def _png(canvas: Any) -> bytes:
    file = io.BytesIO()
    canvas.savefig(file, format="png", dpi=120)
    return file.getvalue()


def lines(figure: Figure, findings: Sequence[Finding]) -> dict[str, Points]:
    """(x, rate) of every line, by its label; the best rate if other parameters vary, too."""
    return _best(figure, findings, lambda row: row.rate, max)


def times(figure: Figure, findings: Sequence[Finding]) -> dict[str, Points]:
    """(x, milliseconds) of every line, as in `lines`; and of the course, where it reports any."""
    ours = _best(figure, findings, lambda row: row.ms, min)
    theirs = _best(figure, findings, lambda row: row.case.course_ms, min)
    return ours | {f"{label}{IN_COURSE}": points for label, points in theirs.items()}


def _best(
    figure: Figure, findings: Sequence[Finding], value: Callable[[Row], float | None], choose: Callable[..., float]
) -> dict[str, Points]:
    best: dict[str, dict[Any, float]] = {}
    for label, x, finding in _labelled(figure, findings):
        if (number := value(finding.row)) is not None:
            points = best.setdefault(label, {})
            points[x] = choose(number, points.get(x, number))
    return {label: sorted(points.items(), key=lambda point: _order(point[0])) for label, points in best.items()}


def grid(figure: Figure, findings: Sequence[Finding]) -> dict[str, tuple[list[Any], list[Any], NDArray[np.float64]]]:
    """(x values, y values, rates of shape (y, x)) of every heat map, by its label; NaN where nothing was timed."""
    best: dict[str, dict[tuple[Any, Any], float]] = {}
    y_name = str(figure.y)
    for label, x, finding in _labelled(figure, findings):
        place = x, value_of(finding.row.case, y_name)
        rates = best.setdefault(label, {})
        rates[place] = max(finding.row.rate or 0.0, rates.get(place, 0.0))
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


def _labelled(figure: Figure, findings: Sequence[Finding]) -> list[tuple[str, Any, Finding]]:
    """(label, x, finding): the variant, with the dtype and the size if there are several."""
    timed = _timed(figure, findings)
    cases = [finding.row.case for finding in timed]
    dtypes = len({case.dtype for case in cases}) > 1
    sizes = "size" not in (figure.x, figure.y) and len({case.sizes for case in cases}) > 1
    points = []
    for finding, case in zip(timed, cases, strict=True):
        words = [case.variant, case.dtype if dtypes else "", "×".join(map(str, case.sizes)) if sizes else ""]
        points.append((" ".join(filter(None, words)), value_of(case, figure.x), finding))
    return points


def _order(value: Any) -> tuple[bool, Any]:
    """Sort key: numbers in order, then strings in order."""
    return (False, value) if _is_number(value) else (True, str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _draw_lines(canvas: Any, figure: Figure, run: StudyRun) -> None:
    of_time, of_rate = canvas.subplots(1, 2)
    _draw_panel(of_time, figure, run, times(figure, run.findings))
    of_time.set_ylabel("time, ms")
    _draw_panel(of_rate, figure, run, lines(figure, run.findings))
    for name in dict.fromkeys(finding.limit for finding in _timed(figure, run.findings)):
        of_rate.axhline(run.limits[name], color="grey", linestyle=":", label=f"limit: {name}")
    of_rate.set_ylabel(f"rate, {run.study.unit}")
    for axes in (of_time, of_rate):
        axes.legend(fontsize=8)


def _draw_panel(axes: Any, figure: Figure, run: StudyRun, drawn: dict[str, Points]) -> None:
    """One line for each label; those of the course are thin, with open marks of the same shape."""
    xs = sorted({x for points in drawn.values() for x, _ in points}, key=_order)
    logarithmic = all(_is_number(x) and x > 0 for x in xs)
    shapes = {label: number for number, label in enumerate(label for label in drawn if not label.endswith(IN_COURSE))}
    for label, points in drawn.items():
        number = shapes[label.removesuffix(IN_COURSE)]
        of_course = {"markerfacecolor": "none", "linewidth": 0.8} if label.endswith(IN_COURSE) else {}
        places = [x if logarithmic else xs.index(x) for x, _ in points]
        axes.plot(places, [value for _, value in points], label=label, color=f"C{number}",
                  marker=MARKS[number % len(MARKS)], linestyle=DASHES[number % len(DASHES)], **of_course)  # fmt: skip
    if logarithmic:
        axes.set_xscale("log", base=2)
    axes.set_xticks(xs if logarithmic else range(len(xs)), [str(x) for x in xs],
                    rotation=45 if len(xs) > 8 else 0)  # fmt: skip
    axes.minorticks_off()
    axes.set_yscale("log")
    axes.set_xlabel(_axis_label(figure.x, figure, run))
    axes.grid(True, alpha=0.3)


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
