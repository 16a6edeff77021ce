"""Places for errors in jobs on samples that are kept, calibrated, or of rows; in merges, and between two passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import kernels.quantile.cpu
import workflows.bins
import workflows.by_rows
import workflows.calibration
import workflows.digest
import workflows.quantile_rows
import workflows.quartiles
import workflows.reduce
import workflows.reduce_rows
import workflows.selection
import workflows.selection_rows
from kernels.digest.partial import pack, unpack
from kernels.reduce import partial as layout
from pipeline.engine.aggregate_plan import Job
from tests.benchmarks.planted.faults import BASIC, COUNTS, MERGE, Fault, content
from tests.benchmarks.planted.injector import CHECK, CLIENT, COMPUTE, INJECTOR
from tests.benchmarks.planted.patches import (
    CALIBRATED,
    KEPT,
    KERNEL,
    MERGED,
    POSITION,
    ROWS,
    SUM,
    Patches,
    result_of,
)
from workflows.rows_partial import decoded, encoded

ROW_KINDS = ("swapped rows", "neighbour's row")
NODE_KINDS = ("swapped nodes",)

# --- before a job gets samples ----------------------------------------------------------------------------------------


def keeping(real: Any) -> Any:
    """`mask.kept`: which samples are kept."""

    def kept(condition: Any, values: Any) -> Any:
        mask = real(condition, values)
        if INJECTOR.active and INJECTOR.role == COMPUTE:
            mask = mask.copy()
            INJECTOR.note(KEPT, BASIC, mask)
            mask[...] = mask.view(np.uint8) != 0  # a truth value has one of two bytes
        return mask

    return kept


def calibrating(real: Any) -> Any:
    """`apply.calibrate`."""

    def calibrate(samples: Any, calibration: Any) -> Any:
        numbers = real(samples, calibration)
        fault = INJECTOR.note(CALIBRATED, (*BASIC, "not calibrated", "calibrated twice"), numbers)
        if fault and fault.kind == "not calibrated":
            return samples.astype(np.float64)
        return real(numbers, calibration) if fault and fault.kind == "calibrated twice" else numbers

    return calibrate


def splitting(real: Any) -> Any:
    """`rows.split`: the samples of each row of a block."""

    def split(rows: Any, block: Any, start: int) -> Iterator[Any]:
        runs = real(rows, block, start)
        kinds = (*ROW_KINDS, "lost block", "block twice", "wrong place")
        if fault := INJECTOR.reached(ROWS, kinds):
            runs = list(runs)
            at, other = (int(fault.random.integers(len(runs))) for _ in range(2))
            row, indices, run = runs[at]
            if fault.kind == "swapped rows":
                runs[at], runs[other] = (runs[other][0], *runs[at][1:]), (row, *runs[other][1:])
            elif fault.kind == "neighbour's row":
                near = [one for one in (row - 1, row + 1) if 0 <= one < (rows.number or 1)]
                runs[at] = (int(fault.random.choice(near)) if near else row, indices, run)
            elif fault.kind == "lost block":
                del runs[at]
            elif fault.kind == "block twice":
                runs.insert(at, runs[at])
            else:
                step = int(fault.random.choice([-1, 1])) * indices.step
                runs[at] = (row, range(indices.start + step, indices.stop + step, indices.step), run)
        yield from runs

    return split


def lining(real: Any) -> Any:
    """`rows_partial.encoded_lines`: the lines of rows that are computed together."""

    def encoded_lines(rows: Any, samples: Any, lines: Any, **options: Any) -> Any:
        if fault := INJECTOR.reached(ROWS, ROW_KINDS):
            lines = [of_stretch.copy() for of_stretch in lines]
            table = lines[int(fault.random.integers(len(lines)))]
            at, other = (int(fault.random.integers(len(table))) for _ in range(2))
            if fault.kind == "swapped rows":
                table[[at, other]] = table[[other, at]]
            else:
                table[at] = table[at - 1]
        return real(rows, samples, lines, **options)

    return encoded_lines


def relocate(moments: Any, index: Any) -> Any:
    """`partial.relocate`: places of extremes among all samples; by this name it is pickled."""
    moved = layout.relocate(moments, index)
    if fault := INJECTOR.reached(POSITION, ("off by one", "swapped elements", "single bit"), None, (COMPUTE, CHECK)):
        if fault.kind == "off by one":
            at = layout.POSITIONS.start + int(fault.random.integers(3))
            if moved[at] != layout.NOWHERE:
                moved[at] += fault.random.choice([-2, 2])
        else:
            fault.spoil_array(moved[layout.POSITIONS])
    return moved


# --- merges and surveys -----------------------------------------------------------------------------------------------


def merged(combine: Any, name: str, kinds: tuple[str, ...], a: Any, b: Any) -> Any:
    """`combine` of a job; by this name it is pickled."""
    fault = INJECTOR.reached(MERGED, kinds, name, (COMPUTE, CHECK, CLIENT))
    if fault is None:
        return combine(a, b)
    if fault.kind == "lost operand":
        return a if fault.random.integers(2) else b
    if fault.kind == "operand twice":
        return combine(combine(a, b), b)
    if fault.kind == "wrong operand":
        return combine(a, a)
    before, total = content(a), combine(a, b)
    if fault.kind in ROW_KINDS:
        return _other_rows(fault, total)
    if fault.kind in NODE_KINDS:
        return _other_nodes(fault, total)
    total = np.array(total) if isinstance(total, np.ndarray) else total  # it may be one of the two
    fault.spoil_array(total, before)
    return total


def _other_rows(fault: Fault, partial_: Any) -> Any:
    """Two rows swapped, or one in the place of the next one, too."""
    parts = decoded(partial_)
    if len(parts) < 2:
        return partial_
    rows = sorted(parts)
    at = int(fault.random.integers(len(rows) - 1))
    row, other = rows[at], rows[at + 1] if fault.kind == "neighbour's row" else fault.random.choice(rows)
    if fault.kind == "swapped rows":
        parts[row], parts[other] = parts[other], parts[row]
    else:
        parts[other] = parts[row]
    return encoded(parts)


def _other_nodes(fault: Fault, partial_: Any) -> Any:
    """The values of two nodes swapped."""
    dtype, nodes = unpack(partial_)
    places = [place for place, node in enumerate(nodes) if node.subtree]
    if len(places) > 1:
        a, b = fault.random.choice(places, 2, replace=False)
        payload = nodes[a].payload
        nodes[a], nodes[b] = nodes[a]._replace(payload=nodes[b].payload), nodes[b]._replace(payload=payload)
    return pack(dtype, nodes)


def merging(job: Job) -> Job:
    """The job, whose merges may be wrong."""
    workflow = job.workflow
    if getattr(workflow.combine, "func", None) is merged:
        return job
    own = ROW_KINDS if workflow.differences else NODE_KINDS if workflow.name == "digest" else ()
    wrong = partial(merged, workflow.combine, workflow.name, (*MERGE, *own))
    return Job(replace(workflow, combine=wrong), job.options)


def using(real: Any) -> Any:
    """`Job.resolved` and `Job.finalized`: the sum of a pass, after it was checked."""

    def use(self: Job, total: Any) -> Any:
        name = self.survey().workflow.name if self.surveyed else self.workflow.name
        if fault := INJECTOR.reached(SUM, COUNTS, name, (CLIENT,)):
            fault.spoil_array(total)
        return real(self, total)

    return use


def samples(patches: Patches) -> None:
    """Have all jobs that read samples come through these places."""
    patches.wrap(Job, "prepared", lambda real: lambda self, dtype: merging(real(self, dtype)))
    patches.wrap(Job, "survey", lambda real: lambda self: merging(real(self)))
    for name in ("resolved", "finalized"):
        patches.wrap(Job, name, using)
    for name in ("count_cells", "count_around"):
        patches.wrap(kernels.quantile.cpu, name, result_of(KERNEL, COUNTS))
    patches.wrap(workflows.digest, "digest_cpu", result_of(KERNEL, BASIC))
    for owner in (workflows.bins, workflows.quartiles):
        patches.wrap(owner, "inside", result_of(KERNEL, BASIC))
    for owner in (workflows.selection, workflows.selection_rows):
        patches.wrap(owner, "kept", keeping)
    patches.wrap(workflows.calibration, "calibrate", calibrating)
    patches.wrap(workflows.by_rows, "split", splitting)
    patches.wrap(workflows.by_rows, "encoded_lines", lining)
    for name in ("gather_rows", "count_keys"):
        patches.wrap(workflows.quantile_rows, name, result_of(KERNEL, COUNTS))
    patches.wrap(workflows.reduce_rows, "reduce_rows_cpu", result_of(KERNEL, COUNTS))
    for workflow in (workflows.reduce._MOMENTS, workflows.reduce.REDUCE):
        patches.set(workflow, "relocate", relocate)
