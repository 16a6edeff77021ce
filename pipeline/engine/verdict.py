"""What verification covered, in numbers and in the words that panel, JSON object and results share."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from workflows.shown import how_many


@dataclass(frozen=True)
class Verdict:
    """How much verification covered; a run with a mismatch raises an error instead.

    Attributes
    ----------
    mode
        ``"auto"``, ``"full"``, ``"sample"`` or ``"off"``.
    samples, checked
        Number of samples, and of those that were recomputed and compared.
    chunks
        Number of chunks; each satisfied every invariant.
    seed
        Seed of the random choice in ``"sample"``.
    escape
        For a job that writes an array, an upper bound on the probability that a wrong checked element went unnoticed.
    undetected
        Errors up to this do not count as wrong: in units of the root mean square of the element's row.
    read_once
        Whether the samples can be read only once: the reference then got the same blocks from memory instead of
        reading them again.
    replayed, elsewhere
        Number of chunks, or tasks of an array, that were computed again with the same bits; of these, on another
        device than before.
    rounding
        How far elements may be off that are not the same bits everywhere, in words; None if they are.

    Examples
    --------
    >>> import numpy, pipeline
    >>> verdict = pipeline.run("reduce", numpy.arange(1000), op="sum").verification
    >>> verdict.mode, verdict.samples, verdict.checked
    ('auto', 1000, 1000)
    """

    mode: str
    samples: int
    checked: int
    chunks: int
    seed: int
    escape: float | None = None
    undetected: float = 0.0
    read_once: bool | None = None
    replayed: int = 0
    elsewhere: int = 0
    rounding: str | None = None

    def __str__(self) -> str:
        """Both lines of `verdict_lines` as one."""
        return "; ".join(filter(None, verdict_lines(self)))


def verdict_lines(verdict: Verdict) -> tuple[str, str]:
    """What was verified, and no more than that: the share and how to check all; what it means."""
    noun, agree = "sample", "equal to the reference"
    invariants = f"every invariant holds on {f'all {verdict.chunks:,} chunks' if verdict.chunks > 1 else 'the chunk'}"
    if verdict.escape is not None:
        noun, agree, invariants = "element", "agree with the inputs", _unnoticed(verdict.undetected, verdict.escape)
    if verdict.rounding:
        agree += f" {verdict.rounding}"
    what = how_many(verdict.samples, noun)
    if verdict.mode == "off":
        return f"0 % of {what} checked (--verify off); --verify full checks all", (
            invariants if verdict.escape is None else verdict.rounding or ""
        )
    if verdict.read_once:
        agree += ", which got the same blocks from memory, since the source can be read only once"
    if verdict.checked == verdict.samples:
        return f"100 % of {what} checked: {agree}", invariants
    share = min(100 * verdict.checked / verdict.samples, 99.9)  # never rounded up to 100
    why = ", as much as the run's time allowed" if verdict.mode == "auto" else f" (--verify {verdict.mode})"
    seed = f", seed {verdict.seed}" if verdict.mode == "sample" else ""
    first = f"{share:.3g} % of {what} checked{why}; --verify full checks all"
    return first, f"{verdict.checked:,} {agree}{seed}; {invariants}"


def _unnoticed(undetected: float, escape: float) -> str:
    """Which errors go unnoticed, and how seldom."""
    article, error = "a", "wrong one among them"
    if undetected:
        article, error = "an", f"error above {_rounded_up(undetected)} of the root mean square of its row"
    if escape:
        return f"{article} {error} goes unnoticed with a chance of at most {escape:.1g}"
    return f"no {error} goes unnoticed"


def _rounded_up(number: float) -> str:
    """Two digits, never less than the number."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / unit) * unit:.2g}"


def verified(result: Any, verdict: Verdict) -> Any:
    """The result of a job, with the verdict as its attribute `verification` if its type has room for one."""
    with suppress(AttributeError, TypeError):
        object.__setattr__(result, "verification", verdict)  # results are frozen
    return result
