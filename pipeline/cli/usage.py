"""What is wrong with a command line, in one line: expected, got, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import click
from click.types import FloatParamType, IntParamType

from pipeline.cli.help import program
from pipeline.errors import PipelineError, UsageError, failure, meant, with_nearest
from workflows import WORKFLOWS


@contextmanager
def errors_have_status_2(name: str) -> Iterator[None]:
    """Give all errors status 2, for a command whose status 1 means something else, or whose own errors have it."""
    try:
        yield
    except Exception as error:
        told = error if isinstance(error, PipelineError) else failure(name, error)
        told.exit_code = UsageError.exit_code
        raise told from error


def told(error: click.ClickException, ctx: click.Context | None = None) -> str:
    """The message of an error, in the project's words where click has others."""
    ctx, param = getattr(error, "ctx", None) or ctx, getattr(error, "param", None)
    if isinstance(error, click.NoSuchOption) and ctx is not None:
        return _no_such_option(error.option_name, ctx)
    if isinstance(error, click.MissingParameter) and ctx is not None and param is not None:
        example = getattr(ctx.command, "example", "")
        command = ctx.command_path if ctx.parent else f"{program()} {ctx.command_path}"
        advice = f"; for example: {command} {example}" if example else ""
        return f"expected {_wanted(param, ctx)}, got none{advice}"
    if isinstance(error, click.BadParameter) and param is not None:
        return f"{_name(param)}: {_in_words(error.message, param)}"
    if isinstance(error, click.BadOptionUsage) and ctx is not None:
        by_name = {name: param for param in ctx.command.params for name in param.opts}
        if (param := by_name.get(error.option_name)) is not None:
            flag = getattr(param, "is_flag", False)
            wanted, got = ("no value", "one") if flag else (param.make_metavar(ctx), "nothing after it")
            return f"{_name(param)}: expected {wanted}, got {got if param.nargs == 1 else 'fewer words'}"
    if ctx is not None and (extra := re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", error.message)):
        wanted = " ".join(one.make_metavar(ctx) for one in ctx.command.params if isinstance(one, click.Argument))
        return (
            f"expected only {wanted}, got {extra[1]!r} after it" if wanted else f"expected no files, got {extra[1]!r}"
        )
    return with_nearest(error.format_message())


def _no_such_option(option: str, ctx: click.Context) -> str:
    if ctx.parent is not None and (jobs := _jobs_with(option)):
        return (f"expected an option of {ctx.info_name}, got {option!r}, an option of {' and '.join(jobs)}; "
                f"{ctx.command_path} --help lists those of {ctx.info_name}")  # fmt: skip
    known = [name for param in ctx.command.get_params(ctx) if isinstance(param, click.Option)
             for name in (*param.opts, *param.secondary_opts)]  # fmt: skip
    close = next((name for name in sorted(known, key=len) if name.startswith(option)), None)
    by_word = {name.lstrip("-"): name for name in known}
    close = close or by_word.get(next(iter(get_close_matches(option.lstrip("-"), by_word, 1)), ""))
    advice = f"did you mean {close!r}?" if close else f"{ctx.command_path} --help lists them"
    takes_words = any(isinstance(param, click.Argument) for param in ctx.command.params)
    if takes_words and not (close or option.startswith("--")):  # of `-::x` the parser names `-:`
        advice += "; write -- before a file that begins with a minus"
    return f"expected an option of {ctx.info_name}, got {option!r}; {advice}"


def _jobs_with(option: str) -> list[str]:
    """The jobs that have this option of their own."""
    return [name for name, job in WORKFLOWS.items()
            if option in {f"--{field.name.replace('_', '-')}" for field in fields(job.options)}]  # fmt: skip


def _wanted(param: click.Parameter, ctx: click.Context) -> str:
    metavar = param.make_metavar(ctx).rstrip(".")
    return metavar if isinstance(param, click.Argument) else f"{_name(param)} {metavar}"


def _name(param: click.Parameter) -> str:
    return str(param.metavar or param.name) if isinstance(param, click.Argument) else max(param.opts, key=len)


def _in_words(message: str, param: click.Parameter) -> str:
    if message.startswith("expected"):
        return message
    kind: Any = param.type
    value = re.match(r"'?(.*?)'? is not ", message)
    got = repr(value[1]) if value else "something else"
    if isinstance(kind, click.Choice):
        return f"expected one of {', '.join(map(str, kind.choices))}, got {got}{meant(got, map(str, kind.choices))}"
    if isinstance(kind, IntParamType | FloatParamType):
        least, most = getattr(kind, "min", None), getattr(kind, "max", None)
        limits = f" of {least} or more" if least is not None and most is None else ""
        limits = f" from {least} to {most}" if least is not None and most is not None else limits
        return f"expected {'an integer' if isinstance(kind, IntParamType) else 'a number'}{limits}, got {got}"
    return message
