"""Outcomes of slow tests, recorded in `recorded/` under a hash of their inputs.

Tests of machine code, schedules, sanitizers and mutants depend only on a kernel with its headers, the wrappers and
cases that drive it, the emulator, options, and a compiler. As long as none of these changes, neither does the outcome.
So a default test run re-runs only the units (a case, a source, a source on one architecture) without a matching record,
and a random share of the others. `recording.py` is the pytest plugin; after a change to a kernel run

    python -m pytest tests/emulator tests/kernels/common --record   # units without a record; commit `recorded/`
    python -m pytest tests/emulator tests/kernels/common --full     # everything, about ten minutes on two cores

either with ``-n 2 --dist loadfile``. Without `--record`, units whose inputs changed are re-run every time, and nothing
is written. A unit that fails loses its record; records of removed units, or of changed inputs, are dropped.

Each file names the compiler behind its outcomes; with another compiler none of them matches, and the summary of the
run says so. Another compiler means:

- NVRTC: a different minor version. Register allocation and spills change from one to the next.
- g++: a different major version. The emulator and the sanitizers look for errors in the kernels, not in g++'s output,
  so a bug-fix release makes no difference, and two machines seldom have the same one.

The versions of Python and NumPy do not count: both only compute expected values, which other tests check.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulator.inputs import digest

FOLDER = Path(__file__).with_name("recorded")
SHARE = 0.02  # share of the matching units of a kind that a run repeats, rounded up

Unit = tuple[str, str]  # source and name


@dataclass
class Source:
    """The recorded units of one source, which share their inputs.

    Attributes
    ----------
    inputs
        Hash of the inputs.
    outcomes
        Outcome of each unit, by name: any JSON value; a repetition must give the same.
    """

    inputs: str
    outcomes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Records:
    """One file.

    Attributes
    ----------
    compiler
        The compiler behind all outcomes.
    sources
        By the stem of a source.
    """

    compiler: str = ""
    sources: dict[str, Source] = field(default_factory=dict)

    def matching(self, compiler: str, inputs: Mapping[str, str]) -> dict[Unit, Any]:
        """Outcomes recorded for this compiler and these hashes, by unit."""
        if compiler != self.compiler:
            return {}
        return {
            (stem, name): outcome
            for stem, source in self.sources.items()
            if inputs.get(stem) == source.inputs
            for name, outcome in source.outcomes.items()
        }

    def updated(
        self,
        compiler: str,
        inputs: Mapping[str, str],
        passed: Mapping[Unit, Any],
        failed: Collection[Unit],
        known: Collection[Unit],
    ) -> Records:
        """Records with the passed units, without those that failed, no longer match, or are not `known`."""
        outcomes = {**self.matching(compiler, inputs), **passed}
        records = Records(compiler)
        for unit in sorted(outcomes.keys() - set(failed)):
            if unit in known:
                stem, name = unit
                records.sources.setdefault(stem, Source(inputs[stem])).outcomes[name] = outcomes[unit]
        return records


def load(kind: str, folder: Path) -> Records:
    """Records of a kind; empty if there is no file."""
    path = folder / f"{kind}.json"
    if not path.is_file():
        return Records()
    content = json.loads(path.read_text(encoding="utf-8"))
    return Records(content["compiler"], {stem: Source(**source) for stem, source in content["sources"].items()})


def save(kind: str, records: Records, folder: Path) -> None:
    """Write them, sorted and with one unit a line."""
    lines = []
    for stem, source in sorted(records.sources.items()):
        units = (f"   {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(source.outcomes.items()))
        head = f' {json.dumps(stem)}: {{"inputs": {json.dumps(source.inputs)}, "outcomes": {{\n'
        lines.append(head + ",\n".join(units) + "}}")
    text = f'{{"compiler": {json.dumps(records.compiler)}, "sources": {{\n' + ",\n".join(lines) + "}}\n"
    folder.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, folder / f"{kind}.json")


def draw(matching: Iterable[Unit], kind: str, seed: int, share: float = SHARE) -> set[Unit]:
    """The units to re-run: the same in every process that is given the same seed."""
    ranked = sorted(matching, key=lambda unit: digest(seed, kind, unit))
    return set(ranked[: math.ceil(share * len(ranked))])
