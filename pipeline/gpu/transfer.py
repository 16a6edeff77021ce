"""Transfers of byte runs from files to a device: through pinned memory, or by GPUDirect Storage through kvikio."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError
from pipeline.gpu.devices import find_devices
from pipeline.gpu.pinned import Beside, Checks, Reader, RefusedError, reader
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import open_planned
from pipeline.threads import cores


class Reading(Protocol):
    """Starts reads of a file that is open."""

    def __call__(self, target: Any, runs: NDArray[np.int64], checked: NDArray[np.int64] | None = None) -> Any:
        """Start to read runs, given as an array of offsets and lengths, one after another into bytes on the device.

        `checked` as in `pipeline.gpu.pinned.Beside`, if the file was opened with checks. `get` of the result waits for
        the read and returns the number of bytes.
        """


# As long as the parts in flight of all threads for all GPUs of a machine fit into the last-level cache, host memory is
# read once per byte; parts that are too short wait for their copies. Figures are in docs/design.md.
THREADS = 16  # 8 read as fast; those that check what they have read need several times as long for a byte
PART_BYTES = (2**20, 2**22)
CACHED_BYTES = 2**27
WRITE_BYTES = 2**21  # bytes that a thread copies from a device and writes at a time
# Without a compiler, threads of kvikio, which wait for each copy before they continue reading.
KVIKIO_THREADS = 16

# Environment variable for a process that sees one GPU: how many GPUs this machine feeds.
FED = "BARU_GPUS_FED"

PINNED, KVIKIO, DIRECT = "through pinned memory", "through pinned memory of kvikio", "by GPUDirect Storage"


def warm_up() -> None:
    """Start the threads that read for the current device."""
    if transfer_path() != PINNED:
        _warm_up_kvikio()


@cache
def _warm_up_kvikio() -> None:
    import kvikio.defaults

    nbytes = min(PART_BYTES[1], 2 * part_bytes(_fed()))  # one buffer per thread, not two
    kvikio.defaults.set({"num_threads": min(KVIKIO_THREADS, cores()), "task_size": nbytes})


def threads() -> int:
    """How many threads read for a device."""
    return min(THREADS, max(2, cores()))


def _reader() -> Reader | None:
    return reader(threads(), part_bytes(_fed()))


@cache
def _fed() -> int:
    """Number of GPUs that this machine feeds."""
    return int(os.environ.get(FED) or find_devices().usable)


def part_bytes(gpus: int) -> int:
    """Bytes that a thread reads at a time if the machine feeds `gpus` GPUs."""
    low, high = PART_BYTES
    most = CACHED_BYTES // (2 * THREADS * max(gpus, 1))
    return max(low, min(1 << most.bit_length() - 1, high))


def transfer_path() -> str:
    """How bytes get to the device, for the report."""
    return DIRECT if _direct() else PINNED if _reader() else KVIKIO


@cache
def _direct() -> bool:
    import kvikio.cufile_driver
    import kvikio.defaults

    return not kvikio.defaults.is_compat_mode_preferred() and bool(kvikio.cufile_driver.get("is_gds_available"))


_orders = count()
FIRST = -1  # an order before all others


def next_order() -> int:
    """A rank for what is read from now on: it goes before everything with a later rank."""
    return next(_orders)


@contextmanager
def opened(piece: Piece, beside: tuple[Checks, Piece] | None = None, order: int | None = None) -> Iterator[Reading]:
    """A function that starts reads of a file, which is checked to be the planned one before and after.

    Checks beside it, which are possible through pinned memory only, have a piece of their own: the same one, unless
    there is an error. Reads of a lower order go first; by default, those of files that were opened first.
    """
    with ExitStack() as stack:
        fd = stack.enter_context(open_planned(piece))
        own = None if _direct() else _reader()
        if own is None:
            import kvikio

            # kvikio opens by name: this one is the file that was checked, whatever has taken its path.
            file = stack.enter_context(kvikio.CuFile(f"/proc/self/fd/{fd}", "r"))
            yield lambda target, runs, checked=None: _Reads(file, target, runs)
            return
        order = next_order() if order is None else order
        again = -1 if beside is None else stack.enter_context(open_planned(beside[1]))

        def read(target: Any, runs: NDArray[np.int64], checked: NDArray[np.int64] | None = None) -> Any:
            checks = None if beside is None or checked is None else Beside(beside[0], again, checked)
            return own.read(fd, target, runs, order, checks)

        yield read


class _Reads:
    """A kvikio read for each run; all of them finish, even if one fails, before the memory is released."""

    def __init__(self, file: Any, target: Any, runs: NDArray[np.int64]) -> None:
        self._reads: list[Any] = []
        before = 0
        try:
            for offset, nbytes in runs.tolist():
                self._reads.append(file.pread(target[before : before + nbytes], nbytes, offset))
                before += nbytes
        except RuntimeError:
            with suppress(RuntimeError):
                self.get()
            raise

    def get(self) -> int:
        """Wait for all bytes and return their number; raises the first error, if any."""
        got, failed = 0, []
        for read in self._reads:
            try:
                got += int(read.get())
            except RuntimeError as error:
                failed.append(error)
        if failed:
            raise failed[0]
        return got


@dataclass(frozen=True)
class Transfer:
    """Byte runs in flight from a piece of a file to device memory."""

    future: Any
    piece: Piece
    start: int
    target: Any

    def result(self) -> Any:
        """The memory, once all bytes have arrived.

        Raises
        ------
        PipelineError
            If the read failed, or the file ended.
        """
        try:
            got = int(self.future.get())
        except (OSError, RuntimeError) as error:  # kvikio's are of the latter kind
            if hasattr(error, "status"):
                raise  # CUDA's own errors tell whether the device is lost
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            offset = self.piece.offset + self.start
            raise PipelineError(
                f"{self.piece.path}: reading at byte {offset} failed: {reason}; check the disk"
            ) from None
        if got != len(self.target):
            raise PipelineError(f"{self.piece.path}: shrank while it was read: expected {len(self.target)} bytes of "
                                f"it, got {got}; run again when nothing writes to it")  # fmt: skip
        return self.target


def transfer(
    reading: Reading, piece: Piece, first: int, runs: NDArray[np.int64], target: Any,
    checked: NDArray[np.int64] | None = None,
) -> Transfer:  # fmt: skip
    """Start to read runs of an opened piece, until the target is full.

    Parameters
    ----------
    reading, piece
    first, runs : int, int64 array of shape (n, 2)
        First byte of each run in the piece, after the byte `first` of it; number of bytes.
    target : uint8 array on the device
    checked
        What to check beside it, as `Reading` takes it.
    """
    future = reading(target, runs + np.array([piece.offset + first, 0]), checked)
    return Transfer(future, piece, first + int(runs[0, 0]), target)


@dataclass(frozen=True)
class Gathered:
    """Byte runs in flight from several files, which the threads that read open and check, to device memory."""

    future: Any
    files: Sequence[Piece]
    target: Any

    def result(self) -> Any:
        """The memory, once all bytes have arrived; PipelineError if a read failed or a file is not the planned one."""
        try:
            self.future.get()
        except RefusedError as error:
            file = self.files[error.file]
            with open_planned(file):
                pass  # says what is wrong with it, if that can be told
            reason = "it changed meanwhile" if error.errno == errno.ESTALE else error.strerror
            raise PipelineError(
                f"{file.path}: reading at byte {error.offset} failed: {reason}; check the disk"
            ) from None
        return self.target


def gather(files: Sequence[Piece], runs: NDArray[np.int64], target: Any, order: int) -> Gathered:
    """Start to read runs of several files through pinned memory, until the target is full.

    Parameters
    ----------
    files
    runs : int64 array of shape (n, 3)
        Number of the file, first byte in it, number of bytes.
    target : uint8 array on the device
    order
        As `opened` has it.
    """
    reader = _reader()
    assert reader is not None  # the transfer path says so
    return Gathered(reader.read_planned(files, target, runs, order), files, target)


class Arriving(Protocol):
    """What is on its way to the device: a transfer, or several."""

    @property
    def future(self) -> Any:
        """`get` waits until nothing is under way."""

    def result(self) -> Any:
        """The memory, once all bytes have arrived; errors as of `Transfer`."""


def finish(transfers: Iterable[Arriving]) -> None:
    """Start transfers that are not, and wait for all, even if one fails: memory must not be released before."""
    under_way: deque[Arriving] = deque()
    try:
        under_way.extend(transfers)
        while under_way:
            under_way.popleft().result()
    finally:
        for other in under_way:
            with suppress(OSError, RuntimeError):  # the first error is raised
                other.future.get()
