"""The array that a job writes: region by region, in a file that is not there under its name before it is whole."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError
from pipeline.storage.array_file import ArrayFile, read_region, runs_of
from pipeline.storage.atomic_file import whole_file
from pipeline.storage.chunks import Piece
from pipeline.storage.mapped import Inside, mapped, put, slabs
from pipeline.storage.mapped_output import mapped_file
from pipeline.storage.planned_file import Opened, open_planned
from workflows.regions import Bounds, Spec, sizes


@dataclass(frozen=True)
class OutputFile:
    """An array that is being written under a temporary name.

    Attributes
    ----------
    path
        The temporary one.
    offset
        Of the first element.
    spec
        Its shape and dtype.
    mappable
        The file system has promised room for all of it, so that writing through a mapping cannot fail for want of it.
    """

    path: str
    offset: int
    spec: Spec
    mappable: bool

    def read(
        self, region: Bounds, allocate: Callable[..., NDArray[Any]] = np.empty, opened: Opened = open_planned
    ) -> NDArray[Any]:
        """What lies in a region now, in C order, in memory from `allocate`."""
        return read_region(self.readable(), region, allocate, opened)

    def readable(self) -> ArrayFile:
        """It as an input, to check what lies there."""
        return ArrayFile(self.spec, (Piece(self.path, self.offset, self.spec.nbytes, None, None),))

    def write(
        self,
        region: Bounds,
        block: Any,
        to_host: Callable[[Any], NDArray[Any]] = np.asarray,
        spread: Callable[..., Iterable[None]] = map,
    ) -> None:
        """Write a region; several may write at a time, each its own.

        Parameters
        ----------
        region
        block : array of the shape of the region
            Where it is on a device and CuPy does not have its dtype, with one more axis for bytes.
        to_host
            (part of the block) -> its elements as a NumPy array, valid until it is called again by the same thread.
        spread
            Like `map`: calls a function for every part, in threads perhaps.

        Raises
        ------
        PipelineError
            If the disk refuses.
        """
        expected = self.check(region, block)
        if not block.nbytes:
            return

        def part(inside: Inside) -> NDArray[Any]:
            found = to_host(block[inside])
            if found.dtype != self.spec.dtype or found.ndim != len(region):
                raise _other(expected, found)
            return found

        parts = slabs(expected, self.readable().run(region))
        with self._opened() as fd:
            if self.mappable:
                with mapped(fd, self.offset, self.spec, region) as target:
                    _each(lambda inside: put(target[inside], part(inside)), parts, spread)
            else:
                _each(lambda inside: self._put(fd, _within(region, inside), part(inside)), parts, spread)

    def check(self, region: Bounds, block: Any) -> Spec:
        """What a region is; PipelineError where a block has another shape or size."""
        expected = Spec(sizes(region), self.spec.dtype)
        if block.shape[: len(region)] != expected.shape or block.nbytes != expected.nbytes:
            raise _other(expected, block)
        return expected

    def write_runs(self, region: Bounds, copy: Callable[[int, NDArray[np.int64]], object]) -> None:
        """Write a region, not empty, of an output that is mappable, by addresses; this process keeps it mapped.

        Parameters
        ----------
        region
        copy
            Gets the bytes of a run and the addresses that runs begin at, in C order; nobody else writes there.

        Raises
        ------
        PipelineError
            If the disk refuses.
        """
        length, starts = runs_of(self.spec.shape, self.spec.dtype.itemsize, region)
        nbytes, writes = self.offset + self.spec.nbytes, length * len(starts)
        with self._opened() as fd, mapped_file(self.path, fd, nbytes, writes) as address:
            copy(length, address + self.offset + starts)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            with open(self.path, "r+b", buffering=0) as file:
                yield file.fileno()
        except OSError as error:
            reason = error.strerror
            raise PipelineError(f"the output: expected to write to {os.path.dirname(self.path)}, got {reason!r}; "
                                "nothing was kept") from None  # fmt: skip

    def _put(self, fd: int, region: Bounds, block: NDArray[Any]) -> None:
        data = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
        length, starts = runs_of(self.spec.shape, self.spec.dtype.itemsize, region)
        for number, start in enumerate(starts.tolist()):
            run, done = data[number * length : (number + 1) * length], 0
            while done < length:
                done += os.pwrite(fd, run[done:], self.offset + start + done)


def _within(region: Bounds, inside: Inside) -> Bounds:
    """Where a part of a region is in the array."""
    return tuple((start + part.start, start + part.stop) for (start, _), part in zip(region, inside, strict=False))


def _each(write: Callable[[Inside], None], parts: Iterable[Inside], spread: Callable[..., Iterable[None]]) -> None:
    """Write all parts; where one fails, the others are done or left out before anything is raised."""
    failed: list[Exception] = []

    def write_unless(inside: Inside) -> None:
        try:
            if not failed:
                write(inside)
        except Exception as error:
            failed.append(error)

    for _ in spread(write_unless, parts):
        pass
    if failed:
        raise failed[0]


def _other(expected: Spec, block: Any) -> PipelineError:
    return PipelineError(f"expected a block of {expected}, got {Spec(block.shape, block.dtype)}")


@contextlib.contextmanager
def output_file(path: str, spec: Spec) -> Iterator[Callable[[], OutputFile]]:
    """Make room for an array beside `path`: `.npy`, or raw little endian under any other suffix.

    Yields
    ------
    Waits for the room, and answers with what can be written to. On success it is flushed to the disk and takes its
    name, else it is removed.

    Raises
    ------
    PipelineError
        If it cannot be written, or there is no room for it: the bytes needed and free.
    """
    header = b""
    if path.endswith(".npy"):
        text = io.BytesIO()
        dtype = np.lib.format.dtype_to_descr(spec.dtype.newbyteorder("<"))
        np.lib.format.write_array_header_1_0(text, {"descr": dtype, "fortran_order": False, "shape": spec.shape})
        header = text.getvalue()
    nbytes = len(header) + spec.nbytes
    with whole_file(path, nbytes) as file, ThreadPoolExecutor(1, "room") as thread:
        file.write(header)
        file.flush()
        # A file system in memory makes 12 GB/s of room; so it does while workers start. Threads that touch pages before
        # there is room get half of that, all of them together, and next to those that write it takes several times as
        # long.
        room = thread.submit(os.posix_fallocate, file.fileno(), 0, nbytes)

        def ready() -> OutputFile:
            return OutputFile(file.name, len(header), spec, _promised(room, file.fileno(), nbytes, path))

        yield ready


def _promised(room: Future[None], fd: int, nbytes: int, path: str) -> bool:
    """What is promised now is there when the last region is written, hours later. False if nothing is promised."""
    try:
        room.result()
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot promise
            os.ftruncate(fd, nbytes)
            return False
        folder = os.path.dirname(os.path.abspath(path))
        raise PipelineError(f"{path}: expected room for {nbytes} bytes in {folder}, got {error.strerror!r} with "
                            f"{shutil.disk_usage(folder).free} free; ask for less or free space") from None  # fmt: skip
    return True
