"""The command `devices`: what is listed with GPUs and without."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pipeline.cli import devices as commands
from pipeline.gpu.devices import Devices, Gpu

GPUS = (Gpu(0, "NVIDIA X", "GPU-1", 2**37, 2**36), Gpu(1, "NVIDIA X", "GPU-2", 2**37, 2**36))


def run(monkeypatch: pytest.MonkeyPatch, known: Devices, *words: str) -> str:
    monkeypatch.setattr(commands, "find_devices", lambda: known)
    result = CliRunner().invoke(commands.devices, words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    out = run(monkeypatch, Devices((), None, None, "no NVIDIA driver is loaded"))
    assert out.startswith("Jobs will run on the CPU: no NVIDIA driver is loaded. The results are the same.\n")
    assert "Tesla C2050" in out


def test_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Devices(GPUS, "580.1", "14.0.0", None)
    lines = run(monkeypatch, known).splitlines()
    assert lines[0] == "GPU 0  NVIDIA X  64.0 of 128.0 GiB free  GPU-1" and lines[2] == "driver 580.1, CuPy 14.0.0"
    (names,) = (line for line in lines if "Tesla C2050" in line)
    assert names.count("NVIDIA X") == 1  # equal GPUs share a column
    assert lines[-1].startswith("GPU 0 to GPU 1: ")
    document = json.loads(run(monkeypatch, known, "--json"))
    assert [gpu["index"] for gpu in document["gpus"]] == [0, 1] and document["links"][0]["gpus"] == [0, 1]
    assert document["gpus"][0]["memory_bytes"] == 2**37 and document["courses"][0]["compute_capability"] == "2.0"
