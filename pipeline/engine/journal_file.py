"""The file of a journal: an SQLite database of rows that each carry a digest.

A commit is durable and whole, or has not happened: SQLite's rollback journal sees to that, also on network file
systems, where its write-ahead log does not work. Nothing that is read is executed or unpickled: rows are JSON and
bytes, and one that has changed by a single bit is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import Any, NamedTuple

from kernels.common.private import close, open_private_file
from pipeline.storage.state import JOURNAL_SUFFIX as SUFFIX
from pipeline.storage.state import JOURNALS, open_state, state_path

ROLLBACK = f"{SUFFIX}-journal"  # what SQLite calls the file that undoes a commit that was not finished
BUSY_SECONDS = 5  # to wait for `runs list` in another process, which reads a few kilobytes
MOST_BYTES = 2**30  # of a row that is read

TABLES = (
    "CREATE TABLE state (kind TEXT NOT NULL, number INTEGER NOT NULL, header TEXT NOT NULL, content BLOB NOT NULL, "
    "digest BLOB NOT NULL, PRIMARY KEY (kind, number))",
    "CREATE TABLE log (time REAL, pass TEXT, items TEXT, worker TEXT, device TEXT, kernel TEXT, attempt INTEGER)",
)


class DamagedError(Exception):
    """A journal that is not as it was written; its text says what was found."""


class Row(NamedTuple):
    """Part of the state of a run: its kind, its number among these, JSON and bytes."""

    kind: str
    number: int
    header: dict[str, Any]
    content: bytes = b""


class Logged(NamedTuple):
    """Who computed what: time in seconds since the epoch, pass, items, worker, device, kernel, start of the run."""

    time: float
    pass_: str
    items: str
    worker: str
    device: str
    kernel: str
    attempt: int


class JournalFile:
    """An open journal, to write.

    Raises
    ------
    OSError, sqlite3.Error
        If it cannot be opened or written; also of each method.
    """

    def __init__(self, key: str, salt: str) -> None:
        self._salt = salt
        with open_state(JOURNALS) as folder:
            file = os.open(key + SUFFIX, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
            close(file)
        # By path: nobody else can change any folder on the way, or `open_state` would have refused them.
        self._database = sqlite3.connect(
            state_path(JOURNALS) / (key + SUFFIX), timeout=BUSY_SECONDS, isolation_level=None
        )

    def write(self, rows: Iterable[Row], log: Iterable[Logged]) -> None:
        """Commit rows, in place of those of the same kind and number, and lines of the log."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            if not database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                for table in TABLES:
                    database.execute(table)
            database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)", map(self._values, rows))
            database.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", log)
            database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise

    def _values(self, row: Row) -> tuple[str, int, str, bytes, bytes]:
        header = json.dumps(row.header)
        return row.kind, row.number, header, row.content, _digest(self._salt, row.kind, row.number, header, row.content)

    def close(self) -> None:
        """Close it."""
        self._database.close()


def _digest(salt: str, kind: str, number: int, header: str, content: bytes) -> bytes:
    """SHA-256 of a row and of the run that it belongs to."""
    digest = hashlib.sha256(json.dumps([salt, kind, number, header]).encode())
    digest.update(content)
    return digest.digest()


def read(key: str) -> list[Row] | None:
    """The state in a journal, its `run` row first; None if there is none, or a killed run had committed nothing.

    Raises
    ------
    DamagedError
        If it cannot be read, or is not as it was written.
    """
    try:
        with open_state(JOURNALS) as folder:
            close(open_private_file(folder, key + SUFFIX))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedError(error.strerror or str(error)) from None
    try:
        with closing(sqlite3.connect(state_path(JOURNALS) / (key + SUFFIX), timeout=BUSY_SECONDS)) as database:
            return list(_rows(database)) or None
    except (sqlite3.Error, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        reason = str(error).partition(" with text ")[0]  # SQLite quotes text that is not UTF-8, however long
        raise DamagedError(reason or type(error).__name__) from None


def _rows(database: sqlite3.Connection) -> Iterator[Row]:
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA cell_size_check = ON")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    schema = [row[0] for row in database.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")]
    if not schema:
        return
    if schema != list(TABLES):
        raise DamagedError("other tables than those of a journal")
    salt = None
    rows = database.execute("SELECT kind, number, header, content, digest FROM state ORDER BY kind <> 'run', number")
    for kind, number, header, content, digest in rows:
        types = [type(value) for value in (kind, number, header, content)]
        if types != [str, int, str, bytes]:
            raise DamagedError("a row of other types")
        parsed = json.loads(header)
        if not isinstance(parsed, dict) or (salt is None and kind != "run"):
            raise DamagedError("a row that says nothing about its run")
        salt = parsed["salt"] if salt is None else salt
        if digest != _digest(salt, kind, number, header, content):
            raise DamagedError(f"a row ({kind} {number}) that is not what was written")
        yield Row(kind, number, parsed, content)


def remove(key: str) -> None:
    """Remove a journal, if there is one; OSError if that fails."""
    with open_state(JOURNALS) as folder:
        for suffix in (ROLLBACK, SUFFIX):
            with suppress(FileNotFoundError):
                os.unlink(key + suffix, dir_fd=folder)


def journals() -> list[str]:
    """Keys of all journals; none without a state folder, which this does not make. OSError if it cannot be read."""
    try:
        names = os.listdir(state_path(JOURNALS))
    except (FileNotFoundError, RuntimeError):  # the latter: no home folder
        return []
    return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
