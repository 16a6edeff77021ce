"""What a run of a job that writes an array will need."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.engine.array import run_array
from pipeline.engine.array_plan import ArrayPlan, nbytes_of
from pipeline.engine.array_request import (
    Accepted,
    accepted,
    cut_regions,
    load_of,
    plan_array,
    region_bytes,
    taken_by,
)
from pipeline.engine.inputs import cluster_bytes
from pipeline.engine.task_memory import COPIES, LANES, Seats, seats, within_limits
from pipeline.errors import PipelineError, UsageError
from pipeline.estimate.estimate import DECODING, Estimate, Need, Time, size
from pipeline.estimate.machine import Planned, free_disk, free_memory, planned
from pipeline.estimate.measured_speed import Model, Run, calibrated, time_of_checks
from pipeline.process.scratch_folder import scratch_folder
from pipeline.settings import Settings
from pipeline.storage.array_file import FilledArray
from pipeline.storage.output_format import layout_of, split_output
from pipeline.storage.piece_regions import ChunkedRegions
from pipeline.storage.sources import Source, open_source
from workflows.array_job import ArrayJob
from workflows.regions import Bounds, Spec

# Bytes, and multiplications and additions, of the largest run that is measured.
MOST_BYTES = {"cpu": 2**28, "gpu": 2**30}
MOST_OPERATIONS = {"cpu": 2.0**33, "gpu": 2.0**40}
SHARES = (1 / 8, 1 / 3, 1.0)  # of the work of the largest run
LEAST_LENGTH = 16  # shorter axes stay as they are
SEED = 0


def plan_array_job(
    workflow: ArrayJob[Any], options: Any, sources: Sequence[Source], path: str, settings: Settings,
    chunks: tuple[int, ...] | None = None,
) -> Estimate:  # fmt: skip
    """What a run will need; UsageError if the request is impossible."""
    asked = accepted(workflow, options, sources, path, settings)
    stored = layout_of(path, asked.stored, chunks).whole
    plan = plan_array(workflow, options, asked, path, settings, SEED)
    placed = cluster_bytes(sources, settings.placement) and asked.nbytes
    machine = planned(settings.placement, placed, bool, lambda: load_of(plan, placed, settings))
    workers, processes = machine.workers, max(1, machine.chosen.processes)
    place = -(-workers.threads // processes), workers.device, settings
    most = within_limits(*place)
    elements, regions = cut_regions(plan, region_bytes(workflow, workers.device, most, settings), most)
    taken = max((_held(plan, region, elements) for region in {*regions[:1], *regions[-1:]}), default=0)
    time, unknown = None, ""
    try:
        time = _time(plan, asked, settings, machine)
    except (UsageError, ValueError) as error:
        unknown = f"this cannot be measured with smaller arrays: {error}"
    except OSError as error:
        unknown = f"the machine cannot be measured: {error.strerror or error}"
    except PipelineError as error:
        unknown = f"the machine cannot be measured: {error}"
    what = " and ".join(f"{', '.join(array.names[:2])} ({array.spec})" for array in asked.inputs)
    return Estimate(
        f"{workflow.name} of {what} to {path} ({asked.stored})", workers.description, asked.nbytes, 1, False,
        len(regions), taken, _needs(asked, path, stored, machine, taken, seats(*place)), time, unknown,
        counted="input, output",
    )  # fmt: skip


def _held(plan: ArrayPlan, region: Bounds, elements: int) -> int:
    """Bytes of inputs and output that the task of a region holds, where regions have about so many elements.

    A job that streams holds more of the inputs than it needs, as long as they are within that.
    """
    taken, workflow = taken_by(plan, region), plan.workflow
    if not workflow.streams or workflow.reads is None:
        return taken
    parts = zip(plan.specs, workflow.reads(region, plan.native(), plan.options), strict=True)
    everything = nbytes_of(plan.output.spec, region) + sum(nbytes_of(spec, bounds) for spec, bounds in parts)
    itemsizes = plan.output.spec.dtype.itemsize + sum(spec.dtype.itemsize for spec in plan.specs)
    return max(taken, min(everything, elements * itemsizes))


def _needs(asked: Accepted, path: str, nbytes: int, machine: Planned, taken: int, most: Seats) -> list[Need]:
    workers, chosen = machine.workers, machine.chosen
    advice = "give a smaller --chunk-size, or free some memory"
    processes = max(1, chosen.processes)
    what, free, tasks = "host memory", free_memory(), most.host * processes or workers.threads
    if chosen.gpus:
        what, free, tasks = "memory of each GPU", min(gpu.free for gpu in chosen.gpus), most.device or LANES
    several = f"{tasks} task{'s'[: tasks > 1]} × {size(taken)} of inputs and output"
    chunk, decoding = max(chunks := _chunks(asked), default=0), workers.threads
    in_words = f" + {decoding} decoded chunks of {size(chunk)}, and as stored" if chunks else ""
    needs = [Need(what, free, tasks * COPIES * taken + 2 * decoding * chunk, f"{several} × {COPIES} copies{in_words}",
                  tasks * taken + chunk, several, advice)]  # fmt: skip
    whole, disk = f"{asked.stored}, beside any file of its name", free_disk(split_output(path)[0])
    return [*needs, Need("disk", disk, nbytes, whole, nbytes, whole, "free some space, or write it elsewhere")]


def _chunks(asked: Accepted) -> list[int]:
    """Bytes of a chunk of each input whose chunks are decoded whole, however small a region is."""
    fillers = [array.filler for array in asked.inputs if isinstance(array, FilledArray)]
    return [filler.chunked.grid.chunk_bytes for filler in fillers if isinstance(filler, ChunkedRegions)]


def _time(plan: ArrayPlan, asked: Accepted, settings: Settings, machine: Planned) -> Time:
    workflow, options, device = plan.workflow, plan.options, machine.workers.device
    model = _model(workflow, options, asked.specs, settings, machine)
    operations = _operations(workflow, asked.specs, options)
    computing = model.seconds(asked.nbytes, operations) / machine.faster
    everything = model.checks(asked.nbytes, operations) / machine.faster
    checks = time_of_checks(settings.verify, computing, everything, device, workflow.whole)
    stage = "verify" if checks > model.stage_share * computing else model.stage
    left_out = [DECODING] if _chunks(asked) else []
    left_out += ["--replay"] if settings.replay else []
    return Time(model.start_up + machine.start_up, computing + checks, checks, stage, " and ".join(left_out),
                model.measured)  # fmt: skip


def _operations(workflow: ArrayJob[Any], specs: Sequence[Spec], options: Any) -> float:
    return 0.0 if workflow.operations is None else float(workflow.operations(specs, options))


def _model(workflow: ArrayJob[Any], options: Any, specs: Sequence[Spec], settings: Settings, machine: Planned) -> Model:
    """The model of this job for arrays of such proportions, on one worker."""
    device = machine.workers.device
    largest = _scaled(workflow, options, specs, MOST_BYTES[device], MOST_OPERATIONS[device])
    several = [_scaled(workflow, options, specs, share * MOST_BYTES[device], share * MOST_OPERATIONS[device])
               for share in SHARES[:-1]] + [largest]  # fmt: skip
    where = replace(settings.placement, device=device, dashboard_address=None)
    if machine.chosen.gpus:
        where = replace(where, gpus="1")

    def runs(folder: Path) -> list[Run]:
        return [_run(workflow, options, scaled, folder / str(place)) for place, scaled in enumerate(several)]

    key = ("array", workflow.name, workflow.kernel, pickle.dumps(options), device,
           [(spec.shape, spec.dtype.str) for spec in largest])  # fmt: skip
    with scratch_folder() as folder:
        return calibrated(key, lambda: runs(folder), Settings(where))


def _work(workflow: ArrayJob[Any], options: Any, specs: Sequence[Spec]) -> tuple[int, float]:
    """Bytes of inputs and output, and operations; ValueError if the shapes do not fit."""
    output = workflow.outline(specs, options)
    return int(sum(spec.nbytes for spec in specs) + output.nbytes), _operations(workflow, specs, options)


def _scaled(
    workflow: ArrayJob[Any], options: Any, specs: Sequence[Spec], most_bytes: float, most_operations: float
) -> list[Spec]:
    """Arrays of the same proportions, with equal lengths where these have them, of so much work at most."""

    def by(factor: float) -> list[Spec]:
        def length(old: int) -> int:
            return old if old <= LEAST_LENGTH else max(LEAST_LENGTH, round(old * factor))

        return [Spec(tuple(map(length, spec.shape)), spec.dtype) for spec in specs]

    def fits(factor: float) -> bool:
        nbytes, operations = _work(workflow, options, by(factor))
        return nbytes <= most_bytes and operations <= most_operations

    if fits(1.0):
        return by(1.0)
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return by(low)


def _run(workflow: ArrayJob[Any], options: Any, specs: Sequence[Spec], folder: Path) -> Run:
    folder.mkdir()
    random, paths = np.random.default_rng(SEED), []
    for number, spec in enumerate(specs):
        paths.append(str(folder / f"{number}.npy"))
        values = random.integers(-100, 100, min(spec.size, 2**20))
        np.save(paths[-1], np.resize(values.astype(spec.dtype), spec.shape))
    sources = [open_source((path,), samples=False) for path in paths]
    nbytes, operations = _work(workflow, options, specs)
    what = f"with {' and '.join(map(str, specs))}, {size(nbytes)} with the output, in memory"
    return Run(lambda how: run_array(workflow, options, sources, str(folder / "out.npy"), how), nbytes, operations,
               what)  # fmt: skip
