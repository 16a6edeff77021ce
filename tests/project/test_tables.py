"""README.md and docs/ show the recorded measurements and the program's real output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from tests.benchmarks import tables, targets
from tests.benchmarks.markdown import share
from tests.benchmarks.rows import ROWS
from tests.benchmarks.tables import DOCS, PAGES, README, filled
from tests.benchmarks.targets import Figure, Need, Row

TEXT = README.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_show_the_recorded_figures(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert filled(page, text) == text, "run python -m tests.benchmarks.tables"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_rows_that_fall_short_say_what_bounds_them(row: Row) -> None:
    assert row.bound or not row.short()


def test_readme_shows_eight_rows_as_they_are_among_all() -> None:
    """Including rows that fall short, and their number."""
    every = tables.speed().splitlines()
    shown = [line for line in TEXT.splitlines() if line in every and line.startswith("| ")]
    assert len(shown) == 2 + 8  # with the header and the rule below it
    assert any("**" in line for line in shown) and not all("**" in line for line in shown[2:])
    short = [row for row in ROWS if row.short()]
    assert f"{sum(row.met() for row in ROWS)} of all {len(ROWS)} rows meet their requirement" in TEXT
    bounds = (DOCS / "performance.md").read_text(encoding="utf-8").partition("## What bounds")[2]
    assert all(f"- **{row.what}**: " in bounds for row in short)


def test_header_names_the_gpu_of_every_row() -> None:
    """One of the files of figures of each row is in the header: rows of arrays are from another GPU than others."""
    arrays = [row for row in ROWS if "an array on a GPU" in row.what]
    names = {
        name: tables.read(f"{name}.json")["environment"]["gpus"][0] for row in arrays for name in row.find.args[:1]
    }
    header = tables.speed().partition("\n\n")[0]
    assert len(arrays) == 2 and all(gpu in header for gpu in names.values())
    assert "NVIDIA H200" in header and "NVIDIA H100" in header
    assert "H100" not in tables.highlights().partition("\n\n")[0]  # the README shows no row of arrays


def rewritten(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the recorded figures."""
    read = targets.read

    def changed(name: str) -> Any:
        figures = read(name)
        change(name, figures)
        return figures

    monkeypatch.setattr(targets, "read", changed)


@pytest.mark.parametrize(("share", "shown"), [(0.9699, "**0.969**"), (0.97, "0.97"), (float("nan"), "**nan**")])
def test_table_follows_the_figures(monkeypatch: pytest.MonkeyPatch, share: float, shown: str) -> None:
    def change(name: str, figures: Any) -> None:
        for case in figures["cases"] if name.startswith("histogram_kernel") else []:
            case["share of read"] = share
            case["GB/s"]["CUB"] = 1

    rewritten(monkeypatch, change)
    assert f"| {shown} (" in tables.speed(ROWS[:1])
    assert ROWS[0].short() == (not share >= 0.97)


@pytest.mark.parametrize("bad", [1, float("nan")])
def test_worst_of_the_cases_counts(monkeypatch: pytest.MonkeyPatch, bad: float) -> None:
    def change(name: str, figures: Any) -> None:
        for number, case in enumerate(figures["cases"]):
            case["share of read"] = 0.99 if number else 0.5 * bad

    rewritten(monkeypatch, change)
    figure = ROWS[0].find()
    assert figure.case == "int32, uniform, 16 bins" and not figure.number > 0.5
    if bad == 1:
        (spread,) = (row for row in ROWS if row.what.endswith("best distribution over worst"))
        assert spread.find() == Figure(0.99 / 0.5, "int32, 16 bins")


def test_what_was_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(targets, "RESULTS", tmp_path)
    assert tables.speed(ROWS).count("not measured") >= len(ROWS)
    assert not any(row.short() for row in ROWS)


def test_wrong_numbers_are_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(name: str, figures: Any) -> None:
        figures |= {"identical": False}
        for case in figures.get("cases", []):
            case["verified"] = False

    rewritten(monkeypatch, change)
    with pytest.raises(ValueError, match="are wrong"):
        tables.speed(ROWS[:1])
    with pytest.raises(ValueError, match="differ in their results"):
        targets.from_file("H200", "one GPU", "pinned")


def test_small_is_not_rounded_to_what_is_needed() -> None:
    assert tables.amount(0.96999, Need(0.97, "of a copy")) == "0.969"
    assert tables.amount(1.0301, Need(1.03, "", at_most=True)) == "1.031"
    assert tables.amount(1.61, Need(1.6, "s", at_most=True)) == "1.61"


def test_page_without_a_marker() -> None:
    page = DOCS / "kernels.md"
    with pytest.raises(ValueError, match=r"kernels\.md: expected <!-- ladder --> and <!-- /ladder --> once"):
        filled(page, page.read_text(encoding="utf-8").replace("<!-- /ladder -->", ""))


def test_shares_are_rounded_down() -> None:
    assert (share(0.9699), share(1.0), share(0.3)) == ("0.96", "1.00", "0.30")


def test_readme_shows_what_the_first_command_prints() -> None:
    """All but the times, which depend on the machine."""
    command = re.search(r"-m pipeline (histogram data/ecg.npy .*)\n", TEXT)
    shown = re.search(r"<!-- panel -->\n```\n(.*?)\nwhole run ", TEXT, re.DOTALL)
    assert command and shown
    printed = CliRunner().invoke(cli, command[1].split()).stdout
    assert [line.rstrip() for line in printed.splitlines()][: shown[1].count("\n") + 1] == shown[1].split("\n")
    assert printed.splitlines()[-1] == TEXT[shown.start() :].split("```")[1].rstrip().splitlines()[-1]
