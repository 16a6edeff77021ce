"""A row of the speed table: the requirement, and how to look up the measurement in the recorded figures.

Each figure is a ratio to a limit, or to a peer, measured alternately with ours in one process; the worst distribution,
dtype and size counts. A row that falls short says what bounds it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.common import RESULTS

Case = dict[str, Any]
GPU = "H200"  # machines, as in the names of the files under results/
GPUS = "4xH200"
IN_MEMORY = "H100"  # of arrays in memory
CORES = "2cores"


class NotMeasured(LookupError):
    """The figure has not been recorded yet."""


@dataclass(frozen=True)
class Need:
    """A limit and its unit."""

    limit: float
    unit: str
    at_most: bool = False

    def met(self, number: float) -> bool:
        """Whether a number meets the limit; NaN never does."""
        return number <= self.limit if self.at_most else number >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:g} {self.unit}".strip()


@dataclass(frozen=True, order=True)
class Figure:
    """A measured number, and the case it belongs to: the worst one."""

    number: float
    case: str = ""


Find = Callable[[], Figure]


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes
    ----------
    what
    need, find
        The requirement, and the lookup of the measurement.
    peer, find_peer
        The same for the ratio to a peer, if there is one.
    bound
        If it falls short of either: what limits it, and what was tried.
    in_readme
        The README shows it.
    """

    what: str
    need: Need
    find: Find
    peer: Need | None = None
    find_peer: Find | None = None
    bound: str = ""
    in_readme: bool = False

    def met(self) -> bool:
        """Whether it was measured and meets the requirement."""
        return self.figures()[0] is not None and not self.short()

    def figures(self) -> tuple[Figure | None, Figure | None]:
        """The measurement, and the ratio to the peer; None if there is none."""
        return attempt(self.find), attempt(self.find_peer) if self.find_peer else None

    def short(self) -> bool:
        """Whether the measurement falls short of the requirement."""
        figure, of_peer = self.figures()
        return bool(figure and not self.need.met(figure.number)) or bool(
            of_peer and self.peer and not self.peer.met(of_peer.number)
        )


def attempt(find: Find) -> Figure | None:
    """The figure, or None if it was not measured."""
    try:
        return find()
    except NotMeasured:
        return None


def read(name: str) -> Any:
    """Recorded figures."""
    path = Path(RESULTS, f"{name}.json")
    if not path.exists():
        raise NotMeasured(name)
    return json.loads(path.read_text(encoding="utf-8"))


def value(of: Any, *keys: Any) -> Any:
    """The value under nested keys."""
    for key in keys:
        if not isinstance(of, dict) or key not in of:
            raise NotMeasured(f"{key}")
        of = of[key]
    return of


def cases(name: str, under: str = "cases", **wanted: Iterable[Any]) -> list[Case]:
    """Cases in which each field has one of the wanted values.

    Raises
    ------
    ValueError
        If a case computed wrong numbers: that is a bug to find, not a figure to show.
    """
    chosen = [case for case in value(read(name), under) if all(case.get(field) in wanted[field] for field in wanted)]
    for case in chosen:
        if not case.get("verified", True):
            raise ValueError(f"{name}: the recorded numbers of {case} are wrong")
    return chosen


def worst(figures: Iterable[Figure], need: Need) -> Figure:
    """The worst measurement for the requirement; NaN is worse than any number."""
    listed = list(figures)
    if not listed:
        raise NotMeasured("no such case")
    for figure in listed:
        if math.isnan(figure.number):
            return figure
    return max(listed) if need.at_most else min(listed)


def named(case: Case) -> str:
    """A case in words: the fields that distinguish it."""
    words = [case[field] for field in ("dtype", "job", "what", "samples", "elements", "distribution") if field in case]
    if "bins" in case:
        words.append(f"{case['bins']:,} bins")
    words += [f"{field} {case[field]:,}" for field in ("radius", "size") if field in case]
    words += [" × ".join(map(str, case[field])) for field in ("shape",) if field in case]
    return ", ".join(map(str, words))


def share(name: str, need: Need, *keys: Any, under: str = "cases", **wanted: Iterable[Any]) -> Figure:
    """The worst value under `keys` of all cases."""
    return worst((Figure(value(case, *keys), named(case)) for case in cases(name, under, **wanted)), need)


def against(name: str, need: Need, peer: str, ours: str = "ours", under: str = "cases", rates: str = "GB/s",
            **wanted: Iterable[Any]) -> Figure:  # fmt: skip
    """The worst ratio of our rate to the best rate of the peers whose names start with `peer`, case by case."""
    ratios = []
    for case in cases(name, under, **wanted):
        theirs = [rate for known, rate in case.get(rates, {}).items() if known.lower().startswith(peer.lower())]
        if theirs:
            ratios.append(Figure(value(case, rates, ours) / max(theirs), named(case)))
    return worst(ratios, need)


def slowest(name: str, need: Need, peer: str, **wanted: Iterable[Any]) -> Figure:
    """Our rate on our worst distribution over the peer's rate on its worst, for each dtype and number of bins."""
    rates: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for case in cases(name, **wanted):
        if peer in case["GB/s"]:
            rates.setdefault((case["dtype"], case["bins"]), []).append((case["GB/s"]["ours"], case["GB/s"][peer]))
    ratios = [Figure(min(ours for ours, _ in of) / min(theirs for _, theirs in of), f"{dtype}, {bins:,} bins")
              for (dtype, bins), of in rates.items()]  # fmt: skip
    return worst(ratios, need)


def spread(name: str, **wanted: Iterable[Any]) -> Figure:
    """The best distribution over the worst, for each dtype and number of bins; the largest of these ratios."""
    shares: dict[tuple[Any, ...], list[float]] = {}
    for case in cases(name, **wanted):
        shares.setdefault((case["dtype"], case["bins"]), []).append(case["share of read"])
    ratios = [
        Figure(max(of) / min(of), f"{dtype}, {bins:,} bins") for (dtype, bins), of in shares.items() if len(of) > 1
    ]
    return worst(ratios, Need(0, "", at_most=True))


def small_histogram() -> Figure:
    """Time for 2^25 samples over the time to read them; the worse of queued and launched on an idle device."""
    taken = value(read(f"histogram_kernel_{GPU}"), "milliseconds of 2^25 int32")
    pairs = (("kernel", "read", "queued"), ("launch included", "read, launch included", "launch included"))
    ratios = [Figure(value(taken, ours) / value(taken, floor), case) for ours, floor, case in pairs]
    return worst(ratios, Need(0, "", at_most=True))


def from_file(machine: str, where: str, beside: str, job: str = "histogram", verify: str = "") -> Figure:
    """Best rate of a run on a file in the page cache, over that of a peer or limit in the same process.

    `verify`: of runs checked that way; by default of all.
    """
    figures = read(f"histogram_file_{machine}")
    if not figures["identical"]:
        raise ValueError("the recorded runs differ in their results: a bug to find, not a figure to show")
    theirs = [
        rate for name, rate in figures["peers, bytes per second"].items() if name.lower().startswith(beside.lower())
    ]
    some = (run for run in figures["runs"] if (run.get("job", "histogram"), run["where"]) == (job, where))
    runs = [Figure(run["bytes_per_second"], f"{run['bytes_per_second'] / 1e9:.1f} GB/s") for run in some
            if verify in ("", run["verify"])]  # fmt: skip
    if not theirs or not runs:
        raise NotMeasured(beside)
    best = max(runs)
    return Figure(best.number / max(theirs), best.case)


def to_file(machine: str, verify: str) -> Figure:
    """The worst job that writes an array, over a histogram of its inputs followed by filling its output."""
    ratios = []
    for job, runs in read(f"array_file_{machine}")["jobs"].items():
        taken = runs[verify]
        if taken["bytes written"]:
            both = (taken["bytes read"] + taken["bytes written"]) / taken["seconds"] / 1e9
            ratios.append(Figure(taken["seconds beside"] / taken["seconds"], f"{job}, {both:.1f} GB/s"))
    return worst(ratios, Need(1, ""))


def from_disk(machine: str) -> Figure:
    """Rate of the slowest run on a file that is not in the page cache, over the fastest direct reads."""
    figures = read(f"cold_file_{machine}")
    if not figures["identical"]:
        raise ValueError("the recorded runs differ in their results: a bug to find, not a figure to show")
    rates = figures["bytes per second"]
    best = max(rate for name, rate in rates.items() if name.startswith("direct"))
    ours = min(rate for name, rate in rates.items() if name.startswith("ours"))
    return Figure(ours / best, f"{ours / 1e9:.2f} GB/s")


def command(job: str) -> Figure:
    """Seconds of the fastest peer over those of our whole command, on the same file."""
    taken = value(read(f"command_{CORES}"), "whole command", job)
    seconds = {name: figures["seconds"] for name, figures in taken.items() if name != "ours"}
    if not seconds:
        raise NotMeasured(job)
    fastest = min(seconds, key=lambda name: float(seconds[name]))
    ours = value(taken, "ours", "seconds")
    return Figure(seconds[fastest] / ours, f"{fastest}; {ours:.1f} s")


def waiting(machine: str, *keys: str) -> Figure:
    """A figure of `waiting`."""
    return Figure(value(read(f"waiting_{machine}"), *keys))


def later(machine: str, where: str, than: str) -> Figure:
    """Seconds by which commands of `growth` begin to compute later in one place than in another, at the worst size."""
    starts: dict[int, dict[str, float]] = {}
    for run in read(f"growth_{machine}")["runs"]:
        starts.setdefault(run["samples"], {})[run["where"]] = run["seconds"] - run["seconds after the start"]
    return Figure(max(start[where] - start[than] for start in starts.values()))


def longer(machine: str, what: str, than: str) -> Figure:
    """Seconds by which a command of `waiting` takes longer than another one."""
    taken = value(read(f"waiting_{machine}"), "command, seconds")
    return Figure(max(0.0, value(taken, what) - value(taken, than)))


def kernel(what: str, need: Need, name: str, *keys: Any, bound: str = "", peer: Need | None = None,
           peers: Find | None = None, in_readme: bool = False, **wanted: Any) -> Row:  # fmt: skip
    """A row made from the shares that a kernel's cases have under `keys`."""
    return Row(what, need, partial(share, f"{name}_{GPU}", need, *keys, **wanted), peer, peers, bound, in_readme)
