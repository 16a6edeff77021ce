"""Reports of a study: Markdown, CSV, JSON, pictures, and the summary on the terminal."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipeline.errors import UsageError
from pipeline.storage.atomic_file import write_file
from pipeline.study.figures import draw, drawable, drawing_png
from pipeline.study.profile import by_nsys, profile_table
from pipeline.study.run import HOST, Finding, Judged, StudyRun
from workflows.study.study import COLD, OURS, Case

UNITS = {"read": "GB/s", "copy": "GB/s", "float32": "GFLOP/s", "float64": "GFLOP/s"}
VERDICTS = {True: "held", False: "not held", None: "not judged"}
CSV_COLUMNS = (
    "table", "variant", "parameters", "size", "dtype", "timing", "status", "verified", "broken", "ms", "rate", "unit",
    "share", "limit", "to_device_ms", "to_host_ms", "kernel_share", "related", "course_ms", "course_ratio",
    "course_to_device_ms", "course_to_host_ms", "note",
)  # fmt: skip


def open_folder(folder: str) -> None:
    """Create the folder for the reports, before anything is measured.

    Raises
    ------
    UsageError
        If it cannot be made or written to.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder}: expected a folder for the reports, got {error.strerror}; choose another"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder}: expected a folder that can be written to; choose another")


def write_reports(run: StudyRun, folder: str) -> tuple[list[str], str | None]:
    """Write <job>.md, .csv and .json, and a picture of each figure; each appears whole or not at all.

    Returns
    -------
    paths
        Files written.
    skipped
        Why there are no pictures, or None.
    """
    pictures, skipped = {}, None
    try:
        figures = [figure for figure in run.study.figures if drawable(figure, run.findings)]
        drawn = [(figure.title, draw(figure, run)) for figure in figures]
        drawn += [(drawing.title, drawing_png(drawing)) for drawing in run.study.drawings]
        pictures = {f"{run.study.job}-{i}.png": picture for i, picture in enumerate(drawn, start=1)}
    except ImportError:
        skipped = "no pictures: they need matplotlib; pip install 'baru[plot]'"
    job = run.study.job
    contents = {
        f"{job}.md": markdown(run, {name: title for name, (title, _) in pictures.items()}).encode(),
        f"{job}.csv": csv_text(run).encode(),
        f"{job}.json": json.dumps(to_json(run), indent=1).encode() + b"\n",
        **{name: picture for name, (_, picture) in pictures.items()},
    }
    paths = [os.path.join(folder, name) for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_file(path, content)
    return paths, skipped


def to_json(run: StudyRun) -> dict[str, Any]:
    """The JSON object of a study: every row with its parameters, in the units that the keys name."""
    return {
        "job": run.study.job,
        "course": run.study.course,
        "environment": dict(run.environment),
        "limits": {name: {"rate": rate, "unit": UNITS[name]} for name, rate in run.limits.items()},
        "rows": [
            {**_record(run, finding), "sizes": list(finding.row.case.sizes),
             "parameters": {name: _plain(value) for name, value in finding.row.case.parameters.items()}}
            for finding in run.findings
        ],
        "profile": [asdict(line) for line in run.profile],
        "conclusions": [
            {"claim": judged.claim, "place": judged.place, "verdict": VERDICTS[judged.held], "numbers": judged.numbers}
            for judged in run.judged
        ],
    }  # fmt: skip


def csv_text(run: StudyRun) -> str:
    """One line per case, numbers in full precision."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_record(run, finding) for finding in run.findings)
    return text.getvalue()


def markdown(run: StudyRun, pictures: Mapping[str, str]) -> str:
    """The report: limits, tables, pictures (file name -> title), conclusions."""
    lines = [f"# Study of {run.study.job}", "",
             f"After {run.study.course}; its figures stand in the columns *course*.", "",
             f"{_environment(run)}.", "", f"Limits measured in the same run: {_limits(run)}."]  # fmt: skip
    for table, rows in tables(run).items():
        header, *cells = ([_escaped(cell) for cell in row] for row in rows)
        # Words left-aligned, numbers right-aligned.
        rule = ["---" if name in LEFT else "--:" for name in header]
        lines += ["", f"## {table}", "", *(f"| {' | '.join(row)} |" for row in (header, rule, *cells))]
    for table, facts in _further(run).items():
        header, *cells = ([_escaped(cell) for cell in row] for row in facts)
        lines += ["", f"## {table}", "", *(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *cells))]
    for name, title in pictures.items():
        lines += ["", f"![{title}]({name})"]
    if run.judged:
        lines += ["", "## What the course concludes", ""]
        lines += [f"- **{VERDICTS[judged.held]}**: {_escaped(_sentence(judged))}" for judged in run.judged]
    return "\n".join(lines) + "\n"


def summary(run: StudyRun) -> list[str]:
    """Lines for the terminal."""
    lines = [f"{run.study.job}, after {run.study.course}", _environment(run), f"limits: {_limits(run)}"]
    for table, rows in tables(run).items():
        lines += ["", table, *aligned(rows)]
    for table, facts in _further(run).items():
        lines += ["", table, *aligned(facts)]
    if run.profile:
        lines.append(by_nsys(run.study.job))
    if run.judged:
        lines += ["", "what the course concludes"]
        lines += [f"{VERDICTS[judged.held]:<10}  {_sentence(judged)}" for judged in run.judged]
    return lines


PROFILE = "One run of each variant, as nvprof shows it"
LEFT = ("type", "name", "variant", "parameters", "size", "dtype", "check", "note")


def tables(run: StudyRun) -> dict[str, list[list[str]]]:
    """Header and rows of every table, without empty columns."""
    rows_of: dict[str, list[list[str]]] = {}
    unit = run.study.unit
    warm = {finding.row.case.table for finding in run.findings if finding.row.case.timing != COLD}
    for finding in run.findings:
        row = finding.row
        case = row.case
        related = run.study.related.get(case.table)
        header = ["variant", "parameters", "size", "dtype", "timed", "ms", unit, "of limit",
                  f"of {sizes_text(related or ())}", "to device, ms", "to host, ms", "kernel's share", "check",
                  "course, ms", "course / ours", "course to device, ms", "course to host, ms", "note"]  # fmt: skip
        there, back = case.course_transfers_ms or (None, None)
        rows_of.setdefault(case.table, [header]).append([
            case.variant, parameters_text(case), sizes_text(case.sizes), case.dtype,
            case.timing if case.table in warm else "", _ms(run, finding), _number(row.rate, 3), _share(finding),
            _number(_related(run, finding), 3), _number(row.to_device_ms), _number(row.to_host_ms),
            _percent(row.kernel_share), finding.status, _number(case.course_ms), _number(_ratio(finding), 3),
            _number(there), _number(back), row.note,
        ])  # fmt: skip
    return {table: _without_empty_columns(rows) for table, rows in rows_of.items()}


def _further(run: StudyRun) -> dict[str, Sequence[Sequence[str]]]:
    """Tables that are not of cases: what was derived, and the profile."""
    return dict(run.study.derived) | ({PROFILE: profile_table(run.profile)} if run.profile else {})


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as text in aligned columns: words and row labels to the left, numbers to the right."""
    header = rows[0]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return [
        "  ".join(
            f"{cell:<{width}}" if i == 0 or header[i] in LEFT else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def parameters_text(case: Case) -> str:
    """Launch parameters of a case in one cell."""
    return " ".join(f"{name}={value}" for name, value in case.parameters.items())


def sizes_text(sizes: tuple[int, ...]) -> str:
    """Sizes of a case in one cell."""
    return "×".join(map(str, sizes))


def _record(run: StudyRun, finding: Finding) -> dict[str, Any]:
    row, case = finding.row, finding.row.case
    values = (
        case.table, case.variant, parameters_text(case), "x".join(map(str, case.sizes)), case.dtype, case.timing,
        finding.status, row.verified, run.study.variants[case.variant].broken or "", row.ms, row.rate, run.study.unit,
        row.share, finding.limit, row.to_device_ms, row.to_host_ms, row.kernel_share, _related(run, finding),
        case.course_ms, _ratio(finding), *(case.course_transfers_ms or (None, None)), row.note,
    )  # fmt: skip
    return dict(zip(CSV_COLUMNS, values, strict=True))


def _ratio(finding: Finding) -> float | None:
    """How many times as long the course took."""
    row = finding.row
    return row.case.course_ms / row.ms if row.case.course_ms and row.ms else None


def _related(run: StudyRun, finding: Finding) -> float | None:
    """Rate of a row over that of the same variant at the sizes that its table is related to."""
    case, sizes = finding.row.case, run.study.related.get(finding.row.case.table)
    for other in run.findings:
        same = (other.row.case.table, other.row.case.variant) == (case.table, case.variant)
        if same and other.row.case.sizes == sizes and other.row.rate and finding.row.rate:
            return finding.row.rate / other.row.rate
    return None


def _ms(run: StudyRun, finding: Finding) -> str:
    """The time; that of a broken variant with a mark, because nobody may quote it alone."""
    text = _number(finding.row.ms)
    return f"{text} (wrong)" if text and run.study.variants[finding.row.case.variant].broken else text


def _share(finding: Finding) -> str:
    text = _percent(finding.row.share)
    return f"{text} of {finding.limit}" if text else ""


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{_number(100 * share, 3) if share >= 1e-4 else '< 0.01'} %"


def _without_empty_columns(rows: list[list[str]]) -> list[list[str]]:
    filled = [i for i in range(len(rows[0])) if any(row[i] for row in rows[1:])]
    return [[row[i] for i in filled] for row in rows]


def _environment(run: StudyRun) -> str:
    environment = run.environment
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("versions", {}).items())
    driver = f"driver {environment['driver']}" if environment.get("driver") else ""
    cpu = f"CPU {environment['cpu']}" if driver and any(finding.limit == HOST for finding in run.findings) else ""
    return ", ".join(filter(None, (environment.get("device"), driver, cpu, versions, environment.get("date"))))


def _limits(run: StudyRun) -> str:
    return ", ".join(f"{name} {rate:.0f} {UNITS[name]}" for name, rate in run.limits.items()) or "none was needed"


def _sentence(judged: Judged) -> str:
    claim = f"{judged.claim} [{judged.place}]" if judged.place != OURS else f"Ours: {judged.claim}"
    return f"{claim} ({judged.numbers})" if judged.numbers else claim


def _number(value: float | None, digits: int = 4) -> str:
    """A number for people to read: no exponent for rates in the thousands."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def _plain(value: Any) -> Any:
    """A launch parameter as a type that JSON supports."""
    return value.item() if hasattr(value, "item") else value


def _escaped(cell: str) -> str:
    """Text escaped so that Markdown shows it unchanged."""
    for plain, written in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("*", "\\*")):
        cell = cell.replace(plain, written)
    return cell
