"""What a run will need, in numbers and in lines, and the refusal of what cannot fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import UsageError

DECODING = "decoding what the file has in another form"  # which the time of a plan leaves out


@dataclass(frozen=True)
class Need:
    """Bytes that a run takes of something.

    Attributes
    ----------
    what
    free
        Bytes of it that are free.
    most, how
        What it takes at most, and how that comes about.
    least, least_how
        What it cannot do without.
    remedy
        What to do if that is not free.
    """

    what: str
    free: int
    most: int
    how: str
    least: int
    least_how: str
    remedy: str


@dataclass(frozen=True)
class Time:
    """Expected seconds of start-up, of the run and of its checks alone, the stage that bounds it, and what is left out.

    `measured`: what the machine was measured with.
    """

    start_up: float
    run: float
    checks: float
    stage: str
    left_out: str
    measured: str


@dataclass(frozen=True)
class Estimate:
    """What a run will need.

    Attributes
    ----------
    what, where
        The job with its input, and what will compute it.
    nbytes
        Of input, for a job that writes an array of inputs and output.
    passes
        Over the input; less than the number where it depends on the samples.
    more_passes
        Whether it does.
    chunks
        Or regions, of `chunk_bytes` each at most.
    needs, time
        None if it is not known, and then why not.
    counted
        What `nbytes` are of.
    """

    what: str
    where: str
    nbytes: int
    passes: int
    more_passes: bool
    chunks: int
    chunk_bytes: int
    needs: Sequence[Need]
    time: Time | None
    unknown: str = ""
    counted: str = "input"

    def refuse(self, name: str) -> None:
        """Raise UsageError if something does not fit."""
        for need in self.needs:
            if need.least > need.free:
                raise UsageError(f"{name}: expected a run that fits into the {size(need.free)} of {need.what} that "
                                 f"are free, got one of {size(need.least)}: {need.least_how}; "
                                 f"{need.remedy}")  # fmt: skip

    def lines(self) -> list[tuple[str, str]]:
        """Labels and texts."""
        passes = f"{self.passes}{' or more, as the samples need' if self.more_passes else ''}"
        facts = [
            ("plan", self.what),
            ("computed on", self.where),
            (self.counted, f"{self.nbytes:,} bytes in {self.chunks:,} chunk{'s'[: self.chunks != 1]} of at most "
                      f"{size(self.chunk_bytes)}"),
            ("passes", passes),
            *((need.what, f"{size(need.most)} at most, {size(need.free)} free: {need.how}") for need in self.needs),
        ]  # fmt: skip
        if self.time is None:
            return [*facts, ("time", f"not known: {self.unknown}")]
        time = self.time
        checks = f", {seconds(time.checks)} of it checks" if time.checks > time.run / 100 else ""
        more = f"; without {time.left_out}" if time.left_out else ""
        return [
            *facts,
            ("time", f"about {seconds(time.run)} after {seconds(time.start_up)} of start-up{checks}{more}"),
            ("bound by", time.stage),
            ("measured", time.measured),
        ]

    def to_json(self) -> dict[str, Any]:
        """The same as an object."""
        plain = dataclasses.asdict(self)
        return plain | {"fits": all(need.least <= need.free for need in self.needs)}


def size(nbytes: float) -> str:
    """Bytes for people."""
    from dask.utils import format_bytes

    return str(format_bytes(int(nbytes)))


def seconds(duration: float) -> str:
    """Seconds for people: two digits, or minutes and hours."""
    if duration < 100:
        return f"{duration:.2g} s"
    return f"{duration / 60:.0f} min" if duration < 7200 else f"{duration / 3600:.1f} h"
