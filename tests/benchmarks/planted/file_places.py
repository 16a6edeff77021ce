"""Places for errors between memory and files: what is read, what is written, and what is in the file."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

import pipeline.storage.array_file
import pipeline.storage.blocks
import pipeline.storage.feed
import pipeline.storage.output_array
import pipeline.storage.output_file
import pipeline.storage.view_reader
from pipeline.storage.output_array import OutputFile
from tests.benchmarks.planted.faults import BASIC, READ, Bytes, Fault, content
from tests.benchmarks.planted.injector import CHECK, CLIENT, COMPUTE, INJECTOR
from tests.benchmarks.planted.patches import AFTER, BESIDE_READER, READER, STRAY, WRITER, Patches, delivered
from tests.benchmarks.planted.scenario import BESIDE

_put_file, _write = OutputFile._put, OutputFile.write


# --- readers ----------------------------------------------------------------------------------------------------------


def _name(path: str) -> str:
    return "output" if path.endswith(".part") else os.path.basename(path)


def _place(name: str) -> str:
    return BESIDE_READER if name.startswith(BESIDE) else READER


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
        fault = INJECTOR.reached(_place(name), READ, (name, at, len(block)), (COMPUTE, CHECK))
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


class _SpoiledBlocks:
    """`feed.cpp`: its first check is no check, but changes the block."""

    ADD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)

    def __init__(self, library: Any) -> None:
        self._library = library

    def feed(self, fd: int, offset: int, nbytes: int, index: int, itemsize: int, *more: Any) -> int:
        *settings, calls, number = more
        name, done = _name(os.readlink(f"/proc/self/fd/{fd}")), 0

        def add(state: Any, samples: int, count: int, index: int) -> None:
            nonlocal done
            data = np.ctypeslib.as_array((ctypes.c_uint8 * (count * itemsize)).from_address(samples))
            at = offset + done
            done += len(data)
            fault = INJECTOR.reached(READER, READ, (name, at, len(data)), (COMPUTE, CHECK))
            before = data.copy() if fault else data
            _deliver(name, data, [(at, 0, len(data))])
            if fault:
                most = os.fstat(fd).st_size - len(data)
                _spoiled_read(fault, fd, data, before, lambda other: os.preadv(fd, [data], other), most)

        spoil = self.ADD(add)
        first = type(calls[0])(ctypes.cast(spoil, ctypes.c_void_p), None)
        return int(self._library.feed(fd, offset, nbytes, index, itemsize, *settings, (type(calls[0]) * (number + 1))(
            first, *calls), number + 1))  # fmt: skip


def feeding(real: Any) -> Any:
    """`feed._library`."""

    def library() -> Any:
        return (functions := real()) and (_SpoiledBlocks(functions) if INJECTOR.active else functions)

    return library


def _deliver(name: str, memory: Bytes, runs: Sequence[tuple[int, int, int]]) -> None:
    """Change the byte that every read has wrong, if it is one of these."""
    for at in delivered(name, runs):
        memory[at] ^= INJECTOR.delivered[2]  # type: ignore[index]


# --- writers and files ------------------------------------------------------------------------------------------------


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
    if block.nbytes and (fault := INJECTOR.reached(STRAY, ("stray copy",))):
        data = content(block)
        length = min(len(data), int(fault.random.integers(1, 4097)))
        with open(self.path, "r+b", buffering=0) as file:
            at = self.offset + int(fault.random.integers(self.spec.nbytes - length + 1))
            os.pwrite(file.fileno(), data[:length].tobytes(), at)


def finishing(real: Any) -> Any:
    """`whole_file`: the file may change after everything in it was checked."""

    @contextmanager
    def whole_file(path: Any, nbytes: int, **how: Any) -> Iterator[BinaryIO]:
        with real(path, nbytes, **how) as file:
            yield file
            if fault := INJECTOR.reached(AFTER, ("single bit",), None, (CLIENT,)):
                file.flush()
                data = np.memmap(file.name, np.uint8, "r+")
                fault.spoil(data[len(data) // 2 :], 1)
                data.flush()

    return whole_file


def files(patches: Patches) -> None:
    """Have all jobs come through these places."""
    for owner in (pipeline.storage.blocks, pipeline.storage.array_file, pipeline.storage.view_reader):
        patches.wrap(owner, "fill", reading)
    patches.wrap(pipeline.storage.feed, "_library", feeding)
    patches.wrap(pipeline.storage.array_file, "read_runs", reading_runs)
    for name, make in (("put", putting), ("region_at", placing)):
        patches.wrap(pipeline.storage.output_array, name, make)
    patches.wrap(pipeline.storage.output_file, "whole_file", finishing)
    patches.set(OutputFile, "_put", put_file)
    patches.set(OutputFile, "write", write)
