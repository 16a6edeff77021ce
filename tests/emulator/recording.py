"""The pytest plugin for recorded outcomes: selects the tests that run, compares outcomes, and writes records.

A test of recorded units carries `pytest.mark.recorded(kind, units)` and uses the fixture `due`. A unit is due
if it has no matching record or was drawn; a test without one is deselected. (It does not count as passed, because it
did not run, nor as skipped, because a thousand skipped tests hide the one that matters: the summary counts them.)
A test that is named on the command line (``file::test``) always runs.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.records import SHARE, Unit, draw, load, save

DUE, OUTCOMES = "recorded units that are due", "recorded outcomes"  # properties of a report
_due = pytest.StashKey["Due"]()


@dataclass(frozen=True)
class Kind:
    """A kind of units, recorded in one file.

    Attributes
    ----------
    name
        Name of the file.
    compiler
        () -> the compiler that outcomes depend on.
    inputs
        () -> hash of the inputs, by the stem of a source.
    units
        () -> all units, as (stem, name).
    """

    name: str
    compiler: Callable[[], str]
    inputs: Callable[[], Mapping[str, str]]
    units: Callable[[], list[Unit]]


@dataclass
class Due:
    """Units that a test has to run.

    Attributes
    ----------
    units
        Those to run.
    expected
        Recorded outcomes of the matching units that were drawn.
    outcomes
        Set by the test, one for each unit.
    inputs
        Hashes of its sources at collection: a file may be edited while tests run.
    """

    kind: Kind
    units: list[Unit]
    expected: dict[Unit, Any]
    inputs: Mapping[str, str]
    outcomes: dict[Unit, Any] = field(default_factory=dict)

    def compare(self) -> None:
        """Raise AssertionError if an outcome is missing or differs from the recorded one."""
        assert set(self.outcomes) == set(self.units), "a test has to set an outcome for each unit that is due"
        for unit, recorded in self.expected.items():
            outcome = json.loads(json.dumps(self.outcomes[unit]))
            assert outcome == recorded, (
                f"{self.kind.name}.json, {': '.join(unit)}: recorded {recorded}, got {outcome} when repeated; "
                "its inputs have not changed: was the record edited?"
            )


def add_options(parser: pytest.Parser) -> None:
    """Options that say which units run."""
    group = parser.getgroup("recorded outcomes")
    group.addoption("--full", action="store_true", help="run all units, and write what passed to the records")
    group.addoption("--record", action="store_true", help="as by default, and write what passed to the records")
    group.addoption("--record-seed", type=int, help="draw the same units again; as the summary names it")
    group.addoption("--record-share", type=float, default=SHARE, help=f"part that is drawn (default: {SHARE})")


class Recording:
    """The plugin. All processes of a run select the same tests; the first one draws the seed and writes records."""

    def __init__(self, config: pytest.Config, kinds: Mapping[str, Kind], folder: Path, runs_all: bool = False) -> None:
        option = config.option
        named = any("::" in argument for argument in config.args)
        self.config, self.kinds, self.folder = config, kinds, folder
        self.runs_all = runs_all or option.full or named
        workerinput = getattr(config, "workerinput", None)
        self.is_worker = workerinput is not None
        seed = workerinput["record_seed"] if workerinput else option.record_seed
        self.seed = secrets.randbelow(10**6) if seed is None else seed
        self.counts: dict[str, int] = {}
        self.foreign: dict[str, str] = {}
        self.passed: dict[str, dict[Unit, tuple[str, Any]]] = {}  # with the hash of the inputs
        self.failed: dict[str, set[Unit]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect tests without a unit that is due."""
        marked = [(item, marker) for item in items if (marker := item.get_closest_marker("recorded"))]
        for name in dict.fromkeys(marker.args[0].name for _, marker in marked):
            of_kind = [(item, marker.args[1]) for item, marker in marked if marker.args[0].name == name]
            self._select(self.kinds[name], of_kind)
        dropped = [item for item, _ in marked if not item.stash[_due].units]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
            gone = set(map(id, dropped))
            items[:] = [item for item in items if id(item) not in gone]
        if self.is_worker:
            config.workeroutput["recorded"] = json.dumps([self.counts, self.foreign])  # type: ignore[attr-defined]

    def _select(self, kind: Kind, items: list[tuple[pytest.Item, list[Unit]]]) -> None:
        records, compiler, inputs = load(kind.name, self.folder), kind.compiler(), kind.inputs()
        matching = records.matching(compiler, inputs)
        if records.sources and records.compiler != compiler:
            self.foreign[kind.name] = f"{records.compiler}, here it is {compiler}"
        every = [unit for _, units in items for unit in units]
        held = {unit for unit in every if unit in matching}
        share = self.config.option.record_share
        drawn = held if self.runs_all else draw(held, kind.name, self.seed, share)
        for item, units in items:
            due = [unit for unit in units if unit not in held or unit in drawn]
            expected = {unit: matching[unit] for unit in due if unit in held}
            item.stash[_due] = Due(kind, due, expected, inputs)
            item.user_properties.append((DUE, json.dumps([kind.name, due])))
        for name, count in (("held", len(held)), ("drawn", len(drawn)), ("new", len(every) - len(held))):
            self.counts[name] = self.counts.get(name, 0) + count

    @pytest.fixture
    def due(self, request: pytest.FixtureRequest) -> Due:
        """Units that the test has to run."""
        return request.node.stash[_due]

    @pytest.fixture
    def matching(self) -> Callable[[Kind], dict[Unit, Any]]:
        """(kind) -> matching recorded outcomes; none if everything is to run."""
        none: dict[Unit, Any] = {}
        return lambda kind: none if self.config.option.full else self._matching(kind)

    def _matching(self, kind: Kind) -> dict[Unit, Any]:
        return load(kind.name, self.folder).matching(kind.compiler(), kind.inputs())

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Iterator[None]:
        """Fail a test whose repeated units give another outcome than recorded."""
        result = yield
        if due := pyfuncitem.stash.get(_due, None):
            due.compare()
            outcomes = [(unit, due.inputs[unit[0]], outcome) for unit, outcome in due.outcomes.items()]
            pyfuncitem.user_properties.append((OUTCOMES, json.dumps([due.kind.name, outcomes])))
        return result  # type: ignore[return-value]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the outcomes of units."""
        for name, text in report.user_properties:
            if name == OUTCOMES and report.when == "call" and report.passed:
                kind, outcomes = json.loads(str(text))
                self.passed.setdefault(kind, {}).update({tuple(unit): (of, outcome) for unit, of, outcome in outcomes})
            elif name == DUE and report.failed:
                kind, units = json.loads(str(text))
                self.failed.setdefault(kind, set()).update(map(tuple, units))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Every worker of xdist draws with the same seed."""
        node.workerinput["record_seed"] = self.seed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """All workers of xdist count the same."""
        if text := getattr(node, "workeroutput", {}).get("recorded"):
            self.counts, self.foreign = json.loads(text)

    def pytest_sessionfinish(self) -> None:
        """Write the records of the units that ran, with `--record`."""
        if self.is_worker or not (self.config.option.full or self.config.option.record):
            return
        for name in sorted(self.passed.keys() | self.failed.keys()):
            kind, inputs = self.kinds[name], self.kinds[name].inputs()
            passed = {
                unit: outcome for unit, (of, outcome) in self.passed.get(name, {}).items() if inputs.get(unit[0]) == of
            }
            records = load(name, self.folder).updated(
                kind.compiler(), inputs, passed, self.failed.get(name, ()), set(kind.units())
            )
            save(name, records, self.folder)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print how many units ran, and the seed that draws the same ones again."""
        if not self.counts:
            return
        for name, compilers in self.foreign.items():
            terminalreporter.write_line(f"recorded outcomes: {name}.json was made with {compilers}: all were re-run")
        seed = "" if self.runs_all else f" (--record-seed {self.seed})"
        terminalreporter.write_line(
            f"recorded outcomes: {self.counts['held']} matched, {self.counts['drawn']} of them re-run{seed}; "
            f"{self.counts['new']} without a matching record were run"
        )
