"""Layout of `--help`: options in groups with one column width, an example, jobs before other commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from pipeline.cli import COMMAND
from pipeline.cli.command_list import OTHERS
from pipeline.errors import meant
from pipeline.process.last_words import emit

INPUT, COMPUTATION, OUTPUT, PLACE = "Input", "Computation", "Output", "Where it runs"
GROUPS = (INPUT, COMPUTATION, OUTPUT, PLACE)
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
FIRST_COLUMN = 30  # columns at most


def program() -> str:
    """What the user has called: the installed command, or this package."""
    return COMMAND if os.path.basename(sys.argv[0]) == COMMAND else "python -m pipeline"


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave the word to the shell, which completes it to a file."""
    return [CompletionItem(incomplete, type="file")]


def complete_names(names: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes a word to one of some names."""
    return lambda ctx, param, incomplete: [name for name in names if name.startswith(incomplete)]


class Flag(click.Option):
    """An option in a group of the help; `shown` describes its default, `alone` is a word that replaces all its values.

    `--range auto` is one word where `--range LO HI` is two: then ``nargs`` is 2 and ``alone`` is "auto".
    """

    def __init__(self, *args: Any, group: str = "", shown: str = "", alone: str | None = None, **keywords: Any) -> None:
        if str(keywords.get("metavar")).startswith("FILE"):
            keywords["shell_complete"] = complete_files
        super().__init__(*args, **keywords)
        self.group, self.shown, self.alone = group, shown, alone

    def get_help_extra(self, ctx: click.Context) -> Any:
        """The default in brackets after the help text; click would show a default of two words as a tuple."""
        extra = super().get_help_extra(ctx)
        return {**extra, "default": self.shown} if self.shown else extra


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the help, or say why it cannot be."""
    if value and not ctx.resilient_parsing:
        emit(*ctx.get_help().replace("python -m pipeline", program()).splitlines(), whole=False)
        ctx.exit()


class _Helpful(click.Command):
    """A command whose help is printed as results are."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The option of click with another callback."""
        if (option := super().get_help_option(ctx)) is not None:
            option.callback = _show_help
        return option


class GroupedCommand(_Helpful):
    """A command whose help has an example and groups of options."""

    def __init__(self, *args: Any, example: str = "", **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.example = example

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description and the example."""
        super().format_help_text(ctx, formatter)
        if self.example:
            with formatter.section("Example"):
                formatter.write(f"{'':{formatter.current_indent}}{ctx.command_path} {self.example}\n")  # not wrapped

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each group in the order in which they were declared."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                sections.setdefault(getattr(param, "group", ""), []).append(record)
        grouped = len(sections) > 1
        names = [name for rows in sections.values() for name, _ in rows if len(name) <= FIRST_COLUMN]
        width = max(map(len, names), default=0)
        for group in (*GROUPS, ""):
            if group in sections:
                with formatter.section(group or ("Other" if grouped else "Options")):
                    formatter.write_dl([(f"{name:<{width}}", text) for name, text in sections[group]], FIRST_COLUMN)


class SectionedGroup(_Helpful, click.Group):
    """A group that lists its commands in the order in which they were added.

    `command_list` says their sections, and what they do, without importing them.
    """

    def __init__(self, *args: Any, listed: Mapping[str, tuple[str, str]] | None = None, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.listed = listed

    def _listed(self) -> Mapping[str, tuple[str, str]]:
        if self.listed:
            return self.listed
        return {name: (OTHERS, command.get_short_help_str(200)) for name, command in self.commands.items()}

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands that begin so, and options."""
        names = [CompletionItem(name, help=text) for name, (_, text) in self._listed().items()
                 if name.startswith(incomplete)]  # fmt: skip
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names; click.UsageError with the nearest one if there is none."""
        name = args[0]
        if name == "help":  # the word that others use
            args, name = ["--help"], "--help"
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            advice = meant(name, self.commands)
            if os.path.exists(name):
                advice = f"; the job comes before its files: {program()} histogram {name}"
            raise click.UsageError(f"expected a command, one of {', '.join(self.commands)}, got {name!r}{advice}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        width = max(map(len, self.commands))
        for name, (section, text) in self._listed().items():
            sections.setdefault(section, []).append((f"{name:<{width}}", text))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)
