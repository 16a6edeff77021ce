"""What a run of aggregations will need."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.cluster.gpu_count import Load
from pipeline.engine.aggregate import accepted, next_pass, partial_bytes, plan_pass, run_all
from pipeline.engine.aggregate_journal import ChunksDone
from pipeline.engine.aggregate_parts import WAITING_BYTES
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.inputs import cluster_bytes
from pipeline.engine.journal import Journal
from pipeline.engine.run_loop import Run as Loop
from pipeline.errors import PipelineError, UsageError
from pipeline.estimate.estimate import DECODING, Estimate, Need, Time, size
from pipeline.estimate.machine import Planned, free_memory, planned
from pipeline.estimate.measured_speed import Model, Run, calibrated, time_of_checks
from pipeline.estimate.storage import rate, uncached
from pipeline.gpu.blocks import BLOCK_BYTES, CHUNKS, LEAST_BLOCK_BYTES, SLOTS, block_bytes_within
from pipeline.process.scratch_folder import scratch_folder
from pipeline.rows import COPIES
from pipeline.settings import Settings
from pipeline.storage.blocks import BLOCK_BYTES as READ_BYTES
from pipeline.storage.chunks import Chunk
from pipeline.storage.generate import generate
from pipeline.storage.pieces import WholePiece
from pipeline.storage.scratch import KEPT_BYTES
from pipeline.storage.sources import DTYPES, Source, open_source
from workflows.rows import Rows, RowsOptions

Made = Callable[[Source], tuple[Sequence[Job], Sequence[Source]]]  # jobs for a source, and what they read besides

SIZES = {"cpu": (2**23, 2**27), "gpu": (2**26, 2**30)}  # bytes of the runs that are measured
MOST_ROWS = 2**12  # of a run that is measured, where rows become more with the samples: they take time, too
OF_A_BLOCK = 3  # copies of a block that is decoded whole: as stored, decoded, and put together
SEED = 0  # a run draws its own; chunks do not depend on it
BLOCK = 2**20  # generated samples, which repeat


def plan_aggregations(made: Made, source: Source, settings: Settings) -> Estimate:
    """What a run over a source will need.

    Raises
    ------
    UsageError
        If the request is impossible, or the source can be read only once.
    """
    if source.nbytes is None or source.read_once:
        raise UsageError(f"plan: expected files, got {source.names[0]}, which cannot be inspected before it is read; "
                         "write it to a file first")  # fmt: skip
    several, beside = made(source)
    jobs = accepted(several, source, settings)
    nbytes = cluster_bytes([source, *beside], settings.placement)
    machine = planned(settings.placement, nbytes, lambda: all(job.compiled for job in jobs),
                      lambda: Load("read", nbytes))  # fmt: skip
    loop = Loop(settings, CHUNKS, SEED)
    loop.workers = machine.workers
    limit = settings.device_memory_limit
    block_bytes = BLOCK_BYTES if limit is None else block_bytes_within(limit)
    pass_ = next_pass(Pass(jobs, machine.workers.device, block_bytes, verify=settings.verify))
    chunks = plan_pass(loop, pass_, source, ChunksDone(Journal(), 0, pass_))
    assert isinstance(chunks, tuple)
    surveyed = any(job.surveyed for job in jobs)
    time, unknown, passes = None, "", 1 + surveyed
    try:
        if any("://" in name for name in (*source.paths, *source.names)):
            raise PipelineError("how fast remote storage answers is not known")
        model = _model(made, jobs, source, settings, machine)
        passes = max(passes, model.passes)
        time = _time(model, source, passes, settings, machine, [*beside], all(chunk.plain for chunk in chunks))
    except UsageError as error:  # the job does not take generated samples, as with a mask
        unknown = f"this cannot be measured with generated samples: {error}"
    except OSError as error:
        unknown = f"the machine cannot be measured: {error.strerror or error}"
    except PipelineError as error:
        unknown = f"the machine cannot be measured: {error}"
    name = ", ".join(job.workflow.name for job in jobs)
    return Estimate(
        f"{name} of {', '.join(source.names[:3])}{' …' if len(source.names) > 3 else ''} ({source.dtype.name})",
        machine.workers.description, source.nbytes, passes, surveyed, len(chunks),
        max((chunk.nbytes for chunk in chunks), default=0),
        _needs(pass_, source, settings, machine, chunks),
        time, unknown,
    )  # fmt: skip


def _needs(
    pass_: Pass, source: Source, settings: Settings, machine: Planned, chunks: Sequence[Chunk]
) -> list[Need]:  # fmt: skip
    workers, partial = machine.workers, partial_bytes(pass_, source)
    waiting = WAITING_BYTES if settings.verify == "auto" else 0
    kept = 2 * workers.computing * max((len(chunk.parts) for chunk in chunks), default=1) + 2
    rows, of_rows, in_words = _rows(pass_.jobs), 0, ""
    if rows is not None and rows.number is not None and rows.number > rows.inner:  # more than a partial's
        of_row = partial / rows.inner
        of_rows = int(COPIES * rows.number * of_row)
        in_words = f" + {rows.number:,} rows of {size(of_row)}, held {COPIES} times"
    decoded = [piece.decoded for chunk in chunks for piece in chunk.pieces if isinstance(piece, WholePiece)]
    block, decoding = max(decoded, default=0), min(workers.threads, len(decoded))
    if decoded:
        several = "s"[: decoding > 1]
        in_words += f" + {decoding} decoded block{several} of {size(block)}, held {OF_A_BLOCK} times"
    each, fewer = READ_BYTES + KEPT_BYTES, "make fewer bins or rows, or free some memory"
    needs = [Need(
        "host memory", free_memory(),
        workers.threads * each + kept * partial + of_rows + decoding * OF_A_BLOCK * block + waiting,
        f"{workers.threads} threads with {size(each)} each + {kept:,} partials of {size(partial)}{in_words}"
        f"{f' + {size(waiting)} that wait for checks' if waiting else ''}",
        workers.threads * max(READ_BYTES, block) + (workers.computing + 1) * partial,
        f"{workers.threads} threads with {size(max(READ_BYTES, block))} each + {workers.computing + 1:,} partials of "
        f"{size(partial)}", fewer,
    )]  # fmt: skip
    if machine.chosen.gpus:
        free, blocks = min(gpu.free for gpu in machine.chosen.gpus), CHUNKS * SLOTS
        needs.append(Need(
            "memory of each GPU", free,
            blocks * pass_.block_bytes + 2 * CHUNKS * partial,
            f"{blocks} blocks of {size(pass_.block_bytes)} + {2 * CHUNKS} partials of {size(partial)}, besides CUDA's "
            "own",
            blocks * LEAST_BLOCK_BYTES + CHUNKS * partial,
            f"{blocks} blocks of {size(LEAST_BLOCK_BYTES)} + {CHUNKS} partials of {size(partial)}",
            f"{fewer}, or give --device cpu",
        ))  # fmt: skip
    return needs


def _model(made: Made, jobs: Sequence[Job], source: Source, settings: Settings, machine: Planned) -> Model:
    """The model of these jobs on one worker; UsageError if they cannot have generated samples."""
    where = replace(settings.placement, device=machine.workers.device, dashboard_address=None)
    if machine.chosen.gpus:
        where = replace(where, gpus="1")
    how = Settings(where, device_memory_limit=settings.device_memory_limit)
    dtype, sizes = source.dtype, SIZES[machine.workers.device]

    def runs(folder: Path) -> list[Run]:
        shapes = dict.fromkeys(_shape(jobs, source, nbytes // dtype.itemsize) for nbytes in sizes)
        return [_run(made, _generated(folder, dtype, shape)) for shape in shapes]

    try:
        asked = [(job.workflow.name, job.workflow.kernel, dict(job.workflow.asked), pickle.dumps(job.options))
                 for job in jobs]  # fmt: skip
    except (pickle.PicklingError, AttributeError, TypeError):
        raise UsageError("the options of this job cannot be compared with those of earlier measurements") from None
    key = ("aggregate", asked, dtype.str, machine.workers.device, sizes)
    with scratch_folder() as folder:
        return calibrated(key, lambda: runs(folder), how)


def _run(made: Made, path: str) -> Run:
    source = open_source((path,))
    jobs, beside = made(source)
    nbytes = source.nbytes or 0
    what = f"with {size(nbytes)} of generated {source.dtype.name}, bell-shaped, in memory"
    return Run(lambda how: run_all(jobs, source, how, beside=beside)[0], nbytes, 0.0, what)


def _rows(jobs: Sequence[Job]) -> Rows | None:
    return next((job.options.rows for job in jobs if isinstance(job.options, RowsOptions)), None)


def _shape(jobs: Sequence[Job], source: Source, samples: int) -> tuple[int, ...]:
    """A shape with about so many samples, in rows as long, or as many, as those of the source."""
    rows = _rows(jobs)
    if rows is None or rows.number is None or rows.by == "file" or source.shape is None:
        return (samples,)
    if rows.by == "channel":
        return max(samples // rows.number, 1), rows.number
    number = math.prod(source.shape)
    left, shape = min(samples, max(1, MOST_ROWS * number // rows.number)), list[int]()
    whole = source.shape if rows.by == "row" else (number,)
    for axis, length in enumerate(whole):  # the first axis alone may be longer than the source's
        most = max(1, left // math.prod(whole[axis + 1 :]))
        shape.append(min(length, most) if axis else most)
        left = max(1, left // shape[-1])
    return tuple(shape)


def _generated(folder: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """A `.npy` file of such a shape."""
    native = dtype.name if dtype.name in DTYPES else "float64"
    block, path = folder / "block.npy", folder / f"{'x'.join(map(str, shape))}.npy"
    generate(block, min(BLOCK, math.prod(shape)), native, "gaussian")
    np.save(path, np.resize(np.load(block).astype(dtype), shape))
    return str(path)


def _time(
    model: Model, source: Source, passes: int, settings: Settings, machine: Planned, beside: Sequence[Source],
    plain: bool,
) -> Time:  # fmt: skip
    nbytes = source.nbytes or 0
    computing = model.fixed + model.per_byte * nbytes * passes / model.passes / machine.faster
    everything = model.checks(nbytes, 0.0) / machine.faster
    left_out = [] if plain else [DECODING]
    if beside:
        left_out.append("reading columns and masks")
    if settings.replay:
        left_out.append("--replay")
    stage, measured = model.stage, model.measured
    absent, storage = _storage(source)
    if absent > nbytes / 100 and storage is None:
        left_out.append(f"reading {size(absent)} that are not in memory, from storage of unknown speed")
    elif absent and storage and absent / storage > computing:
        computing, stage = absent / storage, "read, from storage"
        measured += f"; {size(absent)} of the input are not in memory, storage gives {size(storage)}/s"
    checks = time_of_checks(settings.verify, computing, everything, machine.workers.device, False)
    if checks > (computing if stage != model.stage else model.stage_share * computing):
        stage = "verify"
    return Time(model.start_up + machine.start_up, computing + checks, checks, stage, " and ".join(left_out), measured)


def _storage(source: Source) -> tuple[int, float | None]:
    """Bytes of a source's files that are not in memory, and bytes per second of storage."""
    absent, fastest = 0, None
    for path in source.paths:
        nbytes, places = uncached(path)
        absent += nbytes
        if places and fastest is None:
            fastest = rate(path, places)
    whole = sum(Path(path).stat().st_size for path in source.paths if Path(path).is_file())
    share = min(1.0, (source.nbytes or 0) / whole) if whole else 0.0  # of a slice
    return int(absent * share), fastest
