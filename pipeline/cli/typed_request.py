"""A command line as it was typed: a result's file keeps it, so that the request can be repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from pipeline.cli.flags import WORDS
from pipeline.cli.help import COMPUTATION, INPUT
from pipeline.storage.remote.address import redacted

GROUPS = (INPUT, COMPUTATION)
# How it is checked, what runs beside it, and where standard input goes change no number.
OTHERS = ("verify", "replay", "also", "with_digest", "spool", "kernel")


def asked_for(ctx: click.Context, groups: tuple[str, ...] = GROUPS) -> dict[str, Any]:
    """Words of the flags that a result depends on, by the name of the flag: of the command line or configured."""
    import dask.config

    typed, _, _ = ctx.command.make_parser(ctx).parse_args(list(ctx.meta[WORDS]))
    words: dict[str, Any] = {}
    for param in _params(ctx.command, groups):
        name = param.name or ""
        if name in typed:
            words[name] = typed[name]
        elif (configured := dask.config.get(f"pipeline.{name.replace('_', '-')}", None)) is not None:
            words[name] = configured
    return {name: _shown(value) for name, value in words.items()}


def _shown(value: Any) -> Any:
    """Words for a file that others may read: without the signatures of addresses."""
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return redacted(value) if isinstance(value, str) else value


def command_words(command: click.Command, asked: Mapping[str, Any]) -> list[str]:
    """A command line with the same request, without its files; click.UsageError for a flag that no longer exists."""
    params = {param.name: param for param in _params(command, GROUPS)}
    if missing := asked.keys() - params.keys():
        raise click.UsageError(f"expected flags of {command.name}, got {', '.join(sorted(missing))}")
    flags: list[str] = []
    arguments: list[str] = []
    for name, value in asked.items():
        param = params[name]
        values = value if isinstance(value, list) else [value]
        if isinstance(param, click.Argument):
            arguments += map(str, values)
        elif getattr(param, "is_flag", False):
            flags += [param.opts[0]] * bool(value)
        elif getattr(param, "multiple", False):
            for one in values:
                flags += [param.opts[0], *map(str, one if isinstance(one, list | tuple) else [one])]
        else:
            alone = set(map(str, values)) == {getattr(param, "alone", None)}  # one word for all
            flags += [param.opts[0], *map(str, values[:1] if alone else values)]
    return [*flags, "--", *arguments]


def _params(command: click.Command, groups: tuple[str, ...]) -> Iterator[click.Parameter]:
    for param in command.params:
        argument = isinstance(param, click.Argument) and param.name != "files" and COMPUTATION in groups
        if argument or (getattr(param, "group", "") in groups and param.name not in OTHERS):
            yield param
