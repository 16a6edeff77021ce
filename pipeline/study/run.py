"""Runs a study: every case is checked, then timed, and compared with the limits of the same device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from inspect import signature
from typing import Any, Protocol

from numpy.typing import NDArray

from pipeline.errors import PipelineError, UsageError
from pipeline.study.data import Data
from pipeline.study.profile import Line, Tracer
from workflows.study.study import THOUSAND, WARM, Arrays, Case, Conclusion, Row, Study, label

# Outcomes of a case, in one or two words.
VERIFIED, CAUGHT, REFUSED, NO_MEMORY, WRONG, NOT_CAUGHT = (
    "verified", "caught", "refused", "no memory", "WRONG", "NOT CAUGHT"
)  # fmt: skip
FAILURES = (WRONG, NOT_CAUGHT)
HOST = "none"  # the limit of a baseline on the CPU

ATTEMPTS = 20  # runs of a broken variant: a race does not show every time
BUDGET_MS = 300.0
FEWEST, MOST = 5, 50
LONG_MS = 250.0  # kernels that run so long vary little
COPIES = 64
RUNS = 1000


class Device(Protocol):
    """What a study needs of a GPU; times are milliseconds on the device itself."""

    cache_bytes: int  # L2 cache
    errors: tuple[type[Exception], ...]  # after these nothing on the device can be trusted

    def to_device(self, arrays: Arrays) -> tuple[Any, ...]:
        """Copy arrays; MemoryError, with the bytes needed and free, if they do not fit."""

    def to_host(self, array: Any) -> NDArray[Any]:
        """Copy a result back."""

    def elapsed(self, work: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
        """Device time of what `work` launches, without Python's launch overhead; `before` runs right before it."""

    def transfer(self, nbytes: int, to_host: bool) -> float:
        """Time to copy so many bytes from pinned memory, or to it."""

    def limit(self, name: str) -> float:
        """Peak GB/s or GFLOP/s measured on the device: see `Study.limit`."""

    def tracer(self) -> Tracer:
        """A new record of steps."""

    def release(self) -> None:
        """Release cached memory that is not in use."""

    def environment(self) -> dict[str, Any]:
        """Device, driver, versions, date."""


@dataclass(frozen=True)
class Finding:
    """A row of a study, its outcome in a word, and the limit that its share refers to."""

    row: Row
    status: str
    limit: str


@dataclass(frozen=True)
class Judged:
    """A conclusion of the course: whether it holds here, None if these rows cannot tell, and the numbers."""

    claim: str
    place: str
    held: bool | None
    numbers: str


@dataclass(frozen=True)
class StudyRun:
    """A finished study, with all that is reported; limits in GB/s and GFLOP/s."""

    study: Study
    findings: tuple[Finding, ...]
    judged: tuple[Judged, ...]
    limits: Mapping[str, float]
    environment: Mapping[str, Any]
    profile: tuple[Line, ...] = ()

    @property
    def failures(self) -> list[Finding]:
        """Correct variants whose results were wrong, broken ones that were not caught."""
        return [finding for finding in self.findings if finding.status in FAILURES]


def choose_cases(study: Study, variants: tuple[str, ...], quick: bool) -> tuple[Case, ...]:
    """Cases of the named variants, or of all if none is named; optionally only the quick ones.

    Raises
    ------
    UsageError
        If a variant is unknown, or nothing is left.
    """
    for variant in variants:
        if variant not in study.variants:
            raise UsageError(f"expected a variant, one of {', '.join(study.variants)}, got {variant}")
    cases = [case for case in study.cases if not variants or case.variant in variants]
    chosen = tuple(case for case in cases if case.quick or not quick)
    if not chosen:
        hint = "leave out --quick" if cases else f"choose from {', '.join({case.variant: 0 for case in study.cases})}"
        raise UsageError(f"the study of {study.job} has no such case of {', '.join(variants) or 'any'}; {hint}")
    return chosen


def run_study(
    study: Study, cases: tuple[Case, ...], device: Device, progress: Callable[[Finding], None] = lambda _: None
) -> StudyRun:
    """Measure the limits, then check and time every case, then judge the conclusions.

    Raises
    ------
    PipelineError
        If the device fails; a wrong result is a row, not an error.
    """
    variants = study.variants
    names = dict.fromkeys(
        study.limit(case) for case in cases if not (variants[case.variant].broken or variants[case.variant].on_host)
    )
    limits = {name: device.limit(name) for name in names}
    runner = _Runner(study, device, limits)
    findings = []
    for case in cases:
        device.release()
        try:
            finding = runner.run(case)
        except device.errors as error:
            raise PipelineError(
                f"{label(case)}: the device stopped with {error}; nothing after it could be trusted, "
                "leave the variant out with --variant"
            ) from error
        findings.append(finding)
        progress(finding)
    rows = [finding.row for finding in findings]
    judged = tuple(_judge(conclusion, rows) for conclusion in study.conclusions)
    return StudyRun(study, tuple(findings), judged, limits, device.environment())


def median_ms(once: Callable[[int], float], warm: bool = False) -> float:
    """Median of repeated measurements after a warm-up: as many as fit a time budget, but at least five.

    Parameters
    ----------
    once
        Measures once, given the number of the repetition.
    warm
        It has run before: what takes a quarter of a second is measured once more, and that is all.
    """
    estimate = once(0)
    if warm and estimate >= LONG_MS:
        return estimate
    if estimate < BUDGET_MS / FEWEST:
        estimate = once(1)
    repeats = min(max(FEWEST, int(BUDGET_MS / max(estimate, 1e-3))), MOST)
    return statistics.median(once(turn) for turn in range(2, 2 + repeats))


class _Runner:
    """Runs the cases of a study on a device."""

    def __init__(self, study: Study, device: Device, limits: Mapping[str, float]) -> None:
        self._study = study
        self._device = device
        self._limits = limits
        self._data = Data(study)
        self._transfer = cache(device.transfer)  # it depends on the bytes alone

    def run(self, case: Case) -> Finding:
        """Check a case, then time it."""
        study, limit = self._study, self._study.limit(case)
        variant = study.variants[case.variant]
        arrays, expected = self._data.of(case)
        parameters = {**variant.parameters, **case.parameters}
        signature(variant.run).bind(*arrays, **parameters)  # a wrong call is a bug of the study, not a refusal
        run = partial(variant.run, **parameters)
        if variant.on_host:
            return self._on_host(case, run, arrays, expected)
        try:
            inputs = self._device.to_device(arrays)
            for _ in range(ATTEMPTS if variant.broken else 1):
                try:
                    result = run(*inputs)
                except (TypeError, ValueError) as error:
                    return Finding(Row(case, verified=False, note=_line(error)), REFUSED, limit)
                got = self._device.to_host(result)
                wrong = study.disagreement(got, expected, arrays, case)
                if wrong:
                    break
            if variant.broken and not wrong:
                note = f"agreed with the reference in each of {ATTEMPTS} runs"
                return Finding(Row(case, verified=False, note=note), NOT_CAUGHT, limit)
            if wrong and not variant.broken:
                return Finding(Row(case, verified=False, note=wrong), WRONG, limit)
            del result
            launches = variant.timed and partial(variant.timed, **parameters)
            ms = self._time(launches or (lambda *own: partial(run, *own)), inputs, arrays, case.timing, not launches)
            there, back = self._transfer(_nbytes(arrays), False), self._transfer(got.nbytes, True)
        except MemoryError as error:
            return Finding(Row(case, verified=False, note=_line(error)), NO_MEMORY, limit)
        if variant.broken:
            return Finding(Row(case, True, ms, None, None, there, back, wrong or ""), CAUGHT, limit)
        rate = study.work(case) / ms / 1e6
        share = rate / self._limits[limit]
        return Finding(Row(case, True, ms, rate, share, there, back), VERIFIED, limit)

    def _time(
        self,
        launches: Callable[..., Callable[[], Any]],
        inputs: tuple[Any, ...],
        arrays: Arrays,
        timing: str,
        warm: bool,
    ) -> float:
        """Median time; of cold data by alternating between copies that together take more than twice the L2 cache."""
        device = self._device
        if timing in (WARM, THOUSAND):
            launch = launches(*inputs)
            if timing == WARM:
                return median_ms(lambda _: device.elapsed(launch, before=launch))
            return median_ms(lambda _: device.elapsed(lambda: _repeat(launch))) / RUNS
        copies = min(2 * device.cache_bytes // max(_nbytes(arrays), 1) + 1, COPIES)
        sets = [launches(*inputs), *(launches(*device.to_device(arrays)) for _ in range(copies - 1))]
        return median_ms(lambda turn: device.elapsed(sets[turn % len(sets)]), warm)

    def _on_host(self, case: Case, run: Callable[..., Any], arrays: Arrays, expected: NDArray[Any]) -> Finding:
        """Check a baseline on the CPU, then time it by the host's clock."""
        try:
            wrong = self._study.disagreement(run(*arrays), expected, arrays, case)
        except (TypeError, ValueError) as error:
            return Finding(Row(case, verified=False, note=_line(error)), REFUSED, HOST)
        if wrong:
            return Finding(Row(case, verified=False, note=wrong), WRONG, HOST)
        ms = median_ms(lambda _: _host_ms(lambda: run(*arrays)), warm=True)
        return Finding(Row(case, True, ms, self._study.work(case) / ms / 1e6), VERIFIED, HOST)


def _repeat(launch: Callable[[], Any]) -> None:
    for _ in range(RUNS):
        launch()


def _host_ms(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def _nbytes(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _judge(conclusion: Conclusion, rows: list[Row]) -> Judged:
    try:
        held, numbers = conclusion.judge(rows)
    except KeyError as error:
        missing = str(error.args[0]) if error.args else "rows are missing"
        return Judged(conclusion.claim, conclusion.place, None, missing)
    return Judged(conclusion.claim, conclusion.place, bool(held), numbers)
