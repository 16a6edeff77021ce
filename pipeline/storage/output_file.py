"""Makes the file of an output, and gives it its name once the job has written and checked all of it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from pipeline.errors import PipelineError
from pipeline.storage.atomic_file import reserved, told
from pipeline.storage.identity import identify_output
from pipeline.storage.leftovers import Resumable, remove_leftovers
from pipeline.storage.output_array import OutputFile
from pipeline.storage.output_format import layout_of, split_output
from pipeline.storage.tiled_file import TiledFile
from workflows.regions import Spec


@contextlib.contextmanager
def output_file(
    output: str, spec: Spec, later: Resumable | None = None, chunks: tuple[int, ...] | None = None
) -> Iterator[Callable[[], OutputFile]]:
    """Allocate a temporary file for an array next to an output, in the format that its suffix says.

    A Zarr store has chunks of that shape. With `later`, the file may be left for a later run, or be the one that an
    earlier run has left; where this run starts over, that one stays until somebody waits for the allocation.

    Yields
    ------
    A function that waits for the allocation and returns the file to write to, whose elements are written as if their
    byte order were native. On success it is flushed to disk and renamed, otherwise removed; one that is complete and
    cannot be renamed is kept under another name.

    Raises
    ------
    PipelineError
        If it cannot be written, or there is no space for it: the bytes needed and free.
    """
    (path, _), layout = split_output(output), layout_of(output, spec, chunks)
    nbytes, after = layout.whole, len(layout.header) + layout.nbytes
    remove_leftovers()
    with (
        reserved(path) as target,
        target.whole(nbytes, keep=True, later=later, publish=layout.publish) as file,
        ThreadPoolExecutor(1, "allocate") as thread,
    ):
        with told(path):
            file.write(layout.header)
            if layout.footer:
                file.seek(after)
                file.write(layout.footer)
            file.flush()
        lock, started = Lock(), list[Future[None]]()

        def allocation() -> Future[None]:
            with lock:
                if not started:
                    if later:
                        target.take_over(file, later)
                    started.append(thread.submit(os.posix_fallocate, file.fileno(), 0, nbytes))
            return started[0]

        # A file system in memory allocates 12 GB/s: do it while workers start. Threads that touch unallocated pages get
        # half of that together, and allocating beside threads that write takes several times as long.
        if not (later and target.aside(file, later)):
            allocation()

        def ready() -> OutputFile:
            native = Spec(spec.shape, spec.dtype.newbyteorder("="))
            mappable = _allocated(allocation(), file.fileno(), nbytes, path)
            identity, start = identify_output(file.fileno()), len(layout.header)
            if layout.tiles is None:
                return OutputFile(file.name, start, native, mappable, identity)
            return TiledFile(file.name, start, native, False, identity, layout.tiles, mappable)

        yield ready
        with contextlib.suppress(OSError):  # then it is not known
            for part, at in ((layout.header, 0), (layout.footer, after)):  # all that no check of the job has read
                if os.pread(file.fileno(), len(part), at) != part:
                    raise PipelineError(f"{path}: expected the header that was written, got another one; does another "
                                        "program write there?")  # fmt: skip


def _allocated(allocation: Future[None], fd: int, nbytes: int, path: str) -> bool:
    """Wait until space is allocated, which reserves it for hours of writing. False if the file system cannot."""
    try:
        allocation.result()
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot allocate
            os.ftruncate(fd, nbytes)
            return False
        folder = os.path.dirname(os.path.abspath(path))
        raise PipelineError(f"{path}: expected space for {nbytes} bytes in {folder}, got {error.strerror!r} with "
                            f"{shutil.disk_usage(folder).free} free; ask for less or free space") from None  # fmt: skip
    return True
