"""The command `config`: the keys of the configuration, what they are set to, and keys that nothing reads."""

from __future__ import annotations

import json
from typing import Any

import click

from pipeline.cli.flags import Command
from pipeline.cli.jobs import job_command
from pipeline.errors import meant
from pipeline.process.last_words import emit, say
from workflows import WORKFLOWS

SECTION, PREFIX = "pipeline", "DASK_PIPELINE__"


def keys() -> dict[str, list[str]]:
    """Every key, with the jobs that read it."""
    known: dict[str, list[str]] = {}
    for name, workflow in WORKFLOWS.items():
        for param in job_command(workflow).params:
            if isinstance(param, click.Option):
                known.setdefault(max(param.opts, key=len).lstrip("-"), []).append(name)
    return known


@click.command("config", cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def configuration(as_json: bool) -> None:
    """List the keys of the configuration, the jobs that read them, and what they are set to.

    A key is an option without its dashes: --chunk-size is DASK_PIPELINE__CHUNK_SIZE in the environment, and chunk-size
    under `pipeline:` in Dask's YAML configuration. Options on the command line take precedence.
    """
    import dask.config

    known = keys()
    section = dask.config.get(SECTION, None)
    given: dict[str, Any] = {str(key): value for key, value in section.items()} if isinstance(section, dict) else {}
    values = {key: dask.config.get(f"{SECTION}.{key}", None) for key in known}  # in either spelling, - or _
    unknown = [key for key in given if key.replace("_", "-") not in known]
    if as_json:
        emit(json.dumps({"keys": {key: {"variable": variable(key), "jobs": jobs, "value": values[key]}
                                  for key, jobs in known.items()}, "unknown": unknown}, default=str))  # fmt: skip
    else:
        width = max(map(len, known))
        for key, jobs in known.items():
            of_all = "all jobs" if len(jobs) == len(WORKFLOWS) else ", ".join(jobs)
            value = "" if values[key] is None else f"  = {values[key]!r}"
            emit(f"{key:<{width}}  {variable(key):<{len(PREFIX) + width}}  {of_all}{value}")
    for key in unknown:
        say(f"warning: configuration {SECTION}.{key}: expected a key that this command lists, got one that nothing "
            f"reads{meant(key.replace('_', '-'), known)}")  # fmt: skip


def variable(key: str) -> str:
    """The environment variable of a key."""
    return PREFIX + key.upper().replace("-", "_")
