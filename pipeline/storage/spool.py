"""Standard input in a file, for what cannot be read once and in order; removed at the end, however that comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from kernels.common.private import temporary_folder
from pipeline.errors import PipelineError, UsageError
from pipeline.process import supervisor
from pipeline.process.signals import held
from pipeline.storage.paths import MEMBER
from pipeline.storage.stream import NAME, STDIN, Stream

FILE = "standard-input"
BLOCK_BYTES = 2**22


@contextmanager
def spooled(files: Sequence[str], seconds: float) -> Iterator[Sequence[str]]:
    """Write standard input to a file in a scratch folder.

    Parameters
    ----------
    files
        Of which one may be ``-``, or an array of it, like ``-::x``.
    seconds
        How long it may bring nothing.

    Yields
    ------
    The files, that one in its place.

    Raises
    ------
    UsageError
        If it is empty or named twice; PipelineError if it cannot be read, or there is no space for it.
    """
    named = [item.partition(MEMBER)[0] == STDIN for item in files]
    if not any(named):
        yield files
        return
    if sum(named) > 1:
        raise UsageError(f"{STDIN}: expected {NAME} once, got it twice; name it once")
    stream = Stream(0, seconds)
    with ExitStack() as stack:
        try:
            with held():
                folder = stack.enter_context(temporary_folder())
                supervisor.remove_at_end(str(folder))
            path = folder / FILE
            with open(path, "xb", buffering=0) as file:
                block = np.empty(BLOCK_BYTES, np.uint8)
                while filled := stream.fill(block):
                    done = 0
                    while done < filled:
                        done += file.write(block[done:filled].data)
        except OSError as error:
            raise PipelineError(f"{NAME}: expected to write it to a temporary file, got {error.strerror!r} after "
                                f"{stream.done} bytes; name another folder with TMPDIR") from None  # fmt: skip
        if not stream.done:
            raise UsageError(f"{NAME}: expected samples, got 0 bytes; did its writer fail?")
        yield [f"{path}{item.removeprefix(STDIN)}" if its else item for item, its in zip(files, named, strict=True)]
