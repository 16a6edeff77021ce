"""A saved result as text: the panel that the run printed; of merged ones, with the verdict of each part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from pipeline.engine.outcome import Outcome, Stages
from pipeline.engine.verdict import Verdict
from pipeline.report.panel import panel, shape_of
from pipeline.report.record import Record
from pipeline.report.saved_file import Saved
from pipeline.storage.pieces import AnyPiece
from pipeline.storage.protocol import Source
from workflows import WORKFLOWS
from workflows.aggregation import Aggregation
from workflows.reduce import REDUCE

MOST_PARTS = 12  # of a merged result that are listed


def shown(saved: Saved) -> list[str]:
    """Lines for a terminal."""
    if saved.record is None:
        why = saved.foreign or "the file does not say where it comes from"
        return _plain(f"{saved.job} of {saved.path}", saved.result, [("note", why)])
    if "merged" in saved.record:
        parts = saved.parts
        facts = [("merged", f"from {len(parts)} results, added up exactly")]
        for part in parts[:MOST_PARTS]:
            files = part["input"]["files"]
            more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
            facts.append(("", f"{files[0]}{more}: {part['verification']['verdict']}"))
        if len(parts) > MOST_PARTS:
            facts.append(("", f"and {len(parts) - MOST_PARTS} more"))
        dtype, number = parts[0]["input"]["dtype"], sum(len(part["input"]["files"]) for part in parts)
        return _plain(f"{saved.job} of {number:,} files ({dtype})", saved.result, facts)
    return panel(_outcome(saved.result, saved.record))


def _plain(title: str, result: Any, facts: list[tuple[str, str]]) -> list[str]:
    lines = [*result.lines(), ("", ""), *facts]
    width = max(len(name) for name, _ in lines)
    shape, number = shape_of(result), len(lines) - len(facts) - 1
    text = [f"{name:<{width}}  {line}".rstrip() for name, line in lines]
    return [title, "─" * len(title), *text[:number], *shape, *text[number + 1 :]]


@dataclass(frozen=True)
class _Input(Source):
    """What a record says of an input that need not be there any more."""

    about: Record

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """The dtype of the samples."""
        return np.dtype(self.about["dtype"])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the samples."""
        return tuple(self.about["shape"])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the files."""
        return tuple(self.about["files"])

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that had an identity; of standard input none."""
        return tuple(one["path"] for one in self.about.get("identity", ()))

    @property
    def identity(self) -> tuple[str, ...]:
        """Nothing that can change."""
        return self.names

    def pieces(self) -> Iterator[AnyPiece]:
        """None: nothing is read of it."""
        return iter(())


def _outcome(result: Any, record: Record) -> Outcome:
    """The outcome of a run, as far as its panel shows it."""
    name = record["job"]["name"]
    workflow = WORKFLOWS.get(name) or replace(REDUCE, name=name)  # a job that is not registered here
    options, environment, times = record["job"]["options"], record["environment"], record["performance"]
    if isinstance(workflow, Aggregation):
        asked = {name: options[name] for name in ("transform", "gain", "bias") if name in options}
        workflow = replace(workflow, asked=asked)
    kernel = str(record["job"]["kernel"] or "").removeprefix("study/")
    known = {field.name for field in fields(Verdict)}
    verdict = Verdict(**{name: value for name, value in record["verification"].items() if name in known})
    stages = times["stages"]
    spent = Stages(
        seconds={name: one["busy_seconds"] for name, one in stages.items()},
        moved={name: one["bytes_per_second"] * max(one["busy_seconds"], 1e-9) for name, one in stages.items()},
        devices=set(environment["devices"]),
        transfer_paths=set(environment["transfers"]),
        nbytes=times["bytes_per_second"] * times["seconds"],
        wall=times["seconds"],
        start_up=times["start_up_seconds"],
    )
    return Outcome(replace(workflow, kernel=kernel), None, _Input(record["input"]), result, verdict, spent,
                   environment["where"], environment["gpus"] or "", record["input"].get("blake3", ""))  # fmt: skip
