"""The command `doctor`, its limits of time, the plug-in, and packages that are somebody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tomllib
import warnings
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from pipeline.doctor import checks, packages, rapids
from pipeline.doctor.check import NOTE, OK, PROBLEM, Check, Finding, examine
from pipeline.process import last_words
from tests.pipeline.cli.test_main import (
    Run,
    run,  # noqa: F401
)

ROOT = Path(__file__).parents[3]
GOOD = Check("good", lambda: Finding(OK, "there"))
SLOWER = Check("slower", lambda: Finding(NOTE, "slow", "buy more"))
BAD = Check("bad", lambda: Finding(PROBLEM, "gone", "put it back"))


def set_checks(monkeypatch: pytest.MonkeyPatch, *several: Check) -> None:
    for module in (checks, rapids):
        monkeypatch.setattr(module, "CHECKS", several)


def test_this_machine_is_looked_at(run: Run) -> None:  # noqa: F811
    """All checks answer; JSON and lines say the same."""
    status, out, _ = run("doctor", "--json")
    document = json.loads(out)
    names = [check.name for check in checks.CHECKS]
    assert [line["name"] for line in document["checks"]] == names
    assert status == (0 if document["ready"] else 1)
    for line in document["checks"]:
        assert line["text"] and "could not be looked at" not in line["text"]
        assert (line["remedy"] is None) == (line["state"] in ("ok", "skipped"))
    _, out, _ = run("doctor")
    assert [line.split()[1] for line in out.splitlines()[: len(names)]] == names


@pytest.mark.parametrize(
    ("several", "status", "last"),
    [((GOOD,), 0, "no problems"), ((GOOD, SLOWER), 0, "no problems, 1 to look at"), ((GOOD, BAD), 1, "1 problem"),
     ((BAD, SLOWER, BAD), 1, "2 problems, 1 to look at")],
)  # fmt: skip
def test_exit_status(
    several: tuple[Check, ...], status: int, last: str, run: Run, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    set_checks(monkeypatch, *several)
    got, out, err = run("doctor")
    assert (got, err, out.splitlines()[-1]) == (status, "", last)
    assert (BAD in several) == ("problem  bad" in out and "gone; put it back" in out)


def test_what_hangs_or_fails_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "_abandoned", False)
    never = threading.Event()

    def fail() -> Finding:
        raise RuntimeError("of a library\nwith details")

    hung, failed, good = examine(
        [Check("hangs", lambda: Finding(OK, str(never.wait(60))), 0.1), Check("fails", fail), GOOD]
    )
    never.set()
    assert (hung.finding.state, hung.finding.text) == (PROBLEM, "no answer within 0.1 s")
    assert last_words._abandoned  # the process does not wait for it at its end
    assert failed.finding.text == "could not be looked at: RuntimeError: of a library"
    assert good.finding.state == OK


def test_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """As rapids-cli 0.2 calls it: by its entry point, with keywords that may become more."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    check: Any = resolve_name(project["entry-points"]["rapids_doctor_check"]["baru"])
    assert check.__name__ and check.__doc__.strip()  # which it shows
    set_checks(monkeypatch, GOOD, SLOWER)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert check(verbose=True, another=1) == "good: there; slower: slow"
    assert [str(one.message) for one in caught] == ["baru: slower: slow; buy more"]
    set_checks(monkeypatch, GOOD, BAD)
    with pytest.raises(ValueError, match=r"^baru: bad: gone; put it back$"):
        check(verbose=False)


@pytest.mark.parametrize("name", ["pipeline", "kernels", "workflows"])
def test_a_package_of_somebody_else(name: str, tmp_path: Path) -> None:
    """The command says so in one line, whichever of the packages it is."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", "import baru; baru.main()"], env=environment, cwd=tmp_path, text=True,
                          capture_output=True, timeout=60)  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    place = "" if name == "pipeline" else f" in {ROOT}"  # the others are looked for beside it
    assert done.stderr == (f"error: expected the package {name} of baru{place}, got {tmp_path}/{name}/__init__.py; "
                           "give baru a virtual environment of its own\n")  # fmt: skip


def test_doctor_notices_other_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages.packages().state == OK
    monkeypatch.setattr(packages, "packages_distributions", lambda: {"pipeline": ["baru", "other-pipeline"]})
    assert packages.packages().state == PROBLEM and packages.packages().text.startswith("other-pipeline installed")
    monkeypatch.setattr("pipeline.packages.find_spec", lambda name: None)
    assert packages.packages().text.endswith("got none") and "environment of its own" in packages.packages().remedy
