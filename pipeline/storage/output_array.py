"""The array that a job writes region by region, to a file that is renamed when it is complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError
from pipeline.storage.array_file import ArrayFile, read_region, runs_of
from pipeline.storage.identity import Identity
from pipeline.storage.mapped_output import Inside, mapped_file, put, region_at, slabs
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import Opened, open_planned
from pipeline.storage.scratch import aligned_empty
from workflows.regions import Bounds, Spec, sizes


@dataclass(frozen=True)
class OutputFile:
    """An array that is being written under a temporary name.

    Attributes
    ----------
    path
        The temporary name.
    offset
        Offset of the first element, in bytes.
    spec
        Its shape and dtype.
    mappable
        Whether the file system has allocated all of it, so that writing through a mapping cannot run out of space.
    identity
        None before it exists.
    """

    path: str
    offset: int
    spec: Spec
    mappable: bool
    identity: Identity | None = None

    def read(
        self, region: Bounds, allocate: Callable[..., NDArray[Any]] = aligned_empty, opened: Opened = open_planned
    ) -> NDArray[Any]:
        """The current elements of a region in C order, in memory from `allocate`."""
        return read_region(self.readable(), region, allocate, opened)

    def run(self, region: Bounds) -> int:
        """Length of a region's contiguous byte runs."""
        return self.readable().run(region)

    def readable(self) -> ArrayFile:
        """The output as an input, to check it."""
        return ArrayFile(self.spec, (Piece(self.path, self.offset, self.spec.nbytes, self.identity),))

    def write(
        self,
        region: Bounds,
        block: Any,
        to_host: Callable[[Any], NDArray[Any]] = np.asarray,
        spread: Callable[..., Iterable[None]] = map,
    ) -> None:
        """Write a region; threads and processes may write different regions concurrently.

        Parameters
        ----------
        region
        block : array of the shape of the region
            On a device, with an additional axis for bytes if CuPy lacks the dtype.
        to_host
            (part of the block) -> its elements as a NumPy array, valid until the same thread's next call.
        spread
            Like `map`: calls a function for every part, possibly in threads.

        Raises
        ------
        PipelineError
            If the disk refuses.
        """
        expected = self.check(region, block)
        if not block.nbytes:
            return

        def part(inside: Inside) -> NDArray[Any]:
            values = to_host(block[inside])
            if values.dtype != self.spec.dtype or values.ndim != len(region):
                raise other(expected, values)
            return values

        parts = slabs(expected, self.run(region))
        with self._opened() as fd:
            if self.mappable:
                with mapped_file(self.path, fd, self.offset + self.spec.nbytes, 0) as address:
                    target = region_at(address + self.offset, self.spec, region)
                    each(lambda inside: put(target[inside], part(inside)), parts, spread)
            else:
                each(lambda inside: self._put(fd, within(region, inside), part(inside)), parts, spread)

    @contextlib.contextmanager
    def view(self, region: Bounds) -> Iterator[NDArray[Any] | None]:
        """A region in the file itself, to be written and read in place; None if it is empty or cannot be mapped.

        Raises
        ------
        PipelineError
            If the disk refuses.
        """
        expected = Spec(sizes(region), self.spec.dtype)
        if not self.mappable or not expected.nbytes:
            yield None
            return
        nbytes = self.offset + self.spec.nbytes
        with self._opened() as fd, mapped_file(self.path, fd, nbytes, expected.nbytes) as address:
            yield region_at(address + self.offset, self.spec, region)

    def check(self, region: Bounds, block: Any) -> Spec:
        """Shape and dtype of a region; PipelineError if the block has another shape or size."""
        expected = Spec(sizes(region), self.spec.dtype)
        if block.shape[: len(region)] != expected.shape or block.nbytes != expected.nbytes:
            raise other(expected, block)
        return expected

    def write_runs(self, region: Bounds, copy: Callable[[int, NDArray[np.int64]], object]) -> None:
        """Write a non-empty region of a mappable output through addresses.

        Parameters
        ----------
        region
        copy
            Gets the length of a run in bytes and the addresses of the runs, in C order, for itself alone.

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
        folder = os.path.dirname(self.path)
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if self.identity is not None and self.identity.is_other(os.fstat(fd)):
                    raise PipelineError(f"the output: expected to write to the file that was made in {folder}, got "
                                        "another one; nothing was kept")  # fmt: skip
                yield fd
            finally:
                os.close(fd)
        except OSError as error:
            raise PipelineError(f"the output: expected to write to {folder}, got {error.strerror!r}; nothing was "
                                "kept") from None  # fmt: skip

    def _put(self, fd: int, region: Bounds, block: NDArray[Any]) -> None:
        data = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
        length, starts = runs_of(self.spec.shape, self.spec.dtype.itemsize, region)
        for number, start in enumerate(starts.tolist()):
            run, done = data[number * length : (number + 1) * length], 0
            while done < length:
                done += os.pwrite(fd, run[done:], self.offset + start + done)


def within(region: Bounds, inside: Inside) -> Bounds:
    """Bounds in the array of a part of a region."""
    return tuple((start + part.start, start + part.stop) for (start, _), part in zip(region, inside, strict=False))


def each(write: Callable[[Inside], None], parts: Iterable[Inside], spread: Callable[..., Iterable[None]]) -> None:
    """Write all parts; if one fails, finish those in progress and skip the rest before raising the error."""
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


def other(expected: Spec, block: Any) -> PipelineError:
    return PipelineError(f"expected a block of {expected}, got {Spec(block.shape, block.dtype)}")
