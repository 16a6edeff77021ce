"""One look at a machine: what was found, whether it is right, and what to do; each within a limit of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Thread
from time import perf_counter

from pipeline.process.last_words import abandon

OK, NOTE, PROBLEM, SKIPPED = "ok", "note", "problem", "skipped"
SECONDS = 10.0  # that a check may take, unless it says otherwise


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes
    ----------
    state
        `OK`; `NOTE`: jobs run, but slower or with less than they could; `PROBLEM`: some fail; `SKIPPED`: it could not
        be looked at, because of what another check says.
    text
        What is there.
    remedy
        What to do; empty if there is nothing to do.
    """

    state: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Check:
    """A name, the function that looks, and the seconds that it may take."""

    name: str
    look: Callable[[], Finding]
    seconds: float = SECONDS


@dataclass(frozen=True)
class Line:
    """The finding of a check, and the seconds that it took."""

    name: str
    finding: Finding
    seconds: float


def examine(checks: Iterable[Check]) -> Iterator[Line]:
    """Look at one thing after another; one that fails, or does not answer in time, is a problem."""
    for check in checks:
        began = perf_counter()
        yield Line(check.name, _within(check), perf_counter() - began)


def _within(check: Check) -> Finding:
    findings: list[Finding] = []

    def look() -> None:
        try:
            findings.append(check.look())
        except Exception as error:  # whatever a driver or a library raises
            reason = str(error).partition("\n")[0]
            findings.append(Finding(PROBLEM, f"could not be looked at: {type(error).__name__}: {reason}",
                                    "see what this message says about the machine"))  # fmt: skip

    thread = Thread(target=look, name=f"doctor-{check.name}", daemon=True)
    thread.start()
    thread.join(check.seconds)
    if findings:
        return findings[0]
    abandon()  # the end of the command does not wait for it
    return Finding(PROBLEM, f"no answer within {check.seconds:g} s",
                   "find out what hangs (dmesg, nvidia-smi, mounted file systems), or restart the machine")  # fmt: skip
