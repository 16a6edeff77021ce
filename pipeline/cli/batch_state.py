"""What a batch has finished: a file in the state folder, from which the same batch goes on."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

import dask.config

from kernels.common.private import write_private_file
from pipeline.cli.job_file import Planned
from pipeline.errors import PipelineError
from pipeline.packages import code_version
from pipeline.process.last_words import say
from pipeline.storage.output_format import split_output
from pipeline.storage.remote.address import is_url
from pipeline.storage.state import open_state

BATCHES = "batches"  # in the state folder
FORMAT = 1


class BatchState:
    """The finished jobs of a batch, each known by its words, configuration, inputs and code.

    Parameters
    ----------
    path
        Of the file of jobs.
    """

    def __init__(self, path: str) -> None:
        self._name = f"{hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]}.json"
        self._done: dict[str, Any] = {}
        self._told, self._written, self._next = False, True, 0.0

    def load(self) -> bool:
        """What an earlier run has finished; False if there is nothing."""
        with suppress(OSError, ValueError, KeyError, TypeError), open_state(BATCHES) as folder:
            file = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
            with os.fdopen(file, "rb") as stream:
                document = json.load(stream)
            self._done = dict(document["done"]) if document["format"] == FORMAT else {}
        return bool(self._done)

    def line(self, job: Planned, key: str | None) -> dict[str, Any] | None:
        """The line of a job that is finished, with the same inputs, and whose outputs are as it left them."""
        done = self._done.get(key or "")
        if not isinstance(done, Mapping) or done.get("outputs") != [_seen(path) for path in job.outputs]:
            return None
        return dict(done["line"])

    def finish(self, job: Planned, key: str | None, line: Mapping[str, Any]) -> None:
        """Note that a job is finished and verified; written now and then, and at the latest by `save`."""
        if key is None:
            return
        self._done[key] = {"line": line, "outputs": [_seen(path) for path in job.outputs]}
        self._written = False
        if monotonic() > self._next:
            self.save()

    def save(self) -> None:
        """Write what is finished, if that is not written yet."""
        began = monotonic()
        if not self._written:
            self._write(json.dumps({"format": FORMAT, "done": self._done}).encode())
            self._next = monotonic() + max(1.0, 50 * (monotonic() - began))  # of very many jobs seldom

    def _write(self, content: bytes) -> None:
        try:
            self._written = True
            with open_state(BATCHES) as folder:
                write_private_file(folder, self._name, content)
        except OSError as error:
            if not self._told:
                say(f"warning: --resume will run all jobs again: the state folder cannot be written ({error.strerror})")
            self._told = True

    def remove(self) -> None:
        """Nothing is left to be continued."""
        with suppress(OSError), open_state(BATCHES) as folder:
            os.unlink(self._name, dir_fd=folder)


def key_of(job: Planned) -> str | None:
    """A key of a job with its inputs as they are now; None if an input has no identity."""
    try:
        paths = job.paths
    except PipelineError:  # that its run will tell
        return None
    if not paths or any(map(is_url, paths)):
        return None
    inputs = [_seen(path) for path in (*paths, *job.read)]
    configured = dask.config.get("pipeline", None)
    asked = [job.command.name, job.words, configured, os.getcwd(), inputs, code_version()]
    return None if None in inputs else hashlib.sha256(json.dumps(asked, default=str).encode()).hexdigest()


def _seen(path: str) -> list[Any] | None:
    """A file as it is now; None if there is no file."""
    path = split_output(path)[0]
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):  # what is in a folder may change without it
        return None
    return [os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns]
