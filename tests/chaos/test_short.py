"""Every harness in its short form: nothing of what it must show is violated."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import __main__ as command
from tests.chaos.tools import harness
from tests.chaos.tools.harness import HARNESSES, MissingError, perform

SEED = 1


@pytest.mark.parametrize("name", HARNESSES)
def test_nothing_goes_wrong(name: str) -> None:
    try:
        figures = perform(name, SEED, import_module(f"tests.chaos.{name}").SHORT)
    except MissingError as error:
        pytest.skip(str(error))
    assert figures["failures"] == []


class _Toy:
    @staticmethod
    def run(seed: int, trials: int) -> dict[str, Any]:
        if trials == 7:
            raise MissingError("needs luck")
        return {"failures": ["one"] * (trials == 13), "drawn": seed + trials}


@pytest.mark.parametrize(("trials", "status"), [(7, 2), (13, 1), (300, 0)])
def test_command(
    trials: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it prints and writes, with its exit status."""
    monkeypatch.setattr(harness, "import_module", lambda name: _Toy)
    monkeypatch.setattr(command, "HARNESSES", ("toy",))
    assert command.main(["toy", "--seed", "4", "--trials", str(trials), "-o", str(tmp_path)]) == status
    out, err = capsys.readouterr()
    if status == 2:
        assert (out, err, list(tmp_path.iterdir())) == ("", "toy: needs luck\n", [])
        return
    (path,) = tmp_path.iterdir()
    figures = json.loads(path.read_text())
    assert path.name.startswith("chaos_toy_") and json.loads(out) == figures
    assert (figures["harness"], figures["seed"], figures["trials"]) == ("toy", 4, trials)
    assert (figures["drawn"], figures["failures"]) == (4 + trials, ["one"] * status)
    assert figures.get("rate of failures below") == (None if status else 0.01)
    assert command.main(["toy", "--trials", str(trials)]) == status and len(list(tmp_path.iterdir())) == 1
