"""Counters as Nsight Compute prints them: their kernel, case and unit."""

from __future__ import annotations

import pytest

from tests.benchmarks.counters import CASES, MARK, METRICS, STALLS, UNITS, by_case, launches

BUSY, WAITING = METRICS["instructions issued, % of peak"], STALLS["waiting for barriers, warps"]
BOX = "void box<float16, double, 128, 9, 2>(const T1 *, T1 *, long long)"
# Output of ncu and of the profiled program: the table starts with the header line.
TABLE = """==WARNING== Note: Running with unmodified GPU clocks. Results may be inconsistent.
==PROF== Connected to process 1683 (/usr/bin/python3.12)
==PROF== Disconnected from process 1683
"ID","Process ID","Kernel Name","Block Size","Grid Size","Section Name","Metric Name","Metric Unit","Metric Value"
"""


def rows(number: int, kernel: str, *counters: tuple[str, str, str]) -> str:
    """A launch: one row for each name, unit and value."""
    start = f'"{number}","1683","{kernel}","(128, 1, 1)","(13108, 1, 1)","Command line profiler metrics"'
    return "".join(f'{start},"{name}","{unit}","{value}"\n' for name, unit, value in counters)


def taking(value: str, unit: str) -> tuple[str, str, str]:
    """The duration of a launch."""
    return METRICS["microseconds"], unit, value


def test_counters_of_a_launch() -> None:
    """Numbers with commas, converted to one unit each; those that ncu could not read are left out."""
    read, written = METRICS["bytes read"], METRICS["bytes written"]
    table = (
        TABLE
        + rows(0, BOX, (read, "byte", "277,080,832"), (written, "Mbyte", "244.27"), taking("147,264", "ns"))
        + rows(0, BOX, (BUSY, "%", "38.72"), (WAITING, "inst", "n/a"))
        + rows(1, BOX, taking("1.5", "ms"), (WAITING, "inst", ""))
    )
    first, second = launches(table)
    assert first[0] == second[0] == BOX
    assert first[1] == pytest.approx(
        {read: 277080832, written: 244.27e6, METRICS["microseconds"]: 147.264, BUSY: 38.72}
    )
    assert second[1] == {METRICS["microseconds"]: 1500}


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit(unit: str) -> None:
    """Times become microseconds, sizes bytes, from both spellings that versions of ncu use."""
    ((_, counters),) = launches(TABLE + rows(0, BOX, (BUSY, unit, "2")))
    scale = {"n": 1e-3, "u": 1, "ms": 1e3, "b": 1, "K": 1e3, "M": 1e6, "G": 1e9}
    assert counters[BUSY] == pytest.approx(2 * next(scale[begin] for begin in scale if unit.startswith(begin)))


def test_kernels_of_cases() -> None:
    """Each belongs to the marker before it; the longest of several launches of a kernel counts."""
    other = "void box_range<float>(const T1 *, long long)"
    launched = [(MARK, "1"), (other, "9"), (BOX, "70"), (BOX, "90"), (BOX, "80"), (MARK, "1"), (BOX, "60")]
    table = TABLE + "".join(
        rows(number, kernel, taking(value, "us"), (BUSY, "%", str(number)))
        for number, (kernel, value) in enumerate(launched)
    )
    names = list(CASES)[:2]
    busy = "instructions issued, % of peak"
    assert by_case(names, table) == {
        names[0]: {other: {"microseconds": 9, busy: 1}, BOX: {"microseconds": 90, busy: 3}},
        names[1]: {BOX: {"microseconds": 60, busy: 6}},
    }


def test_counters_have_one_name_each() -> None:
    """Rows are read back by name."""
    assert len({*METRICS.values(), *STALLS.values()}) == len(METRICS | STALLS) == len(METRICS) + len(STALLS)
