"""Flags of jobs that return results: which samples count, and how they are calibrated."""

from __future__ import annotations

from typing import Any

import click

from pipeline.cli.help import INPUT, Flag
from pipeline.engine.selection import Preparation, read_missing
from workflows.calibration import TRANSFORMS


class _Column(click.ParamType):  # type: ignore[type-arg]
    """NAME=FILE."""

    name = "column"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Name and file."""
        if isinstance(value, tuple):
            return value
        name, sign, path = str(value).partition("=")
        if not (sign and name and path):
            self.fail(f"expected NAME=FILE.npy, got {value!r}", param, ctx)
        return name.strip(), path


class _Missing(click.ParamType):  # type: ignore[type-arg]
    """A number or nan."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        """The number."""
        try:
            return value if isinstance(value, int | float) else read_missing(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def preparation_flags() -> list[click.Option]:
    """Which samples count, and how they are calibrated."""
    return [
        Flag(["--where"], group=INPUT, metavar="CONDITION", help="Count only samples for which this holds: "
             "'0 <= x < 4000 and x != 7'. x is the sample, i its index, other names are columns; with + - * / sqrt "
             "abs and or not."),
        Flag(["--column"], group=INPUT, multiple=True, type=_Column(), metavar="NAME=FILE.npy",
             help="Name an array with one number per sample, for --where. May be given several times."),
        Flag(["--mask"], group=INPUT, metavar="FILE.npy",
             help="Count only samples where this array, bool or uint8 of the same shape, is not 0."),
        Flag(["--missing"], group=INPUT, multiple=True, type=_Missing(), metavar="VALUE",
             help="Leave out samples equal to this; nan means NaN. May be given several times."),
        Flag(["--gain"], group=INPUT, type=float, metavar="NUMBER",
             help="Replace each selected sample x by x * gain + bias, in float64."),
        Flag(["--bias"], group=INPUT, type=float, metavar="NUMBER", help="Added after --gain."),
        Flag(["--transform"], group=INPUT, type=click.Choice(tuple(TRANSFORMS)), help="Function applied after --bias."),
    ]  # fmt: skip


def preparation_asked(values: dict[str, Any]) -> Preparation:
    """What these flags ask for; click.UsageError for two columns of one name."""
    columns: dict[str, Any] = {}
    for name, path in values["column"]:
        if name in columns:
            raise click.UsageError(f"--column: expected each name once, got {name} twice")
        columns[name] = path
    calibration = values["gain"], values["bias"], values["transform"]
    return Preparation(values["where"], values["mask"], columns, tuple(values["missing"]), *calibration)
