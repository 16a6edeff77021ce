"""The `study` command: exit status, one line per error, output on stdout and stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.cli import study as commands
from pipeline.gpu.devices import Devices
from pipeline.study import device
from tests.cases.toy_study import WHOLE, DeviceLost, FakeDevice, case, toy
from workflows.study.study import Study


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(device, "open_device", lambda study, cases: FakeDevice())
    known = {"toy": WHOLE, "wrong": toy(case("double"), case("wrong")), "lucky": toy(case("lucky"))}
    monkeypatch.setattr(commands, "STUDIES", known)
    return tmp_path


def study(*words: str) -> Result:
    return CliRunner().invoke(commands.study, words)


def test_summary_and_files(folder: Path) -> None:
    result = study("toy")
    assert result.exit_code == 0  # refused and caught cases are no failures
    assert result.stdout.startswith("toy, after A. Author") and "not judged" in result.stdout
    assert "One run of each variant, as nvprof shows it\n" in result.stdout and "[copy host to device]" in result.stdout
    assert "wrote study-toy/toy.md, study-toy/toy.csv, study-toy/toy.json, study-toy/toy-1.png" in result.stderr
    assert (folder / "study-toy" / "toy.md").is_file()


def test_one_json_object() -> None:
    result = study("toy", "--json", "--quick", "-o", "elsewhere/here")
    document = json.loads(result.stdout)
    assert result.exit_code == 0 and [row["variant"] for row in document["rows"]] == ["double", "twice", "racy"]
    assert json.loads(Path("elsewhere/here/toy.json").read_text()) == document


def test_a_profile_that_fails_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: FakeDevice) -> None:
        raise DeviceLost("illegal address")

    monkeypatch.setattr(FakeDevice, "tracer", fail)
    result = study("toy")
    assert result.exit_code == 0 and "no profile: illegal address\n" in result.stderr
    assert json.loads(Path("study-toy/toy.json").read_text())["profile"] == []


def test_variants() -> None:
    result = study("toy", "--json", "--variant", "twice", "--variant", "racy")
    assert [row["variant"] for row in json.loads(result.stdout)["rows"]] == ["twice", "racy"]


@pytest.mark.parametrize(
    ("job", "line"),
    [("wrong", "1 of 2 cases failed verification, the first is wrong 100 int32: WRONG, 1 of 100 differ"),
     ("lucky", "1 of 1 cases failed verification, the first is lucky 100 int32: NOT CAUGHT, agreed")],
)  # fmt: skip
def test_failed_verification(job: str, line: str) -> None:
    result = study(job)
    assert result.exit_code == 3
    assert result.stderr.splitlines()[-1].startswith(f"error: {line}")
    assert Path(f"study-{job}/toy.md").is_file()  # failures are reported


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nothing"], "error: expected a job, one of toy, wrong, lucky, got 'nothing'"),
        (
            ["toy", "--variant", "x"],
            "error: expected a variant, one of double, twice, wrong, racy, lucky, lost, cpu, cpu_wrong, got x",
        ),
        (["toy", "-o", "file"], "error: file: expected a folder for the reports, got File exists; choose another"),
        (["wrong", "--quick"], "error: the study of toy has no such case of any; leave out --quick"),
    ],
)  # fmt: skip
def test_usage(words: list[str], line: str, folder: Path) -> None:
    (folder / "file").touch()
    result = study(*words)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line + "\n")


def test_without_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    known: dict[str, Study] = {"toy": WHOLE}
    monkeypatch.setattr(commands, "STUDIES", known)
    nothing = Devices((), None, None, "no NVIDIA driver is loaded")
    monkeypatch.setattr(device, "find_devices", lambda: nothing)
    result = study("toy")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: a study needs an NVIDIA GPU, its driver and CuPy, here no NVIDIA driver is loaded; "
        "run `inspect` or the baselines (--variant cpu_numpy), which need none of them\n"
    )
    assert not any(folder.iterdir())


def test_commands_are_ready_for_the_command_line() -> None:
    assert [command.name for command in commands.COMMANDS] == ["study", "inspect"]
    for command in commands.COMMANDS:
        assert CliRunner().invoke(command, ["--help"]).exit_code == 0
