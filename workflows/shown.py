"""How results are shown: in notebooks as a table with a small drawing, and as pictures on request."""

from __future__ import annotations

from typing import Any

import numpy as np

from workflows import pictures

WIDTH, HEIGHT = 480, 90  # of the drawing
MOST_LINES = 40


def how_many(number: int, noun: str = "sample") -> str:
    """The number and its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Shown:
    """A result that notebooks show as a table of its lines."""

    def _repr_html_(self) -> str:
        """What notebooks show: label and text of every line, what was checked, and a drawing of a histogram."""
        from html import escape

        lines = [(name, text) for name, text in self.lines()[:MOST_LINES] if text]  # type: ignore[attr-defined]
        if (verdict := getattr(self, "verification", None)) is not None:
            lines.append(("verdict", str(verdict)))
        bars = ";white-space:pre;font-family:monospace" if any("█" in text for _, text in lines) else ""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left{bars}">{escape(text)}</td></tr>'
            for name, text in lines
        )
        drawing = sketch(*self.steps()) if hasattr(self, "steps") else ""
        return f"<div>{drawing}<table>{rows}</table></div>"


class PlottedHistogram(Shown):
    """A histogram that draws itself."""

    def plot(self, axes: Any = None, how: str = "counts", against: Any = None, names: Any = ("this", "other")) -> Any:
        """Draw the histogram with matplotlib.

        Parameters
        ----------
        axes
            Of matplotlib; two of them, the histograms' and the ratio's, with `against`. By default a new figure.
        how
            ``"counts"``; ``"log"``, the same on a logarithmic scale; or ``"cumulative"``, the share of the samples up
            to each edge.
        against
            Another histogram with the same bins: both are drawn, and below them their ratio.
        names
            Of the two in the legend.

        Returns
        -------
        The axes.

        Raises
        ------
        ImportError
            If matplotlib is missing.
        ValueError
            If `how` is none of these, or the bins of `against` are others.

        Examples
        --------
        >>> import numpy, pipeline
        >>> counts = pipeline.run("histogram", numpy.arange(100), bins=10, range=(0, 100))
        >>> counts.plot(how="log").get_xlabel()
        'sample value'
        """
        if against is None:
            axes = pictures.shown_figure().add_subplot() if axes is None else axes
            pictures.draw_histogram(axes, self, how)
            return axes
        above, below = two_axes(pictures.shown_figure(pictures.SIZE[1] * 1.4)) if axes is None else axes
        pictures.draw_ratio(above, below, self, against, names, how)
        return above, below


class PlottedRows(Shown):
    """Histograms of rows, which draw themselves as a map."""

    def plot(self, axes: Any = None, how: str = "counts") -> Any:
        """Draw the rows with matplotlib: a line each, from top to bottom, darker where there are more samples.

        Parameters
        ----------
        axes
            Of matplotlib; by default those of a new figure.
        how
            ``"counts"``, or ``"log"`` for shades on a logarithmic scale.

        Returns
        -------
        The axes.

        Raises
        ------
        ImportError
            If matplotlib is missing.
        ValueError
            If `how` is none of these.

        Examples
        --------
        >>> import numpy, pipeline
        >>> rows = pipeline.run("histogram", numpy.arange(100), segment=20, bins=10, range=(0, 100))
        >>> rows.plot().get_ylabel()
        'segment'
        """
        axes = pictures.shown_figure().add_subplot() if axes is None else axes
        values, edges, what, names = self.heat()  # type: ignore[attr-defined]
        pictures.draw_map(axes, values, edges, what, names, how)
        return axes


def two_axes(figure: Any) -> tuple[Any, Any]:
    """Axes above each other, for histograms and for their ratio."""
    above, below = figure.subplots(2, 1, height_ratios=(3, 1), sharex=False)
    return above, below


def sketch(counts: Any, edges: Any) -> str:
    """A histogram as SVG, from zero to its fullest bin, on an axis whose ends are named."""
    heights = pictures.drawn_steps(np.asarray(counts), np.asarray(edges)).heights
    top = float(heights.max(initial=0.0)) or 1.0
    across = np.linspace(0, WIDTH, len(heights) + 1)
    points = " ".join(
        f"{left:.1f},{y:.1f} {right:.1f},{y:.1f}"
        for left, right, y in zip(across, across[1:], HEIGHT * (1 - heights / top), strict=False)
    )
    left, right = pictures.plain(float(edges[0])), pictures.plain(float(edges[-1]))
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT + 16}" role="img" aria-label="histogram from {left} to {right}">'
        f'<polygon points="0,{HEIGHT} {points} {WIDTH},{HEIGHT}" fill="gray"/>'
        f'<text x="0" y="{HEIGHT + 13}" font-size="11" fill="currentColor">{left}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 13}" font-size="11" fill="currentColor" text-anchor="end">{right}</text></svg>'
    )
