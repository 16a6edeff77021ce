"""The options of the histogram: which bins it counts in."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kernels.histogram.binning import MAX_BINS, Binning, Edges
from kernels.histogram.edges import log_edges
from kernels.histogram.rules import RULES
from workflows.histogram_result import Choice
from workflows.readers import explained, read_npy, read_text

DEFAULT_BINS = 1024
SCALES = ("linear", "log")
MAX_EDGES_TEXT = 2**26  # characters: 64 per edge


def read_bound(word: str) -> float:
    """One of the two numbers of `--range`."""
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"expected two numbers LO HI, or auto, got {word!r}") from None


def read_bins(word: str) -> int | str:
    """The number of `--bins`, or the name of a rule."""
    if word.lstrip("+-").isdecimal() or word in RULES:
        return word if word in RULES else int(word)
    raise ValueError(f"expected 1 to {MAX_BINS} or one of {', '.join(RULES)}, got {word!r}")


def read_edges(path: str) -> Edges:
    """Edges in a text file or a .npy file."""
    with explained(path, "a file of numbers, one a line"):
        numbers = read_npy(path, MAX_BINS + 1) if path.endswith(".npy") else read_text(path, MAX_EDGES_TEXT)
        return numbers.astype(np.float64)


@dataclass(frozen=True, eq=False)
class HistogramOptions:
    """Options of the histogram; raises ValueError for invalid bins."""

    bins: int | str | None = field(
        default=None,
        metadata={
            "help": f"Number of equal bins, 1 to {MAX_BINS}, or a rule of NumPy that chooses it: {', '.join(RULES)}. "
            f"By default {DEFAULT_BINS}; for integers with `--range`, a number that makes them a whole number wide "
            f"(with `auto`, at most {DEFAULT_BINS}).",
            "metavar": "N",
            "read": read_bins,
        },
    )
    range: tuple[float, float] | str = field(
        default=(0.0, 1024.0),
        metadata={
            "help": "First and last edge, in the unit of the samples; the last bin includes its upper edge. "
            "`--range auto` takes the finite minimum and maximum of the data, in one extra pass.",
            "metavar": "LO HI",
            "read": read_bound,
            "words": 2,
            "alone": "auto",
        },
    )
    edges: Edges | None = field(
        default=None,
        metadata={
            "help": "File of ascending bin edges: text with one edge per line, or .npy. Replaces --bins and --range. "
            "With rows, a two-dimensional .npy may have edges for each row.",
            "metavar": "FILE",
            "read": read_edges,
            "of_file": True,
        },
    )
    scale: str = field(
        default="linear",
        metadata={
            "help": "`linear`, or `log`: bins grow by a constant factor, and the range must lie above 0.",
            "metavar": "SCALE",
        },
    )

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"--scale: expected {' or '.join(SCALES)}, got {self.scale!r}")
        if self.edges is not None:
            if self.scale != "linear":
                raise ValueError(f"--scale {self.scale}: expected no --edges, which already fix the bins")
            try:
                if np.iscomplexobj(self.edges) or np.ma.isMaskedArray(self.edges):
                    raise TypeError  # half of it would be dropped
                edges = _unchanging(np.array(self.edges, np.float64))
            except (TypeError, ValueError, OverflowError):
                raise ValueError(f"--edges: expected an array of ascending numbers, got {self.edges!r}"[:200]) from None
            edges = edges[0] if edges.ndim == 2 and len(edges) == 1 else edges
            for line in edges if edges.ndim == 2 and len(edges) else [edges]:
                _check_edges(line)
            # Make the options consistent: the edges determine --bins and --range.
            limits = float(edges.min()), float(edges.max())
            vars(self).update(edges=edges, bins=edges.shape[-1] - 1, range=limits)
            return
        vars(self).update(bins=_checked_bins(self.bins))
        if self.rule and self.scale != "linear":
            raise ValueError(f"--scale {self.scale}: expected a number of --bins, got the rule {self.bins}")
        if isinstance(self.range, str):
            if self.range != "auto":
                raise ValueError(f"--range: expected LO HI or auto, got {self.range!r}")
            return
        try:
            lower, upper = map(float, self.range)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"--range: expected LO HI or auto, got {self.range!r}"[:200]) from None
        bins = DEFAULT_BINS if self.bins is None else self.bins
        vars(self).update(range=(lower, upper), bins=bins, _free=self.bins is None and self.scale == "linear")
        _check_range(lower, upper, 1 if isinstance(bins, str) else bins, self.scale)

    @property
    def free(self) -> bool:
        """Whether the user said where bins begin and end, and nothing else about them."""
        return bool(vars(self).get("_free"))

    @property
    def rule(self) -> str:
        """The rule that chooses the number of bins; empty if none does, or once it has."""
        return self.bins if isinstance(self.bins, str) else ""

    @property
    def limits(self) -> tuple[float, float] | None:
        """The range of the samples that a rule takes into account; None for all that are finite."""
        return None if isinstance(self.range, str) else self.range

    def of_rows(self, number: int | None) -> tuple[HistogramOptions, ...]:
        """Options of each row; one for all, unless there are edges for each.

        Raises
        ------
        ValueError
            If there are edges for another number of rows.
        """
        if self.edges is None or self.edges.ndim == 1:
            return (self,)
        if number != len(self.edges):
            got = "an unknown number" if number is None else f"{number:,}"
            raise ValueError(f"--edges: expected as many rows as there are lines of edges, {len(self.edges):,}, got "
                             f"{got}; --channels, --segment, --by and --axis say what a row is")  # fmt: skip
        return tuple(replace(self, edges=line) for line in self.edges)

    @cached_property
    def all_edges(self) -> Edges:
        """float64 edges, shape (bins + 1,)."""
        if self.edges is not None:
            return self.edges
        if isinstance(self.range, str):
            raise ValueError("--range auto: the range is not known before the data was read")
        if not isinstance(self.bins, int):
            raise ValueError(f"--bins {self.bins}: their number is not known before the data was read")
        if self.scale == "log":
            return _unchanging(log_edges(*self.range, self.bins))
        return _unchanging(np.linspace(*self.range, self.bins + 1))

    @property
    def regular(self) -> bool:
        """Whether bins are equally wide."""
        return self.edges is None and self.scale == "linear"

    @property
    def choice(self) -> Choice | None:
        """Why there are so many bins, if the samples decided on that."""
        return vars(self).get("_choice")

    @property
    def quartiles(self) -> Any:
        """How far the search for quartiles is, once it began: `workflows.quartiles.Quartiles`."""
        return vars(self).get("_quartiles")

    @property
    def surveyed(self) -> bool:
        """Whether the range is that of the samples."""
        return bool(vars(self).get("_surveyed"))

    @property
    def statistics(self) -> Any:
        """What surveys have found so far, for incomplete options: `workflows.bins.Selected`."""
        return vars(self).get("_statistics")

    @cached_property
    def _binnings(self) -> dict[np.dtype[Any], Binning]:
        return {}

    def binning(self, dtype: np.dtype[Any]) -> Binning:
        """Binning of samples of a dtype; computed once."""
        native = dtype.newbyteorder("=")
        known = self._binnings.get(native)
        if known is None:
            made = Binning(native, self.all_edges, regular=self.regular)
            known = self._binnings.setdefault(native, made)  # another thread may have been faster
        return known


def _unchanging(edges: Edges) -> Edges:
    """A read-only copy of edges: results hold them, and the next run may use them."""
    edges.flags.writeable = False
    return edges


def _checked_bins(bins: Any) -> int | str | None:
    if bins is None or (isinstance(bins, str) and bins in RULES):
        return bins
    if isinstance(bins, bool | np.bool_) or not hasattr(bins, "__index__") or np.ndim(bins):
        raise ValueError(f"--bins: expected 1 to {MAX_BINS} or one of {', '.join(RULES)}, got {bins!r}"[:200])
    number = operator.index(bins)
    if not 1 <= number <= MAX_BINS:
        raise ValueError(f"--bins: expected 1 to {MAX_BINS}, got {number}")
    return number


def _check_range(lower: float, upper: float, bins: int, scale: str) -> None:
    if not (np.isfinite(lower) and np.isfinite(upper)):
        raise ValueError(f"--range: expected two finite numbers, got {lower} {upper}")
    if not lower < upper:
        raise ValueError(f"--range: expected LO below HI, got {lower} {upper}")
    if scale == "log" and not lower > 0:
        raise ValueError(f"--scale log: expected a range above 0, got {lower:g} to {upper:g}; give --range LO HI with "
                         "LO above 0: samples below it count as underflow")  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        edges = log_edges(lower, upper, bins) if scale == "log" else np.linspace(lower, upper, bins + 1)
        if not (np.diff(edges) > 0).all():
            raise ValueError(f"--bins: {bins} bins over {lower} to {upper} have no distinct finite edges in float64; "
                             "use fewer bins, or a range that is wider and not beyond 1e308")  # fmt: skip


def _check_edges(edges: Edges) -> None:
    if edges.ndim != 1 or not 2 <= len(edges) <= MAX_BINS + 1:
        raise ValueError(f"--edges: expected 2 to {MAX_BINS + 1} numbers, got {edges.size} in shape {edges.shape}")
    if not np.isfinite(edges).all():
        raise ValueError("--edges: expected finite numbers, got NaN or infinity; samples outside are counted anyway")
    falls = np.flatnonzero(~(np.diff(edges) > 0))
    if len(falls):
        i = int(falls[0])
        raise ValueError(f"--edges: expected strictly ascending numbers, got {edges[i]} before {edges[i + 1]} "
                         f"at positions {i} and {i + 1}; sort them and drop repeated ones")  # fmt: skip
