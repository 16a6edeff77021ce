"""A temporary folder that is gone when its work is done, also after a signal, or if this process is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kernels.common.private import temporary_folder
from pipeline.process import supervisor
from pipeline.process.signals import held


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private folder; OSError if it cannot be made."""
    stack = ExitStack()
    with held():
        folder = stack.enter_context(temporary_folder())
        supervisor.remove_at_end(str(folder))
    try:
        yield folder
    finally:
        with held():
            stack.close()
