"""Command-line flags from the fields of a job's options, and the command class that reports errors in one line."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, get_type_hints

import click

from pipeline.cli.help import COMPUTATION, Flag, GroupedCommand
from pipeline.cli.usage import told
from pipeline.errors import PipelineError, UsageError
from pipeline.gpu.named_gpus import as_text
from pipeline.process.last_words import say

# Types of fields that need no reader, and what the help calls their values.
PLAIN = {int: "N", float: "NUMBER", str: "TEXT"}


MOST_SECONDS = 1e8  # three years
WORDS = f"{__name__}.words"  # of a command line, in the `meta` of its context


class Failure(click.ClickException):
    """A PipelineError for click to show: one line and its notes, no traceback, the right exit status."""

    def __init__(self, error: PipelineError) -> None:
        super().__init__(str(error))
        vars(self)["exit_code"] = error.exit_code
        self.__notes__ = [*getattr(error, "__notes__", ())]

    def show(self, file: Any = None) -> None:
        """Print the line and the notes on stderr."""
        say(f"error: {self.message}", *self.__notes__)


class Command(GroupedCommand):
    """A command that reports errors in one line and accepts a single word, like auto, for an option with several."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Complete `--range auto` to as many words as click expects, and explain `--range 0,1000`."""
        with _one_line(ctx):
            words = list(self._complete(args))
            ctx.meta[WORDS] = tuple(words)  # click takes them from the list
            return super().parse_args(ctx, words)

    def _complete(self, args: Sequence[str]) -> Iterator[str]:
        flags = {name: param for param in self.params if param.nargs > 1 for name in param.opts}
        previous = ""
        for arg in args:
            name, assigned, value = arg.partition("=")
            words = [name, value] if assigned and name in flags else [arg]
            for word in words:
                flag = flags.get(previous)
                if flag is None:
                    yield word
                elif word == getattr(flag, "alone", None):
                    yield from [word] * flag.nargs
                else:
                    if len(parts := word.strip("[]()").split(",")) == flag.nargs:
                        line = f"write {previous} {' '.join(part.strip() for part in parts)}"
                        raise click.UsageError(f"{previous}: expected {flag.metavar}, got {word!r}; {line}")
                    yield word
                previous = word

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        with _one_line(ctx):
            return super().invoke(ctx)


@contextlib.contextmanager
def _one_line(ctx: click.Context) -> Iterator[None]:
    """Show errors as one line, also under `dask pipeline`, where click itself would add two about the usage."""
    try:
        yield
    except PipelineError as error:
        raise Failure(error) from None
    except click.UsageError as error:
        raise Failure(UsageError(told(error, ctx))) from None


# click.ParamType can be subscripted only from click 8.4 on.
class _Reader(click.ParamType):  # type: ignore[type-arg]
    """Reads a word with the function that the option's field declares."""

    def __init__(self, field: dataclasses.Field[Any]) -> None:
        self.name, self.read = field.name, field.metadata["read"]
        self.alone = field.metadata.get("alone")
        self.of_file = field.metadata.get("of_file", False)
        self.default = field.default if isinstance(field.default, tuple) else ()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == self.alone or any(value is word for word in self.default):  # click converts defaults, too
            return value
        try:
            result = self.read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self.of_file and ctx is not None and param is not None:
            option_files(ctx).append((param.opts[0], str(value)))
        return result


def option_files(ctx: click.Context) -> list[tuple[str, str]]:
    """Files that options were read from, with the flags that name them."""
    files: list[tuple[str, str]] = ctx.meta.setdefault(f"{__name__}.files", [])
    return files


class Size(click.ParamType):  # type: ignore[type-arg]
    """Bytes in Dask's notation: 64MiB, 1GB, 4096."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes of a size, which Dask's configuration may have as any value of YAML."""
        from dask.utils import parse_bytes

        try:
            nbytes = int(parse_bytes(str(value)))
        except (ValueError, OverflowError):
            self.fail(f"expected a size like 64MiB, got {value!r}", param, ctx)
        if nbytes < 1:
            self.fail(f"expected a size of 1 byte or more, got {value!r}", param, ctx)
        return nbytes


class Written(click.ParamType):  # type: ignore[type-arg]
    """A file to write, with one of a few suffixes: the word after a flag may have been meant as an input."""

    name = "file"

    def __init__(self, *suffixes: str) -> None:
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; an empty one is refused where it is written."""
        if value and not str(value).endswith(self.suffixes):
            self.fail(f"expected a file to write that ends in {', '.join(self.suffixes)}, got {value!r}", param, ctx)
        return str(value)


class Lengths(click.ParamType):  # type: ignore[type-arg]
    """Lengths along the axes of an array: 1024,1024."""

    name = "lengths"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Integers of 1 or more; Dask's configuration turns `8,8` into a tuple, and `8` into an integer."""
        words = str(value).strip("()[] ").rstrip(",").split(",")
        if not all(word.strip().isdecimal() and int(word) for word in words):
            self.fail(f"expected lengths like 1024,1024, got {value!r}", param, ctx)
        return tuple(map(int, words))


class Gpus(click.ParamType):  # type: ignore[type-arg]
    """Which GPUs take part; Dask's configuration turns `2` into an integer and `0,2` into a tuple."""

    name = "gpus"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The same as text."""
        return as_text(value)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds in Dask's notation: 90s, 30m, 2h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds of a duration."""
        from dask.utils import parse_timedelta

        try:
            seconds = float(parse_timedelta(value))
        except (KeyError, ValueError, TypeError, OverflowError):
            seconds = 0
        if not 0 < seconds < MOST_SECONDS:
            self.fail(f"expected a duration like 90s, 30m or 2h, got {value!r}", param, ctx)
        return seconds


def option_flags(options: type[Any]) -> tuple[list[click.Argument], list[click.Option]]:
    """An argument for each field of a job's options without a default, a flag for each of the others.

    Metadata of a field: ``help`` and ``metavar``; ``read``, a function from a word to the value, whose ValueError says
    what was expected and got (int, float and str need none); ``of_file``, whether that word is a path; ``words``, the
    length if the value is a tuple; ``alone``, a word that stands for the whole tuple; ``advice``, what to do about a
    value of a wrong type, in Python.
    """
    hints = get_type_hints(options)
    arguments: list[click.Argument] = []
    flags: list[click.Option] = []
    for field in dataclasses.fields(options):
        kind = _kind(options, field, hints[field.name])
        if field.default is dataclasses.MISSING:
            arguments.append(click.Argument([field.name], metavar=field.name.upper(), type=kind))
            continue
        about = field.metadata
        metavar = about.get("metavar", PLAIN.get(hints[field.name], "VALUE"))
        flags.append(
            Flag([f"--{field.name.replace('_', '-')}"], group=COMPUTATION, default=field.default, type=kind,
                 nargs=about.get("words", 1), metavar=metavar, shown=_shown(field.default), help=about.get("help"),
                 alone=about.get("alone"))
        )  # fmt: skip
    return arguments, flags


def _kind(options: type[Any], field: dataclasses.Field[Any], hint: Any) -> Any:
    if "read" in field.metadata:
        return _Reader(field)
    if hint not in PLAIN:
        raise TypeError(f"{options.__name__}.{field.name}: expected int, float or str, or a field with a function "
                        f"`read` in its metadata, got {hint}")  # fmt: skip
    return hint


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return " ".join(f"{value:g}" for value in default)
    return "" if default is None else str(default)


def build_options(options: type[Any], values: dict[str, Any]) -> Any:
    """A job's options from parsed flags, which are removed from `values`; click.UsageError for invalid ones."""
    fields = {field.name: values.pop(field.name) for field in dataclasses.fields(options)}
    for field in dataclasses.fields(options):
        about, value = field.metadata, fields[field.name]
        alone = about.get("alone")
        if isinstance(value, tuple) and alone in value:
            if set(value) != {alone}:
                expected, got = f"{about['metavar']}, or {alone} alone", " ".join(map(str, value))
                raise click.UsageError(f"--{field.name}: expected {expected}, got {got}")
            fields[field.name] = alone
    try:
        return options(**fields)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def from_configuration(ctx: click.Context) -> dict[str, Any]:
    """Parsed values, completed from Dask's configuration, e.g. DASK_PIPELINE__CHUNK_SIZE=1GiB."""
    import dask.config

    values = dict(ctx.params)
    for param in ctx.command.params:
        name = param.name or ""
        key = f"pipeline.{max(param.opts, key=len).lstrip('-')}"
        configured = dask.config.get(key, None)
        if configured is None or ctx.get_parameter_source(name) != click.core.ParameterSource.DEFAULT:
            continue
        if param.multiple and isinstance(configured, str):
            configured = [configured]
        if param.nargs > 1 and not isinstance(configured, list | tuple):
            words = str(configured).split()
            configured = words * param.nargs if words == [getattr(param, "alone", None)] else words
        try:
            values[name] = param.type_cast_value(ctx, configured)
        except click.UsageError as error:
            raise click.UsageError(f"configuration {key}: {error.message}") from None
        except (TypeError, ValueError):  # a list where one value is expected
            raise click.UsageError(f"configuration {key}: expected what {max(param.opts, key=len)} takes on the "
                                   f"command line, got {configured!r}") from None  # fmt: skip
    return values
