"""Pictures of histograms with matplotlib: bars, a log scale, shares up to a value, the ratio of two, maps of rows.

They can be read in grey, and draw no more bins than there are pixels: neighbours are drawn as one, as their mean.
matplotlib is imported where something is drawn.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workflows.aggregation import Drawn

SUFFIXES = (".png", ".svg", ".pdf")  # of files
HOW = ("counts", "log", "cumulative")
SIZE, DPI = (9.0, 4.5), 120
COLUMNS, ROWS = 600, 300  # drawn at most, in a picture of that size: none is narrower than a pixel
MOST_NAMES, MOST_CHARACTERS = 24, 20  # of rows beside a map
DARK, LIGHT = "0.25", "0.6"  # greys
MISSING = "a picture needs matplotlib; pip install 'baru[plot]'"
STYLES = ({"color": "0.1", "linestyle": "-", "linewidth": 1.2}, {"color": "0.5", "linestyle": "--", "linewidth": 1.2})
LEAST_POWER, DIGITS, MOST_DIGITS = -4, 8, 30  # of ten, for numbers that are written out; before the point, at most


class Steps(NamedTuple):
    """A histogram to draw: a height for each pair of edges, and how many bins each of them stands for at most."""

    heights: NDArray[np.float64]
    edges: NDArray[np.float64]
    together: int


def drawn_steps(counts: NDArray[Any], edges: NDArray[Any], scale: str = "linear") -> Steps:
    """Counts per bin; of more than `COLUMNS` bins, those that share a column have their mean."""
    edges = np.asarray(edges, np.float64)
    if len(counts) <= COLUMNS:
        return Steps(np.asarray(counts, np.float64), edges, 1)
    starts = _starts(edges, scale)
    sizes = np.diff(np.append(starts, len(counts)))
    heights = np.add.reduceat(np.asarray(counts, np.float64), starts) / sizes
    return Steps(heights, np.append(edges[starts], edges[-1]), int(sizes.max()))


def _starts(edges: NDArray[np.float64], scale: str) -> NDArray[np.intp]:
    """The first bin of each column: equally many bins each if they are equally wide, else by position."""
    number = len(edges) - 1
    along = np.log(edges) if scale == "log" else edges / 2  # halves: the range may exceed the largest float64
    widths = np.diff(along)
    if widths.max() <= 1.01 * widths.min():
        return np.arange(0, number, -(-number // COLUMNS))
    columns = ((along[:-1] - along[0]) / (along[-1] - along[0]) * COLUMNS).astype(int)
    return np.flatnonzero(np.diff(columns, prepend=-1))


def new_figure(height: float = SIZE[1]) -> Any:
    """An empty figure, for a file.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(MISSING) from None
    return Figure(figsize=(SIZE[0], height), dpi=DPI, layout="constrained")


def shown_figure(height: float = SIZE[1]) -> Any:
    """An empty figure that a notebook or a window shows; ImportError as `new_figure`."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError(MISSING) from None
    return pyplot.figure(figsize=(SIZE[0], height), layout="constrained")


def draw_histogram(axes: Any, result: Any, how: str = "counts") -> None:
    """Draw a histogram: its counts, the same on a log scale, or the share of samples up to each edge."""
    check_how(how)
    scale = getattr(result, "scale", "linear")
    counts, edges = result.steps()
    if how == "cumulative":
        _draw_shares(axes, result, edges)
    else:
        steps = drawn_steps(counts, edges, scale)
        heights, unit = (steps.heights, "") if how == "log" else _in_units(steps.heights)
        bottom = heights[heights > 0].min(initial=1.0) / 2 if how == "log" else 0.0
        axes.stairs(heights, steps.edges, fill=True, color=DARK, baseline=bottom)
        axes.set_yscale("log" if how == "log" else "linear")
        axes.set(ylabel=f"{unit}samples per bin{_width(edges, scale)}{_mean_of(steps.together)}")
        axes.set_ylim(bottom, None)
    axes.set(xlabel="sample value", xscale=scale, xlim=(edges[0], edges[-1]))
    axes.set_title(_title(result, "outside" if how == "cumulative" else "not drawn"), fontsize="medium")
    _plain_ticks(axes)


def check_how(how: str) -> None:
    """ValueError unless it is one of `HOW`."""
    if how not in HOW:
        raise ValueError(f"how: expected one of {', '.join(HOW)}, got {how!r}")


def draw_ratio(above: Any, below: Any, result: Any, other: Any, names: Sequence[str], how: str = "counts") -> None:
    """Draw two histograms of the same bins in one picture, and below it their ratio where the second has samples."""
    check_how(how)
    if not isinstance(other, Drawn):
        raise ValueError(f"against: expected the result of a histogram without rows, got {type(other).__name__}")
    counts, edges = result.steps()
    others, other_edges = other.steps()
    if not np.array_equal(edges, other_edges):
        raise ValueError(f"against: expected the same bins, {_bins(edges)}, got {_bins(other_edges)}")
    scale = getattr(result, "scale", "linear")
    if how == "cumulative":
        pair = [_shares(result), _shares(other)]
        for (at, shares), name, style in zip(pair, names, STYLES, strict=True):
            above.plot(at, shares, label=name, **style)
        above.set(ylabel="share of samples up to here", ylim=(0, 1))
        at, ratio = pair[0][0], _divided(pair[0][1], pair[1][1])
        below.plot(at, ratio, color=DARK)
    else:
        both = [drawn_steps(counts, edges, scale), drawn_steps(others, edges, scale)]
        top = max(float(steps.heights.max()) for steps in both)
        unit, size = ("", 1.0) if how == "log" else _unit(top)
        for steps, name, style in zip(both, names, STYLES, strict=True):
            above.stairs(steps.heights / size, edges=steps.edges, label=name, baseline=None, **style)
        above.set_yscale("log" if how == "log" else "linear")
        above.set_ylabel(f"{unit}samples per bin{_mean_of(both[0].together)}")
        if how != "log":
            above.set_ylim(0, None)
        below.stairs(_divided(both[0].heights, both[1].heights), both[0].edges, baseline=None, color=DARK)
    below.axhline(1, color=LIGHT, linestyle=":")
    above.legend()
    below.set(xlabel=f"sample value; ratio: {names[0]} / {names[1]}", ylabel="ratio")
    for axes in (above, below):
        axes.set(xscale=scale, xlim=(edges[0], edges[-1]))
        _plain_ticks(axes)
    above.tick_params(labelbottom=False)


def draw_map(
    axes: Any, values: NDArray[Any], edges: NDArray[Any], what: str, names: Sequence[str], how: str = "counts"
) -> None:
    """Draw rows from top to bottom, darker where there is more; neighbours that share a pixel as their mean."""
    if how not in ("counts", "log"):
        raise ValueError(f"how: expected counts or log for rows, got {how!r}")
    columns, rows = (-(-length // most) for length, most in zip(values.shape[::-1], (COLUMNS, ROWS), strict=True))
    means = _means(_means(np.asarray(values, np.float64), columns, 1), rows, 0)
    starts = np.arange(0, values.shape[1], columns)
    borders = np.append(np.arange(0, len(values), rows), len(values)) - 0.5
    means, unit = (means, "") if how == "log" else _in_units(means)
    shades: dict[str, Any] = {"vmin": 0}
    if how == "log":
        from matplotlib.colors import LogNorm

        least = means[means > 0].min(initial=max(float(means.max()), 1.0))
        shades = {"norm": LogNorm(least, max(float(means.max()), 2 * least))}
        means = np.ma.masked_equal(means, 0)  # white
    drawn = axes.pcolormesh(np.append(edges[starts], edges[-1]), borders, means, cmap="Greys", rasterized=True,
                            **shades)  # fmt: skip
    of_rows = f", mean of {rows} rows" if rows > 1 else ""
    axes.set(xlabel="sample value", ylabel=what, ylim=(borders[-1], borders[0]), xlim=(edges[0], edges[-1]))
    if len(names) <= MOST_NAMES:
        axes.set_yticks(range(len(names)), literal([os.path.basename(name)[-MOST_CHARACTERS:] for name in names]))
    else:
        axes.yaxis.set_major_formatter(lambda value, _: plain(value))
    axes.xaxis.set_major_formatter(lambda value, _: plain(value))
    label = f"{unit}samples per bin{_mean_of(columns)}{of_rows}"
    bar = axes.figure.colorbar(drawn, ax=axes, label=label)
    bar.ax.yaxis.set_major_formatter(lambda value, _: plain(value, MOST_DIGITS))
    bar.ax.yaxis.set_minor_formatter(lambda value, _: "")


def _means(values: NDArray[np.float64], together: int, axis: int) -> NDArray[np.float64]:
    """Means of so many neighbours along an axis; the last ones may be fewer."""
    if together == 1:
        return values
    starts = np.arange(0, values.shape[axis], together)
    sizes = np.diff(np.append(starts, values.shape[axis]))
    summed = np.add.reduceat(values, starts, axis=axis)
    return summed / (sizes if axis else sizes[:, None])


def _draw_shares(axes: Any, result: Any, edges: NDArray[Any]) -> None:
    at, shares = _shares(result)
    axes.plot(at, shares, color=DARK)
    axes.set(ylabel=f"share of samples{', without NaN,' if result.nan else ''} up to here", ylim=(0, 1))
    axes.grid(True, alpha=0.3)


def _shares(result: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Edges, and the share of the samples that are no NaN up to each."""
    counts, edges = result.steps()
    up_to = result.underflow + np.append(0, np.cumsum(counts, dtype=np.int64))
    total = int(up_to[-1]) + result.overflow
    shares = up_to / max(total, 1)
    if len(edges) <= COLUMNS:
        return edges, shares
    some = np.append(_starts(edges, getattr(result, "scale", "linear")), len(edges) - 1)
    return edges[some], shares[some]


def _divided(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ratios; NaN, which is not drawn, where there would be none."""
    ratios = np.full(len(above), np.nan)
    np.divide(above, below, out=ratios, where=below > 0)
    return ratios


def _unit(top: float) -> tuple[str, float]:
    """A word for the size of numbers, so that none of them needs an exponent."""
    for word, size in (("trillion ", 1e12), ("billion ", 1e9), ("million ", 1e6)):
        if top >= 10 * size:
            return word, size
    return "", 1.0


def _in_units(heights: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    unit, size = _unit(float(heights.max(initial=0.0)))
    return heights / size, unit


def _width(edges: NDArray[Any], scale: str) -> str:
    """The width of the bins, if they have one."""
    widths = np.diff(np.asarray(edges, np.float64) / 2) * 2
    even = scale == "linear" and math.isfinite(widths.max()) and widths.max() <= (1 + 1e-9) * widths.min()
    return f" of {plain(float(widths[0]))}" if even else ""


def _mean_of(together: int) -> str:
    return f", mean of {together} bins" if together > 1 else ""


def _bins(edges: NDArray[Any]) -> str:
    return f"{len(edges) - 1:,} in [{edges[0]:g}, {edges[-1]:g}]"


def literal(names: Iterable[str]) -> list[str]:
    """Names of files for matplotlib, to which text between dollars is a formula; it takes UTF-8 only."""
    return [os.fsencode(name).decode(errors="backslashreplace").replace("$", r"\$") for name in names]


def _title(result: Any, where: str) -> str:
    """How many samples there are, and how many of them are in no bin."""
    left = {"below the range": result.underflow, "above it": result.overflow, "NaN": result.nan}
    outside = [f"{number:,} {name}" for name, number in left.items() if number]
    return f"{result.samples:,} samples{f'; {where}: ' if outside else ''}{', '.join(outside)}"


def _plain_ticks(axes: Any) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: plain(value))
    axes.yaxis.set_major_formatter(lambda value, _: plain(value, MOST_DIGITS))
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log" and np.ptp(np.log10(np.maximum(axis.get_view_interval(), 1e-300))) > 1:
            axis.set_minor_formatter(lambda value, _: "")


def plain(value: float, digits: int = DIGITS) -> str:
    """A number as people write it: 1,000,000 and 0.0001 rather than 1e+06 and 1e-04, unless it is very long."""
    if value and not LEAST_POWER <= math.floor(math.log10(abs(value))) < digits:
        return f"{value:g}"
    text = np.format_float_positional(abs(float(f"{value:.6g}")), trim="-")
    whole, _, rest = text.partition(".")
    sign = "\N{MINUS SIGN}" if value < 0 else ""
    return f"{sign}{int(whole):,}{f'.{rest}' if rest else ''}"
