"""A file of jobs: TOML tables, each of which becomes the command line of a job, or of one for each file."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import click

from pipeline.cli.flags import Command, build_options, from_configuration, option_files
from pipeline.cli.help import Flag
from pipeline.cli.jobs import job_command, parse_also
from pipeline.cli.usage import told
from pipeline.errors import UsageError, meant
from pipeline.storage.formats.table import parts_of
from pipeline.storage.list_file import with_lists
from pipeline.storage.output_format import split_output
from pipeline.storage.paths import MEMBER, expand, is_stdin, split_item
from workflows import WORKFLOWS

DEFAULTS, JOBS = "defaults", "jobs"
JOB, NAME, FILES, EACH = "job", "name", "files", "each"
OWN = (JOB, NAME, FILES, EACH)
ALSO = "also"
WRITTEN = ("output", "trace", "performance_report")  # of what a job may be told to write
OF_ALL = ("json", "quiet", "resume", "time-limit", "help", "dry-run")  # flags of `run` itself, or of no batch
MOST_BYTES = 2**24  # of the file
MOST_JOBS = 100_000


@dataclass(frozen=True)
class Planned:
    """A job that is to be run.

    Attributes
    ----------
    name, of
        In reports; of its table, which is another one if the table stands for several jobs.
    command, words
        Its command, and the words of its command line.
    files, read, outputs
        Its inputs, the other files that its options name, and what it writes.
    """

    name: str
    of: str
    command: Command
    words: tuple[str, ...]
    files: tuple[str, ...]
    read: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        """Files of this machine that it reads, as they are now."""
        found: list[str] = []
        for item in map(str, with_lists(self.files)):
            found += [] if is_stdin(item) else expand(split_item(item).pattern, "--recursive" in self.words)
        return [part for path in found for part in parts_of(path)]


def read_jobs(path: str) -> list[Planned]:
    """The jobs of a file, in their order.

    Raises
    ------
    UsageError
        If it is not such a file: in which job, what was expected, what was got, and the nearest key that there is.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        document = tomllib.loads(content.decode()) if len(content) <= MOST_BYTES else None
    except FileNotFoundError:
        raise UsageError(f"{path}: expected a file of jobs, found none there; check the path") from None
    except OSError as error:
        raise UsageError(f"{path}: expected a file of jobs that can be read, got {error.strerror!r}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: expected TOML, got something else: {error}") from None
    if document is None:
        raise UsageError(f"{path}: expected a file of at most {MOST_BYTES >> 20} MiB, got a larger one")
    _check_keys(path, document, (DEFAULTS, JOBS))
    tables, defaults = document.get(JOBS), document.get(DEFAULTS, {})
    if not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        raise UsageError(f"{path}: expected one or more tables [[{JOBS}]], got "
                         f"{'none' if not tables else type(tables).__name__}")  # fmt: skip
    if not isinstance(defaults, dict):
        raise UsageError(f"{path}: expected a table [{DEFAULTS}], got {type(defaults).__name__}")
    commands = [_command(f"{path}: job {number}", table) for number, table in enumerate(tables, 1)]
    _check_keys(f"{path}: [{DEFAULTS}]", defaults, [key for one in commands for key in (*_params(one), NAME, EACH)])
    planned = [
        job
        for number, (table, command) in enumerate(zip(tables, commands, strict=True), 1)
        for job in _jobs(f"{path}: job {number}", command, defaults, table)
    ]
    if len(planned) > MOST_JOBS:
        raise UsageError(f"{path}: expected at most {MOST_JOBS:,} jobs, got {len(planned):,}; use larger patterns")
    _check_outputs(path, planned)
    return planned


def _command(where: str, table: Mapping[str, Any]) -> Command:
    name = table.get(JOB)
    if not isinstance(name, str) or name not in WORKFLOWS:
        near = meant(str(name), WORKFLOWS, 0.5)
        raise UsageError(f"{where}: expected {JOB} = one of {', '.join(WORKFLOWS)}, got {name!r}{near}")
    return job_command(WORKFLOWS[name])


def _params(command: Command) -> dict[str, click.Parameter]:
    """The keys that a job may have: its flags without their dashes, its arguments, its files."""
    keys = {}
    for param in command.params:
        key = max(param.opts, key=len).lstrip("-") if isinstance(param, Flag) else (param.name or "")
        if key not in OF_ALL:
            keys[key] = param
    return keys


def _check_keys(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if _plain(key) not in known:
            where_to = "; no job of a batch has it of its own: leave it out here" if _plain(key) in OF_ALL else ""
            raise UsageError(f"{where}: expected no key {key!r}{where_to or meant(_plain(key), known, 0.5)}")


def _plain(key: str) -> str:
    return key.replace("_", "-")


def _jobs(where: str, command: Command, defaults: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[Planned]:
    params = _params(command)
    _check_keys(where, table, (*OWN, *params))
    values = {_plain(key): value for key, value in defaults.items() if _plain(key) in (*OWN, *params)}
    if {FILES, EACH} & table.keys():  # the job's own, in whatever way
        values = {key: value for key, value in values.items() if key not in (FILES, EACH)}
    values |= {_plain(key): value for key, value in table.items()}
    name = str(values.get(NAME, command.name))
    where = f"{where} ({name})"
    if (FILES in values) == (EACH in values):
        got = "both" if FILES in values else "none"
        raise UsageError(f"{where}: expected {FILES} = all as one, or {EACH} = a job for each of them, got {got}")
    items = _words(where, FILES if FILES in values else EACH, values.get(FILES, values.get(EACH)))
    if FILES in values:
        yield _planned(where, name, name, command, params, values, items)
        return
    recursive = values.get("recursive") is True
    with _told_of(where):
        every = [(split_item(item), is_stdin(item)) for item in map(str, with_lists(items))]
        each = [(file, item) for item, _ in every for file in expand(item.pattern, recursive)]
    if any(from_stdin for _, from_stdin in every):
        raise UsageError(f"{where}: expected files, got standard input, which is read once")
    for file, (_, member, text) in each:
        whole = file + (f"{MEMBER}{member}" if member is not None else "") + (f"[{text}]" if text else "")
        base = os.path.basename(file)
        parts = {"{name}": base, "{stem}": os.path.splitext(base)[0], "{folder}": os.path.dirname(file)}
        of_file = {key: _filled(value, parts, key == ALSO) for key, value in values.items() if key != "recursive"}
        yield _planned(where, f"{name} {base}", name, command, params, of_file, [whole])


@contextmanager
def _told_of(where: str) -> Iterator[None]:
    """Errors that name their job."""
    try:
        yield
    except click.ClickException as error:
        raise UsageError(f"{where}: {told(error)}") from None
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _filled(value: Any, parts: Mapping[str, str], words: bool = False) -> Any:
    """A value with {name}, {stem} and {folder} replaced by parts of the file's name, in every word of a text.

    So a name with spaces or quotes is still one word.
    """
    if isinstance(value, list):
        return [_filled(one, parts, words) for one in value]
    if not isinstance(value, str):
        return value
    if words:
        with suppress(ValueError):  # an unclosed quote: its job will tell
            return shlex.join(_filled(word, parts) for word in shlex.split(value))
    return re.sub("|".join(map(re.escape, parts)), lambda mark: parts[mark[0]], value)


def _planned(
    where: str, name: str, of: str, command: Command, params: Mapping[str, click.Parameter], values: Mapping[str, Any],
    files: Sequence[str],
) -> Planned:  # fmt: skip
    flags: list[str] = []
    arguments: list[str] = []
    for key, param in params.items():
        if key not in values or key == FILES:
            continue
        value, words = values[key], _words(f"{where}: {key}", key, values[key])
        if isinstance(param, click.Argument):
            arguments += words
        elif getattr(param, "is_flag", False):
            if not isinstance(value, bool):
                raise UsageError(f"{where}: {key}: expected true or false, got {value!r}")
            flags += [param.opts[0]] * value
        elif isinstance(value, bool):
            raise UsageError(f"{where}: {key}: expected {param.make_metavar(_context(command))}, got {words[0]}")
        elif param.multiple:
            for word in words:
                flags += [param.opts[-1], word]
        elif param.nargs > 1:
            flags += [param.opts[-1], *words]
        else:
            flags += [param.opts[-1], ",".join(words)]
    made = (*flags, "--", *arguments, *files)
    with _told_of(where):
        ctx = command.make_context(str(command.name), list(made))
        parsed = from_configuration(ctx)
        build_options(WORKFLOWS[str(command.name)].options, parsed)
        also = [parse_also(text) for text in parsed.get(ALSO, ())]
    outputs = [*(parsed[key] for key in WRITTEN), *(one.output for one in also)]
    read = [*(path for _, path in option_files(ctx)), *(file.path for one in also for file in one.read),
            *(path for _, path in parsed.get("column", ())), parsed.get("mask")]  # fmt: skip
    return Planned(name, of, command, made, tuple(files), *(tuple(filter(None, paths)) for paths in (read, outputs)))


def _context(command: Command) -> click.Context:
    return click.Context(command)


def _words(where: str, key: str, value: Any) -> list[str]:
    """A TOML value as words of a command line."""
    values = value if isinstance(value, list) else [value]
    for one in values:
        if not isinstance(one, str | int | float):
            raise UsageError(f"{where}: expected {key} = text, a number, true or false, or a list of these, got "
                             f"{type(one).__name__}")  # fmt: skip
    if not values:
        raise UsageError(f"{where}: expected {key} = one value or more, got an empty list")
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in values]


def _check_outputs(path: str, planned: Sequence[Planned]) -> None:
    """Refuse two jobs that would write the same file."""
    seen: dict[str, Planned] = {}
    for job in planned:
        for output in job.outputs:
            other = seen.setdefault(os.path.realpath(split_output(output)[0]), job)
            if other is not job:
                raise UsageError(
                    f"{path}: expected a file for each job, but both {other.name} and {job.name} write "
                    f"{output}; {{stem}} and {{name}} in an output stand for the name of the input"
                )
