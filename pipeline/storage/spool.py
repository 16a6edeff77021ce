"""Standard input in a temporary file, for jobs that read it twice or out of order; removed however the run ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from kernels.common.private import temporary_folder
from pipeline.errors import PipelineError, UsageError
from pipeline.process import supervisor
from pipeline.process.signals import held
from pipeline.storage.complex_parts import PartSource
from pipeline.storage.files import Files
from pipeline.storage.paths import MEMBER, STDIN, is_stdin
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.scratch import aligned_empty
from pipeline.storage.sliced import ViewSource
from pipeline.storage.sources import Joined, Source
from pipeline.storage.stream import NAME, Stream

FILE = "standard-input"
BLOCK_BYTES = 2**22


def called(source: Source, path: str) -> Source:
    """The source, in which a path is called standard input."""
    if isinstance(source, Joined):
        return Joined(tuple(called(one, path) for one in source.sources))
    if isinstance(source, Files):
        files = (replace(file, label=(file.label or str(file.path)).replace(path, NAME)) for file in source.files)
        return replace(source, files=tuple(files))
    if isinstance(source, PieceSource | ViewSource):
        return replace(source, name=source.name.replace(path, NAME))
    if isinstance(source, PartSource):
        return replace(source, whole=called(source.whole, path))
    return source


@contextmanager
def spooled(files: Sequence[str], seconds: float) -> Iterator[tuple[Sequence[str], str]]:
    """Write standard input to a file in a scratch folder.

    Parameters
    ----------
    files
        Of which one may be ``-``, or an array of it, like ``-::x``.
    seconds
        How long it may bring nothing.

    Yields
    ------
    The files, that one in its place; its path, empty if there is none.

    Raises
    ------
    UsageError
        If it is empty or named twice; PipelineError if it cannot be read, or there is no space for it.
    """
    named = [is_stdin(item) for item in files]
    if not any(named):
        yield files, ""
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
                block = aligned_empty(BLOCK_BYTES)
                while filled := stream.fill(block):
                    done = 0
                    while done < filled:
                        done += file.write(block[done:filled].data)
        except OSError as error:
            raise PipelineError(f"{NAME}: expected to write it to a temporary file, got {error.strerror!r} after "
                                f"{stream.done} bytes; name another folder with TMPDIR") from None  # fmt: skip
        if not stream.done:
            raise UsageError(f"{NAME}: expected samples, got 0 bytes; did its writer fail?")
        given = [f"{path}{item.removeprefix(STDIN)}" if its else item for item, its in zip(files, named, strict=True)]
        try:
            yield given, str(path)
        except PipelineError as error:
            error.args = tuple(
                # An advice has the file's name alone; words that begin with - come after --.
                str(text).replace(str(path), NAME).replace(f"{FILE}{MEMBER}", f"-- {STDIN}{MEMBER}")
                for text in error.args
            )
            raise
