"""Places for errors inside of a job: kernels on the CPU, tasks, partials."""

from __future__ import annotations

from pickle import dumps, loads
from typing import Any

import numpy as np

import kernels.histogram.cpu
import kernels.histogram.finite_range
import kernels.map.promotion
import kernels.reduce.cpu
import kernels.reduce.cpu_powers
import kernels.stencil.cpu
import kernels.transpose.cpu
import pipeline.engine.aggregate
import pipeline.engine.array_regions
from kernels.matmul.cpu import CpuProduct
from kernels.matmul.cpu_narrow import NarrowCpuProduct
from pipeline.engine.aggregate_beside import Behind
from pipeline.engine.aggregate_task import compute_chunks as real_compute_chunks
from pipeline.engine.array_task import compute_regions as real_compute_regions
from tests.benchmarks.planted.faults import BASIC, COUNTS, STORED, content
from tests.benchmarks.planted.file_places import files, spoil_file
from tests.benchmarks.planted.injector import INJECTOR
from tests.benchmarks.planted.patches import KERNEL, PARTIAL, SURVEY, TASK, WRITTEN, Patches, result_of
from tests.benchmarks.planted.sample_places import samples
from workflows.matmul import MATMUL

_check = MATMUL.check
# --- kernels ----------------------------------------------------------------------------------------------------------


def kernels_on_cpu(patches: Patches) -> None:
    """Where kernels have written: counters, words of exact sums, sums, elements, tiles."""
    patches.wrap(kernels.histogram.cpu, "count_compiled", result_of(KERNEL, COUNTS))
    patches.wrap(kernels.histogram.cpu, "histogram_numpy", result_of(KERNEL, COUNTS))
    filled = result_of(KERNEL, COUNTS, lambda done, partial, *_: partial if done else None)
    patches.wrap(kernels.reduce.cpu, "_fill_compiled", filled)
    patches.wrap(kernels.reduce.cpu_powers, "extended", result_of(KERNEL, COUNTS))
    patches.wrap(kernels.map.promotion, "elementwise_cpu", result_of(KERNEL, BASIC))
    patches.wrap(kernels.stencil.cpu, "compiled_sums", result_of(KERNEL, BASIC))
    patches.wrap(kernels.stencil.cpu, "_in_steps", result_of(KERNEL, BASIC))
    patches.wrap(kernels.stencil.cpu, "window_sums", result_of(KERNEL, BASIC))
    written = result_of(KERNEL, BASIC, lambda done, array, out: out if done else None)
    patches.wrap(kernels.transpose.cpu, "_compiled", written)
    limbs = result_of(KERNEL, BASIC, lambda _, product, *parts: product.sums[int(parts[0].size) % len(product.sums)])
    patches.wrap(CpuProduct, "_add", limbs)
    patches.wrap(NarrowCpuProduct, "_add", result_of(KERNEL, BASIC, lambda _, product, *parts: product.sums))
    patches.wrap(NarrowCpuProduct, "_sum", result_of(KERNEL, BASIC, lambda _, product, *parts: parts[4]))
    for kind in (CpuProduct, NarrowCpuProduct):
        patches.wrap(kind, "finish", result_of(KERNEL, BASIC))
    patches.wrap(kernels.histogram.finite_range, "finite_range", result_of(SURVEY, BASIC))


# --- partials ---------------------------------------------------------------------------------------------------------


def compute_chunks(pass_: Any, chunks: Any) -> Any:
    """A task, which may take another chunk, and whose partials may change on their way to the client."""
    if not INJECTOR.active:
        return real_compute_chunks(pass_, chunks)
    indices = [chunk.index for chunk in chunks]
    known = {chunk.index for chunk in INJECTOR.items}
    INJECTOR.items += [chunk for chunk in chunks if chunk.index not in known]
    with INJECTOR.computing((pass_.name, *indices)):
        others = [chunk for chunk in INJECTOR.items if chunk.index not in indices]
        if (fault := INJECTOR.reached(TASK, ("wrong chunk",))) and others:
            chunks = [others[fault.random.integers(len(others))], *chunks[1:]]
        results = real_compute_chunks(pass_, chunks)
        before = INJECTOR.held.get(PARTIAL)
        fault = INJECTOR.reached(PARTIAL, (*COUNTS, "bit of the pickle"))
        if fault and fault.kind == "bit of the pickle":
            return _one_bit(results, fault.random)
        if INJECTOR.remembers:
            INJECTOR.held[PARTIAL] = content(results[0].partials[0][0])
        if fault:
            parts = results[0].partials
            fault.spoil_array(parts[fault.random.integers(len(parts))][0], before)
    return results


def _one_bit(results: Any, random: np.random.Generator) -> Any:
    data = bytearray(dumps(results))
    data[random.integers(len(data))] ^= 1 << random.integers(8)
    return loads(bytes(data))


def check_matmul(read: Any, elements: Any, region: Any, *others: Any) -> Any:
    """`MATMUL.check`; notes what its verdict admits."""
    checked = _check(read, elements, region, *others)
    INJECTOR.admitted[region] = checked.undetected
    return checked


# --- regions ----------------------------------------------------------------------------------------------------------


def compute_regions(plan: Any, regions: Any, device: str) -> Any:
    """A task, which may take another region, and whose output may change in its file before it is checked."""
    if not INJECTOR.active:
        return real_compute_regions(plan, regions, device)
    INJECTOR.items += [region for region in regions if region not in INJECTOR.items]
    with INJECTOR.computing(tuple(regions)):
        others = [region for region in INJECTOR.items if region not in regions]
        taken = list(regions)
        if fault := INJECTOR.reached(TASK, ("wrong chunk", "lost block")):
            at = int(fault.random.integers(len(taken)))
            if fault.kind == "lost block":
                del taken[at]
            elif others:
                taken[at] = others[fault.random.integers(len(others))]
        result = real_compute_regions(plan, taken, device)
        if fault := INJECTOR.reached(WRITTEN, STORED):
            region = regions[fault.random.integers(len(regions))]
            spoil_file(fault, plan.output.path, plan.output.offset, plan.output.spec, region)
    return result


def checking(real: Any) -> Any:
    """What a thread that computes does to check the same."""

    def check(*arguments: Any) -> Any:
        with INJECTOR.computing(None):
            return real(*arguments)

    return check


def install() -> Patches:
    """Have all jobs of this process come through these places."""
    patches = Patches()
    files(patches)
    kernels_on_cpu(patches)
    patches.set(pipeline.engine.aggregate, "compute_chunks", compute_chunks)
    for name in ("follow", "finish"):
        patches.wrap(Behind, name, checking)
    patches.set(pipeline.engine.array_regions, "compute_regions", compute_regions)
    samples(patches)
    patches.set(MATMUL, "check", check_matmul)
    return patches
