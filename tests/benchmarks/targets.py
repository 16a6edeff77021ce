"""What has to be reached, row by row of the README's table, and where the recorded figures say what was.

Each figure is a ratio to a limit, or to a peer, that the same process measured in turns with ours; of several data
distributions, dtypes and sizes the worst counts. A row that is short of what is required says what bounds it.
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
GPU = "H200"  # the machines of the table, as in the names of files under results/
GPUS = "4xH200"
CORES = "2cores"


class NotMeasured(LookupError):
    """There is no such figure yet."""


@dataclass(frozen=True)
class Need:
    """A limit, and what it is counted in."""

    limit: float
    unit: str
    at_most: bool = False

    def met(self, number: float) -> bool:
        """NaN never meets it."""
        return number <= self.limit if self.at_most else number >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:g} {self.unit}".strip()


@dataclass(frozen=True, order=True)
class Found:
    """A measured number, and the case that it is the worst of."""

    number: float
    case: str = ""


Find = Callable[[], Found]


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes
    ----------
    what
    need, find
        What is required, and where it is found.
    peer, find_peer
        The same of what it is set beside, if anything.
    bound
        What was tried and what bounds it, where it is short of either.
    """

    what: str
    need: Need
    find: Find
    peer: Need | None = None
    find_peer: Find | None = None
    bound: str = ""

    def found(self) -> tuple[Found | None, Found | None]:
        """Measured, and measured against the peer; None for what was not."""
        return attempt(self.find), attempt(self.find_peer) if self.find_peer else None

    def short(self) -> bool:
        """Whether what was measured is less than what is required."""
        found, beside = self.found()
        return bool(found and not self.need.met(found.number)) or bool(
            beside and self.peer and not self.peer.met(beside.number)
        )


def attempt(find: Find) -> Found | None:
    """What is found, if it was measured."""
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
    """What lies under keys, one in the other."""
    for key in keys:
        if not isinstance(of, dict) or key not in of:
            raise NotMeasured(f"{key}")
        of = of[key]
    return of


def cases(name: str, under: str = "cases", **wanted: Iterable[Any]) -> list[Case]:
    """Cases of which each field is one of those wanted.

    Raises
    ------
    ValueError
        If the numbers of one of them were found to be wrong: that is no figure to show but a bug to find.
    """
    found = [
        case for case in value(read(name), under) if all(case.get(field) in wanted[field] for field in wanted)
    ]  # fmt: skip
    for case in found:
        if not case.get("verified", True):
            raise ValueError(f"{name}: the recorded numbers of {case} are wrong")
    return found


def worst(found: Iterable[Found], need: Need) -> Found:
    """The one that is furthest from what is needed."""
    listed = list(found)
    if not listed:
        raise NotMeasured("no such case")
    for one in listed:
        if math.isnan(one.number):
            return one
    return max(listed) if need.at_most else min(listed)


def named(case: Case) -> str:
    """A case in words: the fields that tell it from others."""
    words = [case[field] for field in ("dtype", "job", "what", "samples", "elements", "distribution") if field in case]
    if "bins" in case:
        words.append(f"{case['bins']:,} bins")
    words += [f"{field} {case[field]:,}" for field in ("radius", "size") if field in case]
    words += [" × ".join(map(str, case[field])) for field in ("shape",) if field in case]
    return ", ".join(map(str, words))


def share(name: str, need: Need, *keys: Any, under: str = "cases", **wanted: Iterable[Any]) -> Found:
    """The worst of what cases say under `keys`."""
    return worst((Found(value(case, *keys), named(case)) for case in cases(name, under, **wanted)), need)


def against(name: str, need: Need, peer: str, ours: str = "ours", under: str = "cases", rates: str = "GB/s",
            **wanted: Iterable[Any]) -> Found:  # fmt: skip
    """The worst of our rate over the best that a peer, whose name begins so, has in the same case."""
    found = []
    for case in cases(name, under, **wanted):
        theirs = [rate for known, rate in case.get(rates, {}).items() if known.lower().startswith(peer.lower())]
        if theirs:
            found.append(Found(value(case, rates, ours) / max(theirs), named(case)))
    return worst(found, need)


def slowest(name: str, need: Need, peer: str, **wanted: Iterable[Any]) -> Found:
    """Of each dtype and number of bins our rate on our worst distribution over the peer's on its worst."""
    rates: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for case in cases(name, **wanted):
        if peer in case["GB/s"]:
            rates.setdefault((case["dtype"], case["bins"]), []).append((case["GB/s"]["ours"], case["GB/s"][peer]))
    found = [Found(min(ours for ours, _ in of) / min(theirs for _, theirs in of), f"{dtype}, {bins:,} bins")
             for (dtype, bins), of in rates.items()]  # fmt: skip
    return worst(found, need)


def spread(name: str, **wanted: Iterable[Any]) -> Found:
    """Of each dtype and number of bins the best distribution over the worst; the largest of these."""
    shares: dict[tuple[Any, ...], list[float]] = {}
    for case in cases(name, **wanted):
        shares.setdefault((case["dtype"], case["bins"]), []).append(case["share of read"])
    found = [Found(max(of) / min(of), f"{dtype}, {bins:,} bins") for (dtype, bins), of in shares.items() if len(of) > 1]
    return worst(found, Need(0, "", at_most=True))


def small_histogram() -> Found:
    """Time of 2^25 samples over that of reading them: queued, or launched on an idle device, the worse of both."""
    taken = value(read(f"histogram_kernel_{GPU}"), "milliseconds of 2^25 int32")
    pairs = (("kernel", "read", "queued"), ("launch included", "read, launch included", "launch included"))
    found = [Found(value(taken, ours) / value(taken, floor), case) for ours, floor, case in pairs]
    return worst(found, Need(0, "", at_most=True))


def from_file(machine: str, where: str, beside: str) -> Found:
    """Best rate of a run over a file in the page cache, over that of a peer or a limit of the same process."""
    figures = read(f"histogram_file_{machine}")
    if not figures["identical"]:
        raise ValueError("the recorded runs differ in their results: that is no figure to show but a bug to find")
    theirs = [
        rate for name, rate in figures["peers, bytes per second"].items() if name.lower().startswith(beside.lower())
    ]
    runs = [Found(run["bytes_per_second"], f"{run['bytes_per_second'] / 1e9:.1f} GB/s") for run in figures["runs"]
            if run["where"] == where]  # fmt: skip
    if not theirs or not runs:
        raise NotMeasured(beside)
    best = max(runs)
    return Found(best.number / max(theirs), best.case)


def to_file(machine: str, verify: str) -> Found:
    """Of jobs that write an array the worst, beside a histogram of what it reads and filling what it writes."""
    found = []
    for job, runs in read(f"array_file_{machine}")["jobs"].items():
        taken = runs[verify]
        if taken["bytes written"]:
            both = (taken["bytes read"] + taken["bytes written"]) / taken["seconds"] / 1e9
            found.append(Found(taken["seconds beside"] / taken["seconds"], f"{job}, {both:.1f} GB/s"))
    return worst(found, Need(1, ""))


def from_disk(machine: str) -> Found:
    """Rate of a run over a file that is not in the page cache, over that of the fastest direct reads."""
    figures = read(f"cold_file_{machine}")
    if not figures["identical"]:
        raise ValueError("the recorded runs differ in their results: that is no figure to show but a bug to find")
    rates = figures["bytes per second"]
    best = max(rate for name, rate in rates.items() if name.startswith("direct"))
    return Found(rates["ours"] / best, f"{rates['ours'] / 1e9:.2f} GB/s")


def command(job: str) -> Found:
    """Seconds of the fastest peer over those of the whole command, on one file."""
    taken = value(read(f"command_{CORES}"), "whole command", job)
    seconds = {name: figures["seconds"] for name, figures in taken.items() if name != "ours"}
    if not seconds:
        raise NotMeasured(job)
    fastest = min(seconds, key=lambda name: float(seconds[name]))
    ours = value(taken, "ours", "seconds")
    return Found(seconds[fastest] / ours, f"{fastest}; {ours:.1f} s")


def waiting(machine: str, *keys: str) -> Found:
    """A figure of `waiting`."""
    return Found(value(read(f"waiting_{machine}"), *keys))


def compiling(machine: str) -> Found:
    """Seconds that a command takes longer where no kernel was compiled before."""
    taken = value(read(f"waiting_{machine}"), "command, seconds")
    return Found(max(0.0, value(taken, "cold, one GPU") - value(taken, "warm, one GPU")))


def kernel(what: str, need: Need, name: str, *keys: Any, bound: str = "", peer: Need | None = None,
           peers: Find | None = None, **wanted: Any) -> Row:  # fmt: skip
    """A row of which every case of a kernel's figures has a share."""
    return Row(what, need, partial(share, f"{name}_{GPU}", need, *keys, **wanted), peer, peers, bound)
