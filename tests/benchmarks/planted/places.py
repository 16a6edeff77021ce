"""Places for errors inside of a job: readers, kernels on the CPU, partials, merges, writers, files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from pickle import dumps, loads
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

import kernels.histogram.cpu
import kernels.histogram.finite_range
import kernels.map.promotion
import kernels.reduce.cpu
import kernels.stencil.cpu
import kernels.transpose.cpu
import pipeline.engine.aggregate
import pipeline.engine.array
import pipeline.storage.array_file
import pipeline.storage.blocks
import pipeline.storage.output_array
from kernels.matmul.cpu import CpuProduct
from kernels.matmul.cpu_narrow import NarrowCpuProduct
from pipeline.engine.aggregate_task import compute_chunks as real_compute_chunks
from pipeline.engine.array_task import compute_regions as real_compute_regions
from pipeline.storage.output_array import OutputFile
from tests.benchmarks.planted.faults import BASIC, COUNTS, MERGE, READ, STORED, Bytes, Fault, content
from tests.benchmarks.planted.injector import CHECK, CLIENT, COMPUTE, INJECTOR
from workflows.histogram import FINITE_RANGE, HISTOGRAM
from workflows.matmul import MATMUL
from workflows.reduce import REDUCE

READER, KERNEL, PARTIAL, MERGED = "reader", "kernel", "partial", "merge"
WRITER, WRITTEN, TASK, SURVEY = "writer", "written file", "task", "survey"
DELIVERED, AFTER = "reader of both", "file after its check"  # outside of what is promised
OUTSIDE = (DELIVERED, AFTER)
NO_ROLE = (WRITTEN, TASK, PARTIAL, KERNEL, WRITER, SURVEY, "host to device", "device to host", "planes on the device",
           "pinned writer", *OUTSIDE)  # fmt: skip

_combine = {workflow.name: workflow.combine for workflow in (HISTOGRAM, FINITE_RANGE, REDUCE)}
_check = MATMUL.check
_put_file, _write = OutputFile._put, OutputFile.write


class Patches:
    """Attributes that are replaced, until `undo`."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute, also of a frozen dataclass."""
        self._replaced.append((owner, name, getattr(owner, name)))
        self._assign(owner, name, value)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace a function by what `make` makes of it; does nothing where there is none."""
        if hasattr(owner, name):
            self.set(owner, name, make(getattr(owner, name)))

    def before(self, owner: Any, name: str) -> Any:
        """What an attribute was when it was replaced last."""
        return next(value for of, called, value in reversed(self._replaced) if of is owner and called == name)

    def undo(self) -> None:
        """Put back everything, the last first."""
        while self._replaced:
            self._assign(*self._replaced.pop())

    @staticmethod
    def _assign(owner: Any, name: str, value: Any) -> None:
        frozen = is_dataclass(owner) and not isinstance(owner, type)
        (object.__setattr__ if frozen else setattr)(owner, name, value)


# --- readers ----------------------------------------------------------------------------------------------------------


def _name(path: str) -> str:
    return "output" if path.endswith(".part") else os.path.basename(path)


def _spoiled_read(fault: Fault, fd: int, data: Bytes, before: Bytes, again: Callable[[int], Any], most: int) -> None:
    """Change what was read; `again` reads the same bytes from another place."""
    if fault.kind == "wrong chunk":
        right = data.copy()
        again(int(fault.random.integers(max(1, most + 1))))
        fault.changed = not np.array_equal(right, data)
    else:
        fault.spoil(data, INJECTOR.itemsize, before)


def reading(real: Any) -> Any:
    """`planned_file.fill`."""

    def fill(fd: int, block: memoryview, piece: Any, start: int) -> None:
        name, at = _name(piece.path), piece.offset + start
        fault = INJECTOR.reached(READER, READ, (name, at, len(block)), (COMPUTE, CHECK))
        data = np.frombuffer(block, np.uint8)
        before = data.copy() if fault else data
        real(fd, block, piece, start)
        _deliver(name, data, [(at, 0, len(block))])
        if fault:
            most = os.fstat(fd).st_size - len(block)
            _spoiled_read(fault, fd, data, before, lambda other: os.preadv(fd, [block], other), most)

    return fill


def reading_runs(real: Any) -> Any:
    """`read_runs.read_runs`."""

    def read_runs(fd: int, memory: Bytes, runs: NDArray[np.int64], offset: int = 0) -> NDArray[np.int64]:
        if not INJECTOR.active or not len(runs):
            return real(fd, memory, runs, offset)  # type: ignore[no-any-return]
        name, end = _name(os.readlink(f"/proc/self/fd/{fd}")), int((runs[:, 0] + runs[:, 2]).max())
        fault = INJECTOR.reached(READER, READ, (name, offset, len(runs), end), (COMPUTE, CHECK))
        data = memory[int(runs[:, 1].min()) : int((runs[:, 1] + runs[:, 2]).max())]
        before = data.copy() if fault else data
        unread: NDArray[np.int64] = real(fd, memory, runs, offset)
        _deliver(name, memory, [(offset + start, at, nbytes) for start, at, nbytes in runs.tolist()])
        if fault:
            most = os.fstat(fd).st_size - end
            _spoiled_read(fault, fd, data, before, lambda other: real(fd, memory, runs, other), most)
        return unread

    return read_runs


def _deliver(name: str, memory: Bytes, runs: Sequence[tuple[int, int, int]]) -> None:
    """Change the byte that every read has wrong, if it is one of these."""
    if INJECTOR.delivered is None or INJECTOR.delivered[0] != name:
        return
    _, byte, bits = INJECTOR.delivered
    for start, at, nbytes in runs:
        if start <= byte < start + nbytes:
            memory[at + byte - start] ^= bits


# --- kernels ----------------------------------------------------------------------------------------------------------


def result_of(place: str, kinds: Sequence[str], pick: Callable[..., Any] = lambda result, *_: result) -> Any:
    """What makes of a function one whose result may be wrong; `pick` names the array that it has filled, if any."""

    def make(real: Any) -> Any:
        def filled(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            if INJECTOR.active and (array := pick(result, *arguments)) is not None:
                INJECTOR.note(place, kinds, array)
            return result

        return filled

    return make


def kernels_on_cpu(patches: Patches) -> None:
    """Where kernels have written: counters, words of exact sums, sums, elements, tiles."""
    patches.wrap(kernels.histogram.cpu, "count_compiled", result_of(KERNEL, COUNTS))
    patches.wrap(kernels.histogram.cpu, "histogram_numpy", result_of(KERNEL, COUNTS))
    filled = result_of(KERNEL, COUNTS, lambda done, partial, *_: partial if done else None)
    patches.wrap(kernels.reduce.cpu, "_fill_compiled", filled)
    patches.wrap(kernels.map.promotion, "elementwise_cpu", result_of(KERNEL, BASIC))
    sums = result_of(KERNEL, BASIC, lambda result, *_: None if result is None else result[0])
    patches.wrap(kernels.stencil.cpu, "compiled_sums", sums)
    patches.wrap(kernels.stencil.cpu, "_in_steps", result_of(KERNEL, BASIC))
    patches.wrap(kernels.stencil.cpu, "window_sums", result_of(KERNEL, BASIC))
    written = result_of(KERNEL, BASIC, lambda done, array, out: out if done else None)
    patches.wrap(kernels.transpose.cpu, "_compiled", written)
    limbs = result_of(KERNEL, BASIC, lambda _, product, *parts: product.sums[int(parts[0].size) % len(product.sums)])
    patches.wrap(CpuProduct, "_add", limbs)
    patches.wrap(NarrowCpuProduct, "add", result_of(KERNEL, BASIC, lambda _, product, *parts: product.sums))
    for kind in (CpuProduct, NarrowCpuProduct):
        patches.wrap(kind, "finish", result_of(KERNEL, BASIC))
    patches.wrap(kernels.histogram.finite_range, "finite_range", result_of(SURVEY, BASIC))


# --- partials and merges ----------------------------------------------------------------------------------------------


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
            INJECTOR.held[PARTIAL] = content(results[0].partials[0])
        if fault:  # a partial that is checked as a whole travels once
            fault.spoil_array(results[0].partials[0], before)
    return results


def _one_bit(results: Any, random: np.random.Generator) -> Any:
    data = bytearray(dumps(results))
    data[random.integers(len(data))] ^= 1 << random.integers(8)
    return loads(bytes(data))


def _merged(name: str, a: Any, b: Any) -> Any:
    combine = _combine[name]
    fault = INJECTOR.reached(MERGED, MERGE, name, (COMPUTE, CHECK, CLIENT))
    if fault is None:
        return combine(a, b)
    if fault.kind == "lost operand":
        return a if fault.random.integers(2) else b
    if fault.kind == "operand twice":
        return combine(combine(a, b), b)
    if fault.kind == "wrong operand":
        return combine(a, a)
    before, total = content(a), combine(a, b)
    fault.spoil_array(total, before)
    return total


def merge_histogram(a: Any, b: Any) -> Any:
    """`HISTOGRAM.combine`; by this name it is pickled."""
    return _merged(HISTOGRAM.name, a, b)


def merge_range(a: Any, b: Any) -> Any:
    """`FINITE_RANGE.combine`."""
    return _merged(FINITE_RANGE.name, a, b)


def merge_reduce(a: Any, b: Any) -> Any:
    """`REDUCE.combine`."""
    return _merged(REDUCE.name, a, b)


def check_matmul(read: Any, elements: Any, region: Any, *others: Any) -> Any:
    """`MATMUL.check`; notes what its verdict admits."""
    checked = _check(read, elements, region, *others)
    INJECTOR.admitted[region] = checked.undetected
    return checked


# --- writers and files ------------------------------------------------------------------------------------------------


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


def spoil_file(fault: Fault, path: str, offset: int, spec: Any, region: Any) -> None:
    """Change bytes of a region in a file."""
    array = np.memmap(path, spec.dtype, "r+", offset, spec.shape)
    fault.spoil_array(array[tuple(slice(*ends) for ends in region)])
    array.flush()


WRITERS = (COMPUTE, CHECK)  # on a GPU, threads of their own write


def putting(real: Any) -> Any:
    """`mapped_output.put`: a slab on its way to the mapping of the file."""

    def put(target: NDArray[Any], source: NDArray[Any]) -> None:
        if INJECTOR.active:
            source = source.copy()
            INJECTOR.note(WRITER, (*BASIC, "truncated"), source, WRITERS)
        real(target, source)

    return put


def placing(real: Any) -> Any:
    """`mapped_output.region_at`: where in the mapping a region is."""

    def region_at(address: int, spec: Any, region: Any) -> Any:
        if fault := INJECTOR.reached(WRITER, ("wrong place",), None, WRITERS):
            target = real(address, spec, region)
            begin, end = np.lib.array_utils.byte_bounds(target)
            low, high = address - begin, address + spec.nbytes - end
            near = [step for step in (-spec.dtype.itemsize, spec.dtype.itemsize) if low <= step <= high]
            step = int(fault.random.choice(near)) if near and fault.random.integers(2) else None
            address += int(fault.random.integers(low, high + 1)) if step is None else step
        return real(address, spec, region)

    return region_at


def put_file(self: OutputFile, fd: int, region: Any, block: NDArray[Any]) -> None:
    """`OutputFile._put`: a slab on its way to the file."""
    if INJECTOR.active:
        block = np.array(block)
        INJECTOR.note(WRITER, (*BASIC, "truncated"), block, WRITERS)
    _put_file(self, fd, region, block)


def write(self: OutputFile, region: Any, block: Any, *others: Any) -> None:
    """`OutputFile.write`: some bytes may be written once more, to another place."""
    _write(self, region, block, *others)
    if block.nbytes and (fault := INJECTOR.reached(WRITER, ("stray copy",))):
        data = content(block)
        length = min(len(data), int(fault.random.integers(1, 4097)))
        with open(self.path, "r+b", buffering=0) as file:
            at = self.offset + int(fault.random.integers(self.spec.nbytes - length + 1))
            os.pwrite(file.fileno(), data[:length].tobytes(), at)


def finishing(real: Any) -> Any:
    """`whole_file`: the file may change after everything in it was checked."""

    @contextmanager
    def whole_file(path: Any, nbytes: int = 0) -> Iterator[BinaryIO]:
        with real(path, nbytes) as file:
            yield file
            if fault := INJECTOR.reached(AFTER, ("single bit",), None, (CLIENT,)):
                file.flush()
                data = np.memmap(file.name, np.uint8, "r+")
                fault.spoil(data[len(data) // 2 :], 1)
                data.flush()

    return whole_file


def install() -> Patches:
    """Have all jobs of this process come through these places."""
    patches = Patches()
    for owner in (pipeline.storage.blocks, pipeline.storage.array_file):
        patches.wrap(owner, "fill", reading)
    patches.wrap(pipeline.storage.array_file, "read_runs", reading_runs)
    kernels_on_cpu(patches)
    patches.set(pipeline.engine.aggregate, "compute_chunks", compute_chunks)
    patches.set(pipeline.engine.array, "compute_regions", compute_regions)
    for workflow, merge in ((HISTOGRAM, merge_histogram), (FINITE_RANGE, merge_range), (REDUCE, merge_reduce)):
        patches.set(workflow, "combine", merge)
    patches.set(MATMUL, "check", check_matmul)
    for name, make in (("put", putting), ("region_at", placing), ("whole_file", finishing)):
        patches.wrap(pipeline.storage.output_array, name, make)
    patches.set(OutputFile, "_put", put_file)
    patches.set(OutputFile, "write", write)
    return patches
