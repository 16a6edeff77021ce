"""The durable record of what a run has finished, from which a run of the same request continues.

A run begins its journal once it has lasted a while, commits it now and then and when it is interrupted, and removes it
on success. A run that found a wrong number removes its journal, too: nothing of such a run is trusted.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, time
from typing import Any, Protocol

from pipeline.engine import journal_file
from pipeline.engine.journal_file import JournalFile, Logged, Row
from pipeline.engine.journal_request import Request, identities
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.storage.atomic_file import TOKEN_BYTES
from pipeline.storage.output_lock import locked
from pipeline.storage.state import JOURNALS, open_state

# A run that has not lasted so long is sooner repeated than continued; it costs nothing.
AFTER_SECONDS = 2.0

# A run over so many bytes lasts longer, and is prepared for it from the beginning: most tasks of a large machine are
# submitted in the first seconds.
LONG_BYTES = 2**34

# Between two commits; longer where a commit takes long, so that all of them take 1 % of the run, unless that would put
# more than a minute of it at risk. So long after one that failed, too.
EVERY_SECONDS = 0.5
COMMIT_SHARE = 100
MOST_SECONDS = 60.0

LOCK = ".lock"
FORMAT = 1


class Progress(Protocol):
    """What a part of a run has finished."""

    def changes(self) -> Sequence[Row]:
        """What has to be written; VerificationError if it is wrong."""

    def written(self) -> None:
        """It has been written."""


class Journal:
    """The journal of a run.

    Parameters
    ----------
    request
        None for a run without a journal: nothing is ever written.
    say
        Shows a line to the user.
    """

    def __init__(self, request: Request | None = None, say: Callable[[str], None] = lambda line: None) -> None:
        self._request, self._say = request, say
        self.key = request.key() if request else ""
        self.token = self.key[: 2 * TOKEN_BYTES]  # in the name of a temporary file
        self.part: str | None = None  # the temporary file of an array
        self.seed = secrets.randbits(32)
        self.continued = False
        self.replaces = False  # whether an unfinished run is forgotten once this one begins
        self.saved = False  # whether there is something on disk
        self.on_saved: Callable[[bool], object] = bool  # called when this changes
        self.on_begun: Callable[[], object] = bool  # called once, when the request can no longer be refused
        self._salt, self._attempt = secrets.token_hex(16), 1
        self._rows: dict[tuple[str, int], Row] = {}
        self._next = monotonic() + AFTER_SECONDS
        self._file: JournalFile | None = None
        self._first: list[Row] = []  # what the first commit has to contain
        self._off = request is None
        self._locked = self._failed = False
        self._progress: list[Progress] = []
        self._log: list[Logged] = []
        self._stack = ExitStack()

    def take(self, rows: Sequence[Row]) -> None:
        """Continue with what an earlier run has left."""
        run = rows[0].header
        self.part, self.seed, self._salt, self._attempt = run["part"], run["seed"], run["salt"], run["attempt"] + 1
        self._rows = {(row.kind, row.number): row for row in rows}
        self.continued = True
        self._set_saved(True)
        self._next = monotonic()

    @property
    def possible(self) -> bool:
        """Whether anything will ever be written."""
        return not self._off

    def wanted(self, nbytes: int | None) -> bool:
        """Whether what tasks of a run over so many bytes compute is going to be written if they are submitted now."""
        return not self._off and (monotonic() >= self._next or self._file is not None or (nbytes or 0) >= LONG_BYTES)

    def row(self, kind: str, number: int = 0) -> Row | None:
        """What an earlier run has left of this kind and number."""
        return self._rows.get((kind, number))

    def rows(self, kind: str) -> list[Row]:
        """All that an earlier run has left of this kind, by number."""
        return [row for row in self._rows.values() if row.kind == kind]

    def record(self, progress: Progress) -> None:
        """Have the changes of a part of the run written from now on."""
        if not self._progress:
            self.on_begun()
        self._progress.append(progress)

    def log(self, pass_: str, items: str, result: Any) -> None:
        """Note who computed what; called as items finish, this also commits when it is time to."""
        if self._off:
            return
        device = "cpu" if result.device == "cpu" else result.unit
        kernels = ", ".join(sorted(result.timeline.kernels))
        self._log.append(Logged(time(), pass_, items, result.worker, device, kernels, self._attempt))
        if monotonic() >= self._next:
            self.commit()

    def commit(self) -> None:
        """Write what has changed. If that fails, the run goes on and tries again later.

        Raises
        ------
        VerificationError
            If what would be written is wrong.
        PipelineError
            If an input has changed.
        """
        if self._off:
            return
        began, lines = monotonic(), len(self._log)
        try:
            rows = [row for progress in self._progress for row in progress.changes()]
            if (file := self._file) is None:
                before = monotonic()
                file = self._begin()
                began += monotonic() - before  # only once
            file.write([*self._first, *rows], self._log[:lines])
        except (OSError, sqlite3.Error) as error:
            self._next = monotonic() + MOST_SECONDS
            if self._failed:
                return
            self._failed = True
            left = "as far as it was saved before" if self.saved else "from the beginning"
            reason = getattr(error, "strerror", None) or error
            self._say(
                f"the journal cannot be written ({reason}): if this run is interrupted, it can be continued {left}"
            )
            return
        for progress in self._progress:
            progress.written()
        self._first = []
        self._set_saved(True)
        del self._log[:lines]
        now = monotonic()
        self._next = now + min(max(EVERY_SECONDS, COMMIT_SHARE * (now - began)), MOST_SECONDS)

    def _begin(self) -> JournalFile:
        assert self._request is not None and self._request.files is not None
        if not self._locked:
            try:
                self.lock()
            except PipelineError as error:
                raise OSError(str(error)) from None
        header = {"format": FORMAT, "salt": self._salt, "attempt": self._attempt, "seed": self.seed, "time": time(),
                  "what": self._request.describe(), "part": self.part, "parameters": self._request.parameters(),
                  "inputs": identities(self._request.files)}  # fmt: skip
        self._first = [Row("run", 0, header)]
        if not self.continued:
            journal_file.remove(self.key)
        self._file = JournalFile(self.key, self._salt)
        self._stack.callback(self._file.close)
        return self._file

    def lock(self) -> None:
        """Keep other runs from this journal; PipelineError if one has it, OSError if its folder cannot be opened."""
        assert self._request is not None
        with ExitStack() as stack:
            folder = stack.enter_context(open_state(JOURNALS))
            stack.enter_context(locked(folder, self.key + LOCK, self._request.describe()))
            self._stack.enter_context(stack.pop_all())
        self._locked = True

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Commit what is finished if the body is interrupted; forget all if it finds a wrong number."""
        try:
            yield
        except UsageError:
            raise
        except VerificationError:
            self.remove()
            raise
        except BaseException:
            if self._progress and self.wanted(None):  # nothing has begun before that
                try:
                    self.commit()
                except PipelineError:  # then the first error says why the run ended
                    self.remove()
            raise

    def remove(self) -> None:
        """Remove everything: the run has succeeded, or must not be continued."""
        self._off = True
        if self.saved or self._file is not None:
            with suppress(OSError):
                journal_file.remove(self.key)
        self._set_saved(False)

    def _set_saved(self, saved: bool) -> None:
        if saved != self.saved:
            self.saved = saved
            self.on_saved(saved)

    def close(self) -> None:
        """Close the file and release the lock."""
        self._off = True
        self._stack.close()


def damaged(reason: object) -> PipelineError:
    """The error of a journal that is not what it should be."""
    return PipelineError(f"--resume: expected the journal of an unfinished run, got a damaged one ({reason}); leave "
                         "--resume out to start over")  # fmt: skip
