"""Every benchmark runs, with tiny sizes; that their results agree is asserted, speed never."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks import __main__ as command
from tests.benchmarks import array_file, entries, growth
from tests.benchmarks.common import machine_name
from tests.benchmarks.entries import ENTRIES


def marks(name: str) -> list[Any]:
    """Benchmarks for GPUs run only there: most of what they measure is CuPy's own."""
    on_gpu = [pytest.mark.gpu, pytest.mark.hardware] if ENTRIES[name].needs.startswith("gpu") else []
    tool = ENTRIES[name].tool
    missing = [pytest.mark.skipif(not which(tool), reason=f"needs {tool}")] if tool else []
    return [pytest.mark.timeout(600), *on_gpu, *missing]


def verified(figures: Any) -> bool:
    """Whether every number that a benchmark compared was right."""
    if isinstance(figures, dict):
        told = [figures.get(key, True) for key in ("verified", "identical", "agrees")]
        return all(told) and all(map(verified, figures.values()))
    return all(map(verified, figures)) if isinstance(figures, list) else True


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in ENTRIES if name != "on_gpu"])
def test_runs(name: str, tmp_path: Path) -> None:
    assert command.main([str(tmp_path), "--only", name, "--tiny"]) == 0
    (path,) = tmp_path.iterdir()
    assert path.name == f"{name}_{entries.machine(name)}.json"
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert figures["environment"]["date"] and len(figures) > 1
    assert verified(figures)


def test_one_that_fails_does_not_keep_others_from_running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = []

    def run(words: list[str]) -> Any:
        ran.append(words[words.index("--only") + 1])
        return type("Done", (), {"returncode": len(ran) == 1})

    monkeypatch.setattr("subprocess.run", run)
    assert command.main([str(tmp_path), "--only", "waiting", "command", "growth"]) == 1
    assert ran == ["waiting", "command", "growth"]


def test_job_that_writes_is_set_beside_reading_and_filling() -> None:
    assert array_file.beside({"bytes read": 8e9, "bytes written": 6e9}, 4.0, 3.0) == 4.0


@pytest.mark.parametrize(
    ("full", "name"),
    [("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA GeForce RTX 4090", "4090"), ("X", "X")],
)
def test_names_of_machines(full: str, name: str) -> None:
    gpu: Any = type("Gpu", (), {"name": full})
    assert machine_name([gpu], True) == machine_name([gpu] * 4, True) == name
    assert machine_name([gpu] * 4, False) == f"4x{name}"
    assert machine_name([], False).endswith("cores")


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(0, ["CPU"]), (1, ["1 GPU", "default"]), (2, ["1 GPU", "2 GPU", "default"]),
     (8, ["1 GPU", "2 GPU", "4 GPU", "default"])],
)  # fmt: skip
def test_growth_is_measured_on_numbers_of_gpus_and_by_default(
    gpus: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "find_devices", lambda: SimpleNamespace(usable=gpus))
    assert [*growth.places()] == expected
    for place, options in growth.places().items():
        number = "CPU" if place == "CPU" else "by default" if place == "default" else place.split()[0]
        assert options == {"CPU": ["--device", "cpu"], "by default": []}.get(number, ["--gpus", number])


@pytest.mark.parametrize(("first", "turns"), [(3.0, 3), (growth.TURN_SECONDS, 1)])
def test_growth_takes_the_fastest_of_several_turns_unless_they_are_long(
    first: float, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"a": iter([first, 2.0, 4.0]), "b": iter([1.0, 5.0, 0.5])}
    monkeypatch.setattr(growth, "places", lambda: {place: [place] for place in seconds})
    monkeypatch.setattr(growth, "one_run", lambda options, *_: {"seconds": next(seconds[options[0]])})
    rows = {row["where"]: row["seconds"] for row in growth.rows("data.bin", 2**20, {})}
    assert rows == ({"a": 2.0, "b": 0.5} if turns == 3 else {"a": first, "b": 1.0})
    assert len([*seconds["a"]]) == 3 - turns


def test_growth_is_drawn(tmp_path: Path) -> None:
    runs = [{"where": where, "samples": 2**n, "seconds": n, "peak bytes": 1e8} for where in ("CPU", "1 GPU")
            for n in (20, 22)]  # fmt: skip
    (tmp_path / "growth_X.json").write_text(json.dumps({"environment": {"cores": 2}, "runs": runs}))
    assert growth.draw(tmp_path).read_bytes().startswith(b"\x89PNG")
