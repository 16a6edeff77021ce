"""The scratch folder of a cluster on this machine."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kernels.common.private import temporary_folder
from pipeline.cluster.worker import FOLDER
from pipeline.errors import PipelineError
from pipeline.process import supervisor
from pipeline.process.signals import held


@contextmanager
def local_directory(own_process: bool) -> Iterator[str]:
    """Scratch folder that only this user can enter, removed at the end; yields a folder in it for `Watch`.

    In the command's process it is the place of all temporary files: Dask writes keys to some.

    Those of killed runs are removed first.
    """
    import dask

    with ExitStack() as stack:
        try:
            _check_temporary_place()
            with held():
                path = stack.enter_context(temporary_folder())
                supervisor.remove_at_end(str(path))
            progress = path / "progress"
            progress.mkdir(0o700)
        except OSError as error:
            where = f" in {error.filename}" if error.filename else ""
            raise PipelineError(f"expected to create a scratch folder, got {error.strerror or error}{where}; free some "
                                "space, or name another place with TMPDIR") from None  # fmt: skip
        before = tempfile.tempdir
        if own_process:
            tempfile.tempdir = str(path)
        try:
            with dask.config.set({FOLDER: str(progress)}):
                yield str(progress)
        finally:
            tempfile.tempdir = before


def _check_temporary_place() -> None:
    """Refuse the working folder, which Python takes if no other place has room: it is the user's."""
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        return
    others = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    if tempfile.gettempdir() == here not in map(os.path.abspath, [*filter(None, others), "/tmp", "/var/tmp"]):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp")
