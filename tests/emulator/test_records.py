"""Recorded outcomes: which units re-run, what is reported and written; on a toy kind of four units."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels.common import nvrtc
from tests.cases.cpp import CHECKS
from tests.emulator import inputs, kinds
from tests.emulator.inputs import c_code, python_code, python_texts
from tests.emulator.records import FOLDER, Records, Source, draw, load, save

CONFTEST = """
from pathlib import Path
from tests.emulator import recording

HERE = Path(__file__).parent
KIND = recording.Kind(
    "toy",
    lambda: (HERE / "compiler.txt").read_text(),
    lambda: {"source": (HERE / "source.txt").read_text()},
    lambda: [("source", name) for name in (HERE / "units.txt").read_text()],
)

def pytest_addoption(parser):
    recording.add_options(parser)

def pytest_configure(config):
    config.addinivalue_line("markers", "recorded: units")
    config.pluginmanager.register(recording.Recording(config, {"toy": KIND}, HERE))
"""
TEST = """
import pytest
from conftest import HERE, KIND

UNITS = [pytest.param(unit[1], marks=pytest.mark.recorded(KIND, [unit])) for unit in KIND.units()]

@pytest.mark.parametrize("unit", UNITS)
def test_unit(unit, due):
    value = len((HERE / "source.txt").read_text())
    assert unit != "c" or value < 9, "too much"
    due.outcomes["source", unit] = value

def test_not_recorded():
    pass
"""
Run = Callable[..., tuple[set[str], str]]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """(options) -> units that ran, and what pytest printed."""
    for name, text in (
        ("conftest.py", CONFTEST), ("test_toy.py", TEST), ("source.txt", "text"), ("compiler.txt", "gcc 1"),
        ("units.txt", "abcd"), ("pytest.ini", "[pytest]"),
    ):  # fmt: skip
        (pytester.path / name).write_text(text)

    def run(*options: str) -> tuple[set[str], str]:
        done = pytester.runpytest_inprocess("-v", "--assert=plain", "-p", "no:cacheprovider", *options)
        text = done.stdout.str()
        assert done.ret in (0, 1) and ("test_not_recorded" in text or "::" in str(options)), text
        ran = re.findall(r"test_unit\[(\w)\] (?:PASSED|FAILED)|(?:PASSED|FAILED) test_toy.py::test_unit\[(\w)\]", text)
        return {one or other for one, other in ran}, text

    return run


def test_full_run_writes_and_a_default_run_draws(run: Run, pytester: pytest.Pytester) -> None:
    ran, text = run()
    assert ran == set("abcd") and "0 matched, 0 of them re-run" in text and "; 4 without a matching record" in text
    assert not (pytester.path / "toy.json").exists()
    assert run("--full")[0] == set("abcd")
    assert load("toy", pytester.path) == Records("gcc 1", {"source": Source("text", dict.fromkeys("abcd", 4))})
    written = (pytester.path / "toy.json").read_text()
    ran, text = run("--record-seed", "5")
    drawn = {name for _, name in draw([("source", name) for name in "abcd"], "toy", 5)}
    assert ran == drawn and len(drawn) == 1
    assert "4 matched, 1 of them re-run (--record-seed 5); 0 without a matching record were run" in text
    assert text.splitlines()[-2].startswith("recorded outcomes: ")
    assert run("test_toy.py::test_unit[b]")[0] == {"b"}
    assert (pytester.path / "toy.json").read_text() == written


def test_workers_of_xdist_draw_the_same(run: Run) -> None:
    _, text = run("--full", "-n", "2")
    assert "0 matched, 0 of them re-run; 4 without a matching record were run" in text
    ran, text = run("-n", "2", "--record-share", "0.5")
    seed = re.search(r"4 matched, 2 of them re-run \(--record-seed (\d+)\); 0 without", text)
    assert seed and len(ran) == 2
    assert run("--record-share", "0.5", "--record-seed", seed[1])[0] == ran


def test_edited_record_is_found_when_it_is_drawn(run: Run, pytester: pytest.Pytester) -> None:
    """Whether an outcome was edited, or the hash of texts that fail now."""
    run("--full")
    records = load("toy", pytester.path)
    records.sources["source"].outcomes["b"] = 5
    save("toy", records, pytester.path)
    units = [("source", name) for name in "abcd"]
    seeds = {name: next(seed for seed in range(99) if draw(units, "toy", seed) == {("source", name)}) for name in "bd"}
    assert "FAILED" not in run("--record-seed", str(seeds["d"]))[1]
    _, text = run("--record-seed", str(seeds["b"]))
    assert "toy.json, source: b: recorded 5, got 4 when repeated" in text and "FAILED" in text
    assert "was the record edited?" in run("--record-share", "1")[1]

    (pytester.path / "source.txt").write_text("text that fails")
    assert "too much" in run()[1]
    records = Records("gcc 1", {"source": Source("text that fails", dict.fromkeys("abcd", 15))})
    save("toy", records, pytester.path)
    assert "too much" not in run("--record-seed", str(seeds["b"]))[1]
    assert "too much" in run("--record-share", "1")[1]


def test_failing_unit_writes_no_record_and_loses_its_own(run: Run, pytester: pytest.Pytester) -> None:
    run("--full")
    (pytester.path / "source.txt").write_text("text that fails")
    assert "FAILED" in run("--record")[1]
    assert load("toy", pytester.path).sources == {"source": Source("text that fails", dict.fromkeys("abd", 15))}
    records = Records(
        "gcc 1", {"source": Source("text that fails", dict.fromkeys("abcd", 15)), "gone": Source("x", {"a": 1})}
    )
    save("toy", records, pytester.path)
    (pytester.path / "units.txt").write_text("bcd")
    run("--full")
    assert load("toy", pytester.path).sources == {"source": Source("text that fails", dict.fromkeys("bd", 15))}


def test_record_runs_only_what_is_missing(run: Run, pytester: pytest.Pytester) -> None:
    run("--full", "-k", "[a] or [b] or not_recorded")
    assert set(load("toy", pytester.path).sources["source"].outcomes) == set("ab")
    ran, _ = run("--record", "--record-share", "0")
    assert ran == set("cd") and set(load("toy", pytester.path).sources["source"].outcomes) == set("abcd")


def test_another_compiler_re_runs_all_and_says_so(run: Run, pytester: pytest.Pytester) -> None:
    run("--full")
    (pytester.path / "compiler.txt").write_text("gcc 2")
    ran, text = run()
    assert ran == set("abcd")
    assert "toy.json was made with gcc 1, here it is gcc 2: all were re-run" in text


def test_draws_are_a_share_and_differ() -> None:
    units = [("source", str(number)) for number in range(101)]
    drawn = [draw(units, "toy", seed, 0.05) for seed in range(200)]
    assert {len(chosen) for chosen in drawn} == {6} and draw(reversed(units), "toy", 7, 0.05) == drawn[7]
    assert len(set.union(*drawn)) == 101
    assert draw(units, "toy", 1, 0) == set() and draw(units, "toy", 1, 1) == set(units)
    assert drawn[0] != draw(units, "other", 0, 0.05)


def test_comments_are_no_input() -> None:
    assert c_code('int a;  // one\n\n/* more\nlines */ "//no" // x\n') == 'int a;\n  "//no"'
    text = '"""Doc."""\nx = "#"  # one\n\ndef f() -> str:\n    """What\n    it does."""\n    return """a\n#b"""\n'
    assert python_code(text) == 'x = "#"\ndef f() -> str:\n    return """a\n#b"""'
    assert python_code(text.replace("#b", "#c")) != python_code(text) == python_code(text.replace("it does", "is"))


def test_imports_are_followed() -> None:
    names = [name for name, _ in python_texts(["tests.emulator.mutants"], ["tests.emulator.survivors"])]
    assert {"tests.emulator.mutate", "tests.emulator.device", "tests.cases.stencil", "kernels.common.nvrtc"} <= set(
        names
    )
    assert "tests.emulator.survivors" not in names and not any(name.startswith("pipeline") for name in names)


@pytest.fixture
def fresh() -> Iterator[Callable[[], None]]:
    """Clear the caches of source texts."""
    functions = [inputs.cuda_texts, inputs._module, kinds._of_cases, kinds._emulator]

    def forget() -> None:
        for function in functions:
            function.cache_clear()

    forget()
    yield forget
    forget()


def test_change_of_a_kernel_concerns_its_family(fresh: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed comment re-runs nothing, a changed common header everything."""
    before = {name: dict(kind.inputs()) for name, kind in kinds.KINDS.items() if kind is not kinds.CXX}
    closure = nvrtc.include_closure

    def changed(header: str, line: bytes) -> dict[str, set[str]]:
        monkeypatch.setattr(nvrtc, "include_closure", lambda source: {
            name: text + line if name == header else text for name, text in closure(source).items()
        })  # fmt: skip
        fresh()
        after = {name: kinds.KINDS[name].inputs() for name in before}
        return {name: {stem for stem in before[name] if before[name][stem] != after[name][stem]} for name in before}

    assert changed("stencil/box.cuh", b"\nint more;") == {name: {"stencil/gpu"} for name in before}
    assert changed("stencil/box.cuh", b"\n// more\n") == {name: set() for name in before}
    for stems in changed("common/stream.cuh", b"\nint more;").values():
        assert {"histogram/gpu", "reduce/gpu", "study/roofline"} <= stems


@pytest.mark.parametrize("check", CHECKS)
def test_checks_of_the_cpu_concern_their_sources(check: str) -> None:
    """A module that a check imports has C++ beside it, by whatever ways it is called."""
    modules = [name for name, _ in python_texts(kinds.modules_of(CHECKS[check]), kinds.KEEPING)]
    assert any((path := inputs.path_of(name)) and path.with_suffix(".cpp").is_file() for name in modules)


def test_records_are_as_written(tmp_path: Path) -> None:
    """Sorted and with one unit a line, so that a change shows in few lines; each file belongs to a kind."""
    for path in sorted(FOLDER.glob("*")):
        assert path.suffix == ".json" and path.stem in kinds.KINDS, path
        save(path.stem, load(path.stem, FOLDER), tmp_path)
        assert (tmp_path / path.name).read_text() == path.read_text()
