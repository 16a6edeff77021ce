"""The array that a job writes: region by region, in a file that is not there under its name before it is whole."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import ArrayFile, read_region, runs_of
from pipeline.chunks import Piece
from pipeline.errors import PipelineError
from pipeline.files import whole_file
from pipeline.mapped import Inside, write_mapped
from pipeline.promise import promised_room
from workflows.array_workflow import Bounds, Spec, sizes


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

    def read(self, region: Bounds) -> NDArray[Any]:
        """What lies in a region now, in C order."""
        return read_region(self.readable(), region)

    def readable(self) -> ArrayFile:
        """It as an input, to check what lies there."""
        return ArrayFile(self.spec, (Piece(self.path, self.offset, self.spec.nbytes, None, None),))

    def write(self, region: Bounds, block: Any, to_host: Callable[[Any], NDArray[Any]] = np.asarray) -> None:
        """Write a region; several may write at a time, each its own.

        Parameters
        ----------
        region
        block : array of the shape of the region
            Where it is on a device and CuPy does not have its dtype, with one more axis for bytes.
        to_host
            (part of the block) -> its elements as a NumPy array, valid until it is called again.

        Raises
        ------
        PipelineError
            If the disk refuses.
        """
        lengths = sizes(region)
        if block.shape[: len(region)] != lengths:
            raise _other(Spec(lengths, self.spec.dtype), block)
        if not block.nbytes:
            return

        def part(inside: Inside) -> NDArray[Any]:
            found = to_host(block[inside])
            if found.dtype != self.spec.dtype or found.ndim != len(region):
                raise _other(Spec(lengths, self.spec.dtype), found)
            return found

        try:
            with open(self.path, "r+b", buffering=0) as file:
                if self.mappable:
                    run = self.readable().run(region)
                    write_mapped(file.fileno(), self.offset, self.spec, region, run, part)
                else:
                    self._put(file.fileno(), region, part((...,)))
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


def _other(expected: Spec, block: Any) -> PipelineError:
    return PipelineError(f"expected a block of {expected}, got {Spec(block.shape, block.dtype)}")


@contextlib.contextmanager
def output_file(path: str, spec: Spec) -> Iterator[OutputFile]:
    """Make room for an array beside `path`: `.npy`, or raw little endian under any other suffix.

    On success it is flushed to the disk and takes its name, else it is removed.

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
    with whole_file(path, nbytes) as file:
        file.write(header)
        file.flush()
        with promised_room(file, nbytes, path) as promised:
            yield OutputFile(file.name, len(header), spec, promised)
