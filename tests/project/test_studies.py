"""docs/studies.md lists what exists: commands, variants, failures, conclusions, reasons for what does not hold."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.cli.main import cli
from pipeline.study.instances import declared, targets
from tests.benchmarks.study_tables import read_study
from workflows.study.registry import STUDIES
from workflows.study.study import OURS

TEXT = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
OURS_ALONE = {"production", "register_tiled", "cublas"}  # that no document has


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def cells(text: str) -> list[list[str]]:
    """Rows of the tables in a text, without headers and rules."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    kept = [not line.startswith(("| place", "| variant", "| key")) for line in lines]
    return [row for row, keep in zip(rows, kept, strict=True) if keep]


DOCUMENTS = [row[0] for row in cells(TEXT.partition("\n## ")[0])]
ITEMS = {document: cells(section(document)) for document in DOCUMENTS}
COMMANDS = {
    (document, row[0], command): shlex.split(command)
    for document, rows in ITEMS.items()
    for row in rows
    for command in re.findall(r"`([^`]+)`", row[2])
}


def test_every_document_has_its_items() -> None:
    assert len(DOCUMENTS) == 5
    for document, rows in ITEMS.items():
        assert len(rows) >= 13, document
        assert all(len(row) == 3 and re.search(r"`\w+[^`]*`", row[2]) for row in rows), document


@pytest.mark.parametrize(("place", "words"), COMMANDS.items(), ids=lambda value: str(value[-1])[:60])
def test_commands_run(place: tuple[str, str, str], words: list[str]) -> None:
    """Subcommand, flags, study, kernels, and a case for each variant that `study` is asked for."""
    command = cli.commands[words[0]]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known, place
    named = [value for flag, value in pairwise(words) if flag in ("--variant", "--kernel")]
    if words[0] == "study":
        study = STUDIES[words[1]]
        cases = [case for case in study.cases if case.quick or "--quick" not in words]
        assert set(named) <= {case.variant for case in cases}, place
    if words[0] == "inspect":
        (source,) = targets()[words[1]]
        assert set(named) <= set(declared(source)), place


def test_every_variant_is_in_a_command() -> None:
    shown: dict[str, set[str]] = {job: set() for job in STUDIES}
    for words in COMMANDS.values():
        if words[0] == "study":
            shown[words[1]] |= {value for flag, value in pairwise(words) if flag == "--variant"}
    missing = {job: set(study.variants) - shown[job] - OURS_ALONE for job, study in STUDIES.items()}
    assert {job: names for job, names in missing.items() if names} == {}


def test_conclusions_have_a_place_in_a_document() -> None:
    places = {f"{document}, {row[0]}" for document, rows in ITEMS.items() for row in rows}
    for job, study in STUDIES.items():
        for conclusion in study.conclusions:
            assert conclusion.place in {OURS, *places}, (job, conclusion.claim)


def test_claims_differ() -> None:
    """Reasons are looked up by them, within a study."""
    for study in STUDIES.values():
        claims = [conclusion.claim for conclusion in study.conclusions]
        assert len(set(claims)) == len(claims)


def test_every_failure_is_explained() -> None:
    """Shown, caught, and explained in three sentences."""
    rows = {row[0]: row for row in cells(section("Failures"))}
    broken = {f"{job} `{name}`" for job, study in STUDIES.items() for name, one in study.variants.items() if one.broken}
    assert set(rows) == broken
    for row in rows.values():
        assert len(row) == 4 and all(row)
        assert len(re.findall(r"\.(?: |$)", row[3])) == 3, row


def test_what_does_not_hold_has_a_reason() -> None:
    """And every reason belongs to a conclusion that exists."""
    reasons = set(re.findall(r"^- \*\*(.+?)\*\*: ", section("What does not hold today, and why"), re.MULTILINE))
    exist = {conclusion.claim for study in STUDIES.values() for conclusion in study.conclusions}
    assert reasons <= exist
    for job in STUDIES:
        for row in (read_study(job) or {"conclusions": []})["conclusions"]:
            assert row["verdict"] != "not held" or row["claim"] in reasons or row["claim"] not in exist, (job, row)
