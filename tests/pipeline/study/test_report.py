"""Reports of a study: consistent Markdown, CSV and JSON, and a summary that fits a terminal."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import UsageError
from pipeline.study.report import aligned, open_folder, summary, tables, to_json, write_reports
from pipeline.study.run import StudyRun, run_study
from tests.cases.toy_study import WHOLE, FakeDevice, case, toy
from workflows.study.study import WARM, Study, parameters

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def run() -> StudyRun:
    return run_study(WHOLE, WHOLE.cases, FakeDevice())


@pytest.fixture
def files(run: StudyRun, tmp_path: Path) -> Path:
    paths, skipped = write_reports(run, str(tmp_path))
    assert skipped is None
    assert paths == [str(tmp_path / name) for name in ("toy.md", "toy.csv", "toy.json", "toy-1.png", "toy-2.png")]
    assert sorted(map(str, tmp_path.iterdir())) == sorted(paths)
    return tmp_path


def test_csv(files: Path) -> None:
    with open(files / "toy.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(WHOLE.cases)
    first = rows[0]
    assert (first["table"], first["variant"], first["parameters"], first["size"], first["dtype"]) == (
        "blocks", "double", "block=32", "100", "int32"
    )  # fmt: skip
    assert (first["status"], first["verified"], first["unit"], first["limit"]) == ("verified", "True", "GB/s", "read")
    numbers = [float(first[name]) for name in ("ms", "rate", "share", "course_ms", "course_ratio")]
    assert numbers == [2.0, 0.001, 1.0, 8.0, 4.0]
    assert [row["status"] for row in rows[:5]] == ["verified", "verified", "refused", "verified", "caught"]
    assert rows[2]["ms"] == "" and "at most 1024 threads | got 2048" in rows[2]["note"]


def test_markdown(files: Path) -> None:
    text = (files / "toy.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == "# Study of toy" and "A. Author, Doubling (1999), on an abacus" in text
    assert "NumPy, driver none, numpy" in text and "read 0 GB/s" in text
    start = lines.index("## blocks") + 2
    table = [
        [cell.strip().replace("\0", "|") for cell in line.replace("\\|", "\0").strip("|").split("|")]
        for line in lines[start : start + 7]
    ]
    header, rule, *rows = table
    assert header == ["variant", "parameters", "size", "dtype", "ms", "GB/s", "of limit", "to device, ms",
                      "to host, ms", "kernel's share", "check", "course, ms", "course / ours", "note"]  # fmt: skip
    assert len(rule) == len(header) and set("".join(rule)) == {"-", ":"}
    assert {len(row) for row in rows} == {len(header)}
    assert rows[0][:13] == ["double", "block=32", "100", "int32", "2", "0.001", "100 % of read", "0.2", "0.4", "76.9 %",
                            "verified", "8", "4"]  # fmt: skip
    assert rows[2][10] == "refused" and rows[2][13] == "block 2048 x 1: expected at most 1024 threads | got 2048"
    assert (rows[4][4], rows[4][5], rows[4][10]) == ("2 (wrong)", "", "caught")
    assert "## sweep" in lines and "![Rate of x and y](toy-2.png)" in lines
    assert "- **not held**: double beats twice [toys p. 1] (2 against 2 ms)" in lines
    assert "- **held**: twice takes 2 ms [toys p. 2] (2 ms)" in lines
    assert "- **not judged**: Ours: nobody measured this (no timed row of absent)" in lines


def test_json(files: Path, run: StudyRun) -> None:
    document = json.loads((files / "toy.json").read_text(encoding="utf-8"))
    assert document == to_json(run)
    assert document["rows"][0]["parameters"] == {"block": 32} and document["rows"][0]["sizes"] == [100]
    assert document["limits"] == {"read": {"rate": 0.001, "unit": "GB/s"}}
    assert document["environment"]["versions"] == {"numpy": np.__version__}
    assert [judged["verdict"] for judged in document["conclusions"]] == ["not held", "held", "not judged"]


def test_pictures(files: Path) -> None:
    for name in ("toy-1.png", "toy-2.png"):
        assert (files / name).read_bytes().startswith(PNG)


def test_numpy_parameters_are_plain_in_json() -> None:
    study = toy(case("double", parameters=parameters(block=np.int32(64), layout="rows")))
    run = run_study(study, study.cases, FakeDevice())
    assert json.loads(json.dumps(to_json(run)))["rows"][0]["parameters"] == {"block": 64, "layout": "rows"}


def test_without_matplotlib(run: StudyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    paths, skipped = write_reports(run, str(tmp_path))
    assert skipped == "no pictures: they need matplotlib; pip install 'baru[plot]'"
    assert [Path(path).name for path in paths] == ["toy.md", "toy.csv", "toy.json"]
    assert "![" not in (tmp_path / "toy.md").read_text(encoding="utf-8")


def test_figures_of_what_was_not_run_are_left_out(tmp_path: Path) -> None:
    run = run_study(WHOLE, (WHOLE.cases[0],), FakeDevice())
    paths, _ = write_reports(run, str(tmp_path))
    assert [Path(path).name for path in paths][3:] == ["toy-1.png"]


def test_summary(run: StudyRun) -> None:
    lines = summary(run)
    assert lines[0] == "toy, after A. Author, Doubling (1999), on an abacus"
    table = lines[lines.index("blocks") + 1 :]
    assert table[0].split("  ")[0] == "variant" and table[1].split() == [
        "double", "block=32", "100", "int32", "2", "0.001", "100", "%", "of", "read", "0.2", "0.4", "76.9", "%",
        "verified", "8", "4",
    ]  # fmt: skip
    assert lines[-3].startswith("not held    double beats twice [toys p. 1] (")


def cells(study: Study) -> list[dict[str, str]]:
    """Rows of its only table, by column."""
    ((header, *rows),) = tables(run_study(study, study.cases, FakeDevice())).values()
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_columns_that_only_some_studies_have() -> None:
    (row,) = cells(toy(case("double", timing=WARM, course_transfers_ms=(0.5, 0.25))))
    assert (row["timed"], row["course to device, ms"], row["course to host, ms"]) == ("warm", "0.5", "0.25")
    rows = cells(toy(case("double", timing=WARM), case("double")))
    assert [row["timed"] for row in rows] == ["warm", "cold"]
    (row,) = cells(toy(case("double")))
    assert not {"timed", "course to device, ms", "course to host, ms"} & set(row)


def test_rates_are_related_to_those_of_one_size() -> None:
    by_size = toy(case("double", n=100), case("double", n=200), case("twice", n=200), related={"blocks": (100,)},
                  work=lambda case: 1e3 * case.sizes[0])  # fmt: skip
    rows = cells(by_size)
    assert [row["of 100"] for row in rows] == ["1", "2", ""]  # twice was not run with 100


def test_the_cpu_is_named_where_it_was_timed() -> None:
    study = toy(case("double"), case("cpu"))
    run = replace(run_study(study, study.cases, FakeDevice()), environment={"device": "X", "driver": "1", "cpu": "Y"})
    assert "X, driver 1, CPU Y" in summary(run)
    assert "X, driver 1" in summary(replace(run, findings=run.findings[:1]))


def test_numbers_keep_their_digits() -> None:
    study = toy(case("double", course_ms=123456.0), work=lambda c: 61_834e6 * 2)
    (line,) = [line for line in summary(run_study(study, study.cases, FakeDevice())) if line.startswith("double")]
    assert line.split()[3:5] == ["2", "61834"] and line.split()[-2:] == ["123456", "61728"]


def test_aligned() -> None:
    assert aligned([["variant", "ms"], ["a", "10"], ["longer one", "2.5"]]) == [
        "variant      ms", "a            10", "longer one  2.5"
    ]  # fmt: skip


def test_folder(tmp_path: Path) -> None:
    open_folder(str(tmp_path / "new" / "deep"))
    assert (tmp_path / "new" / "deep").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="expected a folder for the reports, got File exists"):
        open_folder(str(tmp_path / "file"))
