"""Command-line flags from the fields of a job's options, and the one command class that all jobs share."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, get_type_hints

import click
import numpy as np

from kernels.histogram.binning import MAX_BINS, Edges
from kernels.stencil.windows import Weights
from pipeline.errors import PipelineError, UsageError

MAX_EDGES_TEXT = 2**26  # characters: 64 for each edge
MAX_WEIGHTS = 2**20  # bytes of a file: more than any stencil has


class Failure(click.ClickException):
    """A PipelineError as click shows it: one line, no traceback, the right exit status."""

    def __init__(self, error: PipelineError) -> None:
        super().__init__(str(error))
        vars(self)["exit_code"] = error.exit_code

    def show(self, file: Any = None) -> None:
        """Print the line on stderr."""
        click.echo(f"error: {self.message}", err=True)


class Command(click.Command):
    """A command whose `--range auto` is one word where `--range LO HI` is two, and whose errors are one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Complete `--range auto` to two words, which click can count."""
        words: list[str] = []
        for word in args:
            if word == "--range=auto":
                words += ["--range", "auto", "auto"]
            else:
                words += [word, word] if words[-1:] == ["--range"] and word == "auto" else [word]
        with _one_line():
            return super().parse_args(ctx, words)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        with _one_line():
            return super().invoke(ctx)


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Errors as one line, also under `dask pipeline`, where click itself would add two about the usage."""
    try:
        yield
    except PipelineError as error:
        raise Failure(error) from None
    except click.UsageError as error:
        raise Failure(UsageError(error.format_message())) from None


# click.ParamType can be subscripted only from click 8.4 on.
class _Bound(click.ParamType):  # type: ignore[type-arg]
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if value == "auto":
            return "auto"
        try:
            return float(value)
        except ValueError:
            self.fail(f"expected two numbers LO HI, or auto, got {value!r}", param, ctx)


class _EdgesFile(click.ParamType):  # type: ignore[type-arg]
    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return _npy_edges(value) if str(value).endswith(".npy") else _text_edges(value)
        except Exception as error:  # a hostile .npy can raise nearly anything while it is read
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
            if len(reason) > 120:
                reason = f"{reason[:120]} …"
            self.fail(f"{value}: expected a file of numbers, one a line, got {reason!r}", param, ctx)


class _WeightsFile(click.ParamType):  # type: ignore[type-arg]
    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            found = np.lib.format.open_memmap(value, mode="r")
            if found.nbytes > MAX_WEIGHTS:
                raise ValueError(f"{found.nbytes} bytes, more than {MAX_WEIGHTS}")
            return np.array(found)
        except Exception as error:  # a hostile .npy can raise nearly anything while it is read
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
            self.fail(f"{value}: expected a .npy file of weights, got {reason!r}", param, ctx)


def _npy_edges(path: str) -> Edges:
    # Mapped, because np.load would first allocate whatever the header claims.
    found = np.lib.format.open_memmap(path, mode="r")
    if found.dtype.kind not in "iuf":
        raise ValueError(f"no integers or floats but {found.dtype}")
    if found.size > MAX_BINS + 1:
        raise ValueError(f"{found.size} numbers, more than {MAX_BINS + 1}")
    return np.array(found, np.float64)


def _text_edges(path: str) -> Edges:
    with open(path, encoding="utf-8") as file:
        text = file.read(MAX_EDGES_TEXT + 1)
    if len(text) > MAX_EDGES_TEXT:
        raise ValueError(f"more than {MAX_EDGES_TEXT} characters")
    return np.array(text.replace(",", " ").split(), np.float64)


class Size(click.ParamType):  # type: ignore[type-arg]
    """Bytes as Dask writes them: 64MiB, 1GB, 4096."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes of a size."""
        from dask.utils import parse_bytes

        try:
            return int(parse_bytes(value))
        except (ValueError, OverflowError):
            self.fail(f"expected a size like 64MiB, got {value!r}", param, ctx)


# How click reads a field, by its type.
_KINDS: dict[Any, dict[str, Any]] = {
    int: {"type": int},
    str: {"type": str},
    tuple[float, float] | str: {"type": _Bound(), "nargs": 2},
    Edges | None: {"type": _EdgesFile()},
    Weights | None: {"type": _WeightsFile()},
}


def option_flags(options: type[Any]) -> tuple[list[click.Argument], list[click.Option]]:
    """An argument for each field of a job's options that has no default, a flag for each of the others."""
    hints = get_type_hints(options)
    arguments, flags = [], []
    for field in dataclasses.fields(options):
        if field.default is dataclasses.MISSING:
            arguments.append(click.Argument([field.name], metavar=field.name.upper(), type=hints[field.name]))
            continue
        flags.append(
            click.Option([f"--{field.name.replace('_', '-')}"], default=field.default,
                         show_default=_shown(field.default), **_KINDS[hints[field.name]], **field.metadata)
        )  # fmt: skip
    return arguments, flags


def _shown(default: Any) -> str | bool:
    return " ".join(f"{value:g}" for value in default) if isinstance(default, tuple) else default is not None


def build_options(options: type[Any], values: dict[str, Any]) -> Any:
    """A job's options from parsed flags, which are removed from `values`; click.UsageError where they cannot be."""
    fields = {field.name: values.pop(field.name) for field in dataclasses.fields(options)}
    for name, value in fields.items():
        if isinstance(value, tuple) and "auto" in value:
            if set(value) != {"auto"}:
                raise click.UsageError(
                    f"--{name}: expected two numbers LO HI, or auto alone, got {value[0]} {value[1]}"
                )
            fields[name] = "auto"
    try:
        return options(**fields)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def from_configuration(ctx: click.Context) -> dict[str, Any]:
    """Values of the flags that were not given but are configured: DASK_PIPELINE__CHUNK_SIZE=1GiB, or YAML."""
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
            configured = words * param.nargs if words == ["auto"] else words
        try:
            values[name] = param.type_cast_value(ctx, configured)
        except click.UsageError as error:
            raise click.UsageError(f"configuration {key}: {error.message}") from None
    return values
