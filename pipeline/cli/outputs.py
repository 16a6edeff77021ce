"""The outputs of a job: files, reserved before it runs and written once all is verified, and what it prints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.engine.outcome import Outcome
from pipeline.errors import PipelineError, UsageError, failure
from pipeline.process.last_words import emit, say
from pipeline.report.panel import panel, summary, to_json
from pipeline.report.pictures import check_picture
from pipeline.report.record import record_of
from pipeline.report.result_file import RECORDED, keep, write_output
from pipeline.report.trace import render_trace, to_table
from pipeline.storage.atomic_file import Target, reserved
from pipeline.storage.check_place import split
from pipeline.storage.leftovers import remove_leftovers
from workflows.pictures import SUFFIXES


class Named(NamedTuple):
    """A file on the command line, with the flag that names it; no flag for an input."""

    flag: str
    path: str

    def __str__(self) -> str:
        return f"{self.flag} {self.path}" if self.flag else self.path


def check_apart(outputs: Sequence[Named], inputs: Iterable[Named]) -> None:
    """Refuse an output that is an input, or the same file as another output, by whatever names.

    Raises
    ------
    UsageError
        With both names.
    """
    seen: dict[object, Named] = {}
    for output in outputs:
        for key in _keys(output.path):
            if seen.setdefault(key, output) is not output:
                raise _same(seen[key], output)
    if any(os.path.exists(output.path) for output in outputs):  # otherwise none is an input
        for one in inputs:
            for key in _keys(one.path):
                if key in seen:
                    raise _same(one, seen[key])


def check_draw(how: str, outputs: Sequence[Named], rows: bool) -> None:
    """Refuse a way of drawing that no output has; UsageError."""
    if how == "counts":
        return
    if not any(output.path.endswith(SUFFIXES) for output in outputs):
        raise UsageError(f"--draw {how}: expected a picture, got none; name one with -o ({', '.join(SUFFIXES)})")
    if rows and how == "cumulative":
        raise UsageError("--draw cumulative: expected one histogram, got one for each row; --draw log draws rows")


def _keys(path: str) -> Iterator[object]:
    """What two names of one file have in common: where they lead, or what is there."""
    with suppress(OSError, ValueError):  # what is wrong with the path is told where it is used
        yield os.path.join(*split(path))
        status = os.stat(path)
        yield status.st_dev, status.st_ino


def _same(one: Named, other: Named) -> UsageError:
    return UsageError(f"{one} and {other}: expected different files, got one and the same; choose another name")


@dataclass(frozen=True)
class Outputs:
    """The reserved files of a run: one for each result, None where none was asked for, and the trace.

    A job that writes an array has no entry: its file is there by then.
    """

    results: tuple[Target | None, ...]
    trace: Target | None
    how: str = "counts"  # of pictures

    def publish(
        self, outcomes: Sequence[Outcome], as_json: bool, quiet: bool = False,
        told: Callable[[Sequence[Outcome]], None] | None = None,
    ) -> None:  # fmt: skip
        """Write and print what was computed, or have it `told`; where one of these fails the others are still done.

        Raises
        ------
        PipelineError
            If something could not be written, with where the result is.
        """
        problems: list[str] = []
        written = [outcome.result.path for outcome in outcomes if not self.results]  # arrays
        for target, outcome in zip(self.results, outcomes, strict=False):
            if target is not None:
                try:
                    recorded = os.path.splitext(target.path)[1] in RECORDED  # a record of many rows takes long
                    write_output(target, outcome.result, record_of(outcome) if recorded else None, self.how)
                    written.append(target.path)
                except PipelineError as error:  # it says where the result is
                    problems.append(str(error))
                except Exception as error:  # of a library that draws, or for want of memory
                    problems += [_line(f"writing {target.path}", error), _kept(outcome)]
        try:
            if told is None:
                print_outcomes(outcomes, as_json, quiet)
            else:
                told(outcomes)
        except Exception as error:
            only = [outcome for target, outcome in zip(self.results, outcomes, strict=False) if target is None]
            there = [f"the verified result is in {path}" for path in written]
            problems += [_line("printing", error), *there, *map(_kept, only)]
        if self.trace is not None:
            try:
                say(*to_table(outcomes[0].stages.traces))
                self.trace.write(render_trace(outcomes[0].stages.traces, self.trace.path))
            except Exception as error:
                problems.append(_line(f"writing {self.trace.path}", error))
        if problems:
            raise PipelineError("; ".join(problems))


def _line(what: str, error: Exception) -> str:
    return str(error if isinstance(error, PipelineError) else failure(what, error))


def _kept(outcome: Outcome) -> str:
    """Keep a result that is in no file, and say where."""
    try:
        return keep(f"{outcome.workflow.name}.json", _document(outcome).encode())
    except Exception as error:
        return _line("keeping the result", error)


@contextmanager
def reserve(results: Sequence[str | None], trace: str | None, how: str = "counts") -> Iterator[Outputs]:
    """Check the files of a run, and keep other runs from writing them; errors as of `reserved`.

    `how` results are drawn in pictures.

    What killed runs have left is removed first.
    """
    remove_leftovers()
    if trace is not None and trace.endswith(SUFFIXES):
        check_picture(trace)
    with ExitStack() as stack:
        targets = [None if path is None else stack.enter_context(reserved(path)) for path in (*results, trace)]
        yield Outputs(tuple(targets[:-1]), targets[-1], how)


def print_outcomes(outcomes: Sequence[Outcome], as_json: bool, quiet: bool) -> None:
    """Print each outcome as if its job had run alone: a JSON object on one line, or the verdict's line, or a panel."""
    lines: list[str] = []
    for outcome in outcomes:
        if as_json or quiet:
            lines.append(_document(outcome) if as_json else summary(outcome))
        else:
            lines += [*([""] if lines else []), *panel(outcome)]
    emit(*lines)


def _document(outcome: Outcome) -> str:
    return json.dumps(to_json(outcome))
