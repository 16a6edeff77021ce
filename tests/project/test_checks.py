"""What checks shares nothing with what it checks: no header, no function, no table."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernels.common.nvrtc import include_closure
from tests.project.test_imports import KERNELS, MODULES, imports_of, parsed
from workflows import WORKFLOWS
from workflows.aggregation import Aggregation


@dataclass(frozen=True)
class Pair:
    """Modules and sources of one job.

    Attributes
    ----------
    computes, checks
        Modules, and sources, below `kernels/`.
    shared
        By name, modules that both may import: what a job is, not how it is done.
    """

    computes: tuple[str, ...]
    checks: tuple[str, ...]
    shared: dict[str, str]


CACHED = {
    "kernels.common.cache": "where compiled code is kept",
    "kernels.common.private": "a folder that others cannot write to",
    "kernels.common.messages": "what it tells the user",
    "kernels.common.seconds": "how long compiling took",
}
COMMON = {
    **CACHED,
    "kernels.common.cxx": "compiles, and knows of no job",
}
RUNS = {"kernels.common.row_places": "where rows are in an array"}
PAIRS = {
    "histogram": Pair(
        ("histogram.cpu", "histogram.gpu", "histogram.launch", "histogram.finite_range"),
        ("histogram.check", "histogram.check_range"),
        {**COMMON, **RUNS},
    ),
    "reduce": Pair(
        ("reduce.cpu", "reduce.gpu", "reduce.cpu_powers", "reduce.gpu_powers", "reduce.cpu_rows"),
        ("reduce.check", "reduce.check_powers", "reduce.check_rows"),
        {
            **COMMON,
            "kernels.reduce.lines": "the layout of partials of many rows, and how they are combined",
            "kernels.reduce.partial": "the layout of a partial, and how partials are combined",
            "kernels.reduce.powers": "the layout of sums of powers, and how they are combined",
            "kernels.reduce.exact_sum": "widths and units of the sums in a partial, and its words as integers",
        },
    ),
    "quantile": Pair(
        ("quantile.cpu", "quantile.gpu", "quantile.rows"),
        ("quantile.check", "quantile.check_gathered"),
        {**COMMON, **RUNS},
    ),
    "digest": Pair(
        ("digest.cpu", "digest.gpu"),
        ("digest.check",),
        {**COMMON, "kernels.digest.partial": "the layout of a partial, and samples as little-endian bytes"},
    ),
    "map": Pair(("map.cpu", "map.gpu"), ("map.check",), CACHED),
    "transpose": Pair(
        ("transpose.cpu", "transpose.gpu"),
        ("transpose.check",),
        {
            **COMMON,
            "kernels.transpose.cpu": "`balanced` and `boxes`, which cut arrays; the check counts what it compared",
        },
    ),
    "stencil": Pair(("stencil.cpu", "stencil.cpu_exact", "stencil.gpu"), ("stencil.check",), COMMON),
    "matmul": Pair(
        (
            "matmul.cpu",
            "matmul.cpu_direct",
            "matmul.cpu_dots",
            "matmul.cpu_narrow",
            "matmul.gpu",
            "matmul.small",
            "matmul.small_k",
            "matmul.library",
        ),
        (
            "matmul.check_each",
            "matmul.check_floats",
            "matmul.check_library",
            "matmul.check_sums",
            "matmul.check_integers",
        ),
        {
            **COMMON,
            "kernels.matmul.formats": "formats, and the number of bits that the definition keeps",
            "kernels.common.constants": "reads these numbers",
            "kernels.common.row_tiles": "gives parts of the work to threads, and knows nothing of it",
            "kernels.common.once": "makes those threads once in a process",
        },
    ),
}
# Of modules that both import, the names that a check, and the modules that it imports, may use.
NAMES = {
    "kernels.histogram.binning": {"Edges"},
    "kernels.histogram.finite_range": {"finite_range_reference"},
    "kernels.transpose.cpu": {"balanced", "boxes"},
}


# What prepares samples for a job: what computes, what checks, and what both may import.
PREPARES = {
    "calibrate": (
        ("calibrate.apply",), ("calibrate.check",), {"kernels.calibrate.calibration": "what a calibration is"},
    ),
    "select": (
        ("select.mask", "select.gpu"), ("select.check",),
        {**CACHED, "kernels.select.tree": "what a condition is", "kernels.select.typed": "the dtypes of its parts"},
    ),
    "rows": (("transpose.cpu", "histogram.gpu"), ("common.turns_check",), COMMON),
}  # fmt: skip


def closure(names: tuple[str, ...]) -> set[str]:
    """Modules of this project that these import, directly or through others, and they themselves."""
    seen: set[str] = set()
    waiting = [f"kernels.{name}" for name in names]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += imports_of(module)
    return {name for name in seen if MODULES[name].name != "__init__.py"}


def sources(names: tuple[str, ...]) -> dict[Path, set[str]]:
    """C++ and CUDA sources that lie beside modules under the same name, with all that each includes."""
    paths = [KERNELS.joinpath(*name.split(".")).with_suffix(suffix) for name in names for suffix in (".cpp", ".cu")]
    return {path: set(include_closure(path)) - {path.name} for path in paths if path.is_file()}


def test_every_job_has_a_pair() -> None:
    assert set(PAIRS) == set(WORKFLOWS)
    assert all(job.check is not None for job in WORKFLOWS.values() if isinstance(job, Aggregation))


@pytest.mark.parametrize("job", PAIRS)
def test_no_header_is_included_by_both(job: str) -> None:
    pair = PAIRS[job]
    computes, checks = sources(pair.computes), sources(pair.checks)
    assert computes and not computes.keys() & checks.keys()
    assert checks
    both = set().union(*computes.values()) & set().union(*checks.values())
    assert both == set()


@pytest.mark.parametrize("job", PAIRS)
def test_no_module_is_imported_by_both(job: str) -> None:
    """But those that say what is computed; and each of those is."""
    pair = PAIRS[job]
    assert closure(pair.computes) & closure(pair.checks) == set(pair.shared)


@pytest.mark.parametrize("job", PAIRS)
def test_of_what_computes_only_definitions_are_imported(job: str) -> None:
    """By a check and everything that it imports."""
    for module in closure(PAIRS[job].checks):
        for node in ast.walk(parsed(MODULES[module])):
            if isinstance(node, ast.ImportFrom) and node.module in NAMES:
                assert {alias.name for alias in node.names} <= NAMES[node.module], module
            elif isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & NAMES.keys(), module


@pytest.mark.parametrize("family", PREPARES)
def test_what_prepares_samples_is_checked_by_others(family: str) -> None:
    computes, checks, shared = PREPARES[family]
    assert closure(computes) & closure(checks) == set(shared)
    one, other = (set().union(*sources(names).values()) for names in (computes, checks))
    assert sources(checks) and not one & other


def test_shared_headers_and_modules_are_found() -> None:
    """`cpu.cpp` is held against itself: everything is shared."""
    pair = PAIRS["reduce"]
    assert set().union(*sources(("reduce.cpu",)).values()) >= {"cpu_partial.hpp", "cpu_lanes.hpp"}
    assert set().union(*sources(("reduce.gpu",)).values()) >= {"reduce/tile.cuh"}
    assert {"kernels.reduce.cpu", "kernels.reduce.partial"} <= closure(pair.computes)
