"""Runs a study on several GPUs at once, a process for each: all check a case, then all time it together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from time import monotonic
from typing import Any

from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.worker import run_task
from pipeline.cluster.workers import Workers, known_workers
from pipeline.errors import PipelineError, UsageError, failure
from pipeline.gpu.devices import find_devices
from pipeline.study.device import open_device
from pipeline.study.run import FAILURES, VERIFIED, Finding, Runner, StudyRun, judged
from workflows.study.registry import STUDIES
from workflows.study.study import Case, Row, Study, label

CASE_SECONDS = 600.0  # that all GPUs may take for a case: one alone takes seconds
LOOK_SECONDS = 1.0  # between two looks whether all of them are still there


def run_together(
    study: Study, cases: tuple[Case, ...], gpus: str, progress: Callable[[Finding], None] = lambda _: None
) -> StudyRun:
    """As `pipeline.study.run.run_study`, on all of these GPUs at the same time.

    The rate of a row is the sum over the GPUs, its time that of the slowest; limits are sums, too.

    Parameters
    ----------
    study, cases
    gpus
        In a form that `pipeline.gpu.selection.as_text` takes.
    progress

    Raises
    ------
    UsageError
        If there is no such GPU.
    PipelineError
        If a GPU fails, or one does not finish a case in time.
    """
    devices = find_devices()
    if not devices.usable:
        raise UsageError(f"--gpus {gpus}: expected a GPU, which a study needs, but {devices.missing}")
    with open_workers(Placement(gpus=gpus, own_process=True), 0) as workers:
        addresses = sorted(known_workers(workers.client, workers.description))
        numbers = {id(case): number for number, case in enumerate(study.cases)}

        def everywhere(what: str, function: Callable[..., Any], *arguments: Any) -> list[Any]:
            return _everywhere(workers, addresses, f"{study.job}: {what}", function, *arguments)

        names = tuple(dict.fromkeys(study.limit(case) for case in cases if study.variants[case.variant].broken is None))
        measured = everywhere("limits", measure_limits, study.job, names)
        limits = {name: sum(one[name] for one in measured) for name in names}
        findings = []
        for case in cases:
            number = numbers[id(case)]
            answers = everywhere(label(case), check_case, study.job, names, number)
            checked = [Finding(Row(case, **row), status, limit) for status, limit, row in answers]
            finding = next((one for one in checked if one.status in FAILURES), None)
            finding = finding or next((one for one in checked if one.status != VERIFIED), None)
            if finding is None:
                times = everywhere(label(case), time_case, study.job, names, number)
                finding = _sum(study, case, times, limits)
            findings.append(finding)
            progress(finding)
        (environment, *_) = everywhere("environment", describe, study.job, names)
    environment |= {"gpus": len(addresses), "device": _name(str(environment["device"]), len(addresses), gpus)}
    return StudyRun(study, tuple(findings), judged(study, findings), limits, environment)


def _name(device: str, number: int, gpus: str) -> str:
    return f"{number} × {device} at once" if number > 1 else f"{device}, one GPU (--gpus {gpus}): no sum"


def _sum(study: Study, case: Case, times: Sequence[float], limits: dict[str, float]) -> Finding:
    """A verified row of all GPUs."""
    limit, rates = study.limit(case), [study.work(case) / ms / 1e6 for ms in times]
    note = f"sum of {len(rates)}: {min(rates):.4g} to {max(rates):.4g} {study.unit} each" if len(rates) > 1 else ""
    row = Row(case, verified=True, ms=max(times), rate=sum(rates), share=sum(rates) / limits[limit], note=note)
    return Finding(row, VERIFIED, limit)


def _everywhere(
    workers: Workers, addresses: list[str], name: str, function: Callable[..., Any], *arguments: Any
) -> list[Any]:
    """Results of a function that all workers call at the same time, in their order.

    Raises
    ------
    PipelineError
        If one fails, is gone, or takes too long.
    """
    submit, began = workers.client.submit, monotonic()
    futures = [submit(run_task, name, workers.device, function, *arguments, workers=[address], pure=False)
               for address in addresses]  # fmt: skip
    results = []
    for future in futures:
        while True:
            try:
                results.append(future.result(LOOK_SECONDS))
                break
            except PipelineError:
                raise
            except Exception as error:
                if future.status == "error" or not isinstance(error, TimeoutError):
                    raise failure(name, error) from error
            waited = monotonic() - began
            workers.watch(waited)
            gone = set(addresses) - set(known_workers(workers.client, workers.description))
            if gone or waited > CASE_SECONDS:
                what = f"lost {len(gone)}" if gone else f"waited {CASE_SECONDS:.0f} s"
                raise PipelineError(f"{name}: expected a result of each of {len(addresses)} GPUs, {what}; leave the "
                                    "variant or the GPU out, with --variant or --gpus")  # fmt: skip
    return results


def measure_limits(job: str, names: tuple[str, ...]) -> dict[str, float]:
    """Task: the limits of this process's GPU."""
    return _here(job, names)[1]


def check_case(job: str, names: tuple[str, ...], number: int) -> tuple[str, str, dict[str, Any]]:
    """Task: check and time a case on this process's GPU: status, limit, and the row without its case."""
    runner, _, device = _here(job, names)
    device.release()
    finding = runner.run(STUDIES[job].cases[number])
    return finding.status, finding.limit, {name: value for name, value in vars(finding.row).items() if name != "case"}


def time_case(job: str, names: tuple[str, ...], number: int) -> float:
    """Task: milliseconds of a case, while other GPUs run it, too."""
    return _here(job, names)[0].again(STUDIES[job].cases[number])


def describe(job: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Task: this process's GPU and its software."""
    environment: dict[str, Any] = _here(job, names)[2].environment()
    return environment


@cache
def _here(job: str, names: tuple[str, ...]) -> tuple[Runner, dict[str, float], Any]:
    """What this process keeps between tasks: the data of the cases, the limits and the device."""
    device = open_device()
    limits = {name: device.limit(name) for name in names}
    return Runner(STUDIES[job], device, limits), limits, device
