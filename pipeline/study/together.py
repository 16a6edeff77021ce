"""Runs a study on several GPUs at once, in a process for each: all of them check a case, then all time it together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.worker import run_task
from pipeline.cluster.workers import Workers, known_workers
from pipeline.errors import PipelineError, UsageError, failure
from pipeline.gpu.devices import find_devices
from pipeline.process import heartbeat
from pipeline.study.device import open_device
from pipeline.study.run import FAILURES, VERIFIED, Finding, StudyRun, run_study
from workflows.study.registry import STUDIES
from workflows.study.study import Case, Row, Study

CASE_SECONDS = 600.0  # that the last GPU may take longer for a case than the first
LOOK_SECONDS = 0.2  # between two looks at the processes
TICK_SECONDS = 0.0005  # between two looks at the other GPUs
STOP = "stop"  # the file that ends all waits
Answer = tuple[list[tuple[str, str, dict[str, Any]]], dict[str, float], Any, dict[str, Any]]


def run_together(
    study: Study, cases: tuple[Case, ...], gpus: str, progress: Callable[[int], None] = lambda _: None
) -> StudyRun:
    """As `pipeline.study.run.run_study`, on all of these GPUs at the same time.

    The rate of a row is the sum over the GPUs, its time that of the slowest; limits are sums, too. Conclusions are
    judged on the rows of the first GPU.

    Parameters
    ----------
    study, cases
    gpus
        In a form that `pipeline.gpu.named_gpus.as_text` takes.
    progress
        Called with the number of cases that all GPUs have come to since the last call.

    Raises
    ------
    UsageError
        If there is no such GPU.
    PipelineError
        If a GPU fails, or does not come to its next case in time.
    """
    devices = find_devices()
    if not devices.usable:
        raise UsageError(f"--gpus {gpus}: expected a GPU, which a study needs, but {devices.missing}")
    numbers = [study.cases.index(case) for case in cases]
    with (
        TemporaryDirectory(prefix="baru-study-") as folder,
        open_workers(Placement(gpus=gpus, own_process=True), 0) as workers,
    ):
        answers = _everywhere(workers, Path(folder), study.job, numbers, progress)
    limits = {name: sum(own[name] for _, own, _, _ in answers) for name in answers[0][1]}
    rows = [[Finding(Row(case, **row), status, limit) for case, (status, limit, row) in zip(cases, found, strict=True)]
            for found, _, _, _ in answers]  # fmt: skip
    findings = tuple(_sum(study, of_case, limits) for of_case in zip(*rows, strict=True))
    _, _, judged, environment = answers[0]
    environment |= {"gpus": len(answers), "device": _name(str(environment["device"]), len(answers), gpus)}
    return StudyRun(study, findings, judged, limits, environment)


def _name(device: str, number: int, gpus: str) -> str:
    return f"{number} × {device} at once" if number > 1 else f"{device}, one GPU (--gpus {gpus}): no sum"


def _sum(study: Study, findings: Sequence[Finding], limits: dict[str, float]) -> Finding:
    """The same case on all GPUs: the first that failed, else the first that was not timed, else their sum."""
    first = findings[0]
    for finding in [one for one in findings if one.status in FAILURES] or findings:
        if finding.status != VERIFIED or finding.limit not in limits:
            return finding
    rates = [study.work(first.row.case) / (finding.row.ms or 0.0) / 1e6 for finding in findings]
    note = f"sum of {len(rates)}: {min(rates):.4g} to {max(rates):.4g} {study.unit} each" if len(rates) > 1 else ""
    slowest = max(finding.row.ms or 0.0 for finding in findings)
    row = replace(first.row, ms=slowest, rate=sum(rates), share=sum(rates) / limits[first.limit], note=note)
    return replace(first, row=row)


def _everywhere(
    workers: Workers, folder: Path, job: str, numbers: list[int], progress: Callable[[int], None]
) -> list[Answer]:
    """What `study_here` returns on each worker; PipelineError if one fails, is gone, or keeps the others waiting."""
    addresses, name = sorted(known_workers(workers.client, workers.description)), f"study of {job}"
    futures = [
        workers.client.submit(run_task, name, workers.device, study_here, job, numbers, str(folder), own,
                              len(addresses), workers=[address], pure=False)
        for own, address in enumerate(addresses)
    ]  # fmt: skip
    came, since = 0, monotonic()
    try:
        while not all(future.done() for future in futures):
            for future in futures:
                if future.status == "error":
                    future.result(LOOK_SECONDS)
            workers.watch(monotonic() - since)
            if gone := set(addresses) - set(known_workers(workers.client, workers.description)):
                raise PipelineError(f"{name}: expected {len(addresses)} GPUs to the end, lost {len(gone)}; leave the "
                                    "variant or the GPU out, with --variant or --gpus")  # fmt: skip
            now = sum(all(_mark(folder, case, own).exists() for own in range(len(addresses)))
                      for case in range(1, len(numbers) + 1))  # fmt: skip
            if now > came:
                progress(now - came)
                came, since = now, monotonic()
            if monotonic() - since > CASE_SECONDS:
                raise _late(name, came)
            sleep(LOOK_SECONDS)
        progress(len(numbers) - came)
        return [future.result() for future in futures]
    except PipelineError:
        raise
    except Exception as error:
        raise failure(name, error) from error
    finally:
        (folder / STOP).touch()


def _late(name: str, came: int) -> PipelineError:
    return PipelineError(f"{name}: expected all GPUs to come to case {came + 1} within {CASE_SECONDS:g} s, one did "
                         "not; leave the variant or the GPU out, with --variant or --gpus")  # fmt: skip


def _mark(folder: Path, case: int, own: int) -> Path:
    """A file that exists once this GPU has come to a case, or beyond."""
    return folder / f"{case} {own}"


def study_here(job: str, numbers: Sequence[int], folder: str, own: int, gpus: int) -> Answer:
    """Task: the study on this process's GPU, in step with the others; rows without their cases, which cannot travel."""
    study = STUDIES[job]
    cases = tuple(study.cases[number] for number in numbers)
    device: Any = InStep(open_device(study, cases), Path(folder), own, gpus)
    run = run_study(study, cases, device)
    device.finish()
    rows = [(one.status, one.limit, {name: value for name, value in vars(one.row).items() if name != "case"})
            for one in run.findings]  # fmt: skip
    return rows, dict(run.limits), run.judged, dict(run.environment)


class InStep:
    """A device that begins to time a case when all others have come to that, too, or have refused it.

    Parameters
    ----------
    device
    folder
        For the marks of all.
    own, gpus
        Number of this one, and of all.
    """

    def __init__(self, device: Any, folder: Path, own: int, gpus: int) -> None:
        self._device, self._folder, self._own, self._gpus = device, folder, own, gpus
        self._case, self._waited = 0, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def release(self) -> None:
        """Called before every case."""
        self.finish()
        self._case, self._waited = self._case + 1, False
        heartbeat.step()  # this process gets on
        self._device.release()

    def finish(self) -> None:
        """The last case is over, whether it was timed or not."""
        if self._case:
            _mark(self._folder, self._case, self._own).touch()

    def elapsed(self, *work: Any, **how: Any) -> float:
        """Time a case, at first when all have come to it."""
        if not self._waited:
            self.finish()
            self._wait()
            self._waited = True
            heartbeat.step()
        return float(self._device.elapsed(*work, **how))

    def _wait(self) -> None:
        until = monotonic() + CASE_SECONDS
        missing = [_mark(self._folder, self._case, own) for own in range(self._gpus)]
        while missing := [mark for mark in missing if not mark.exists()]:
            if (self._folder / STOP).exists() or monotonic() > until:
                raise _late("study", self._case - 1)
            sleep(TICK_SECONDS)
