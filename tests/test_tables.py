"""The README shows what was measured and what the program prints."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from tests.benchmarks import tables
from tests.benchmarks.tables import README, RESULTS, filled

TEXT = README.read_text(encoding="utf-8")


def test_readme_shows_the_recorded_figures() -> None:
    assert filled(TEXT) == TEXT, "run python -m tests.benchmarks.tables"


def test_table_follows_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {path.name: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    for case in figures["histogram_kernel_H200.json"]["cases"]:
        case["share of read"] = 0.123
    read = tables.read
    monkeypatch.setattr(tables, "read", lambda name: figures.get(name) or read(name))
    assert tables.kernel().count("12%") == len(tables.SHOWN)
    figures["histogram_file_4xH200.json"]["identical"] = False
    with pytest.raises(ValueError, match="differ in their results"):
        tables.files()


def test_readme_without_a_marker() -> None:
    with pytest.raises(ValueError, match="expected <!-- ladder --> and <!-- /ladder --> once"):
        filled(TEXT.replace("<!-- /ladder -->", ""))


def test_readme_shows_what_the_first_command_prints() -> None:
    """All but the rates, which are those of another machine."""
    command = re.search(r"-m pipeline (histogram data/ecg.npy .*)\n", TEXT)
    shown = re.search(r"<!-- panel -->\n```\n(.*?)\nread ", TEXT, re.DOTALL)
    assert command and shown
    printed = CliRunner().invoke(cli, [*command[1].split(), "-q"]).stdout
    assert [line.rstrip() for line in printed.splitlines()][: shown[1].count("\n") + 1] == shown[1].split("\n")
    assert printed.splitlines()[-1] == TEXT[shown.start() :].split("```")[1].rstrip().splitlines()[-1]
