"""Entry to jobs that write an array, over arrays in memory: the output is an array of the same kind."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.engine.verdict import Verdict
from pipeline.errors import UsageError
from pipeline.in_memory.arrays import compute, outlined
from pipeline.in_memory.kinds import DASK
from pipeline.in_memory.lazy import lazy_output
from pipeline.storage.array_source import accepted
from pipeline.storage.protocol import Opening
from workflows.array_job import ArrayJob

# What is said of a dask array, whose blocks are checked when they are computed.
SAID = "of every block is checked as it is computed, and a wrong number raises VerificationError"
LAZY = {
    "auto": f"a part {SAID}; --verify full checks all",
    "full": f"all {SAID}",
    "sample": f"a part {SAID} (--verify sample); --verify full checks all",
    "off": "nothing is checked (--verify off); --verify full checks all",
}


@dataclass(frozen=True)
class ArrayInMemory:
    """The array that a job returned.

    Attributes
    ----------
    array
        Of the kind that was given: NumPy, CuPy or dask.
    notes
        How it was computed, by name.
    verification
        What was checked; of a dask array, which is checked when it is computed, how.
    """

    array: Any
    notes: dict[str, str]
    verification: Verdict | str


def run_array_job(
    workflow: ArrayJob[Any], options: Any, kind: str, arrays: Sequence[Any], verify: str, part_bytes: int | None,
    opening: Opening,
) -> ArrayInMemory:  # fmt: skip
    """Run one job over arrays of one kind; as `pipeline.in_memory.run.run_in_memory`."""
    expected = workflow.operands(options) or 1
    if len(arrays) != expected:
        raise UsageError(f"{workflow.name}: expected {expected} array{'s'[: expected > 1]}, got {len(arrays)}")
    arrays = [accepted(array, opening) for array in arrays]
    job = outlined(workflow, options, arrays, verify, secrets.randbits(32))
    notes = workflow.notes(job.specs, options) if workflow.notes else {}
    rounding = workflow.rounding(job.specs, options)
    if kind == DASK:
        said = "; ".join(filter(None, (LAZY[verify], rounding)))
        return ArrayInMemory(lazy_output(job, arrays), notes, said)
    output, counts, checked, regions = compute(job, arrays, part_bytes)
    notes |= {name: f"{count:,} of {job.spec.size:,}" for name, count in counts.items()}
    verdict = Verdict(verify, job.spec.size, checked.elements, regions, job.seed, checked.escape, checked.undetected,
                      rounding=rounding or None)  # fmt: skip
    return ArrayInMemory(output, notes, verdict)
