"""Checks of GPUs with a fake driver, of which one thing at a time is broken."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.doctor import gpus, host
from pipeline.doctor.check import NOTE, OK, PROBLEM, SKIPPED, Finding
from tests.pipeline.gpu.test_devices import Nvml


class Driver(Nvml):
    """A driver that says what the checks ask for besides."""

    cuda, capability = 13000, (9, 0)

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return self.cuda

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return self.capability

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return "NVIDIA H200"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """One GPU, with a driver, CuPy for CUDA 13 and kvikio, that all work."""
    fake = Driver()
    fake.uuids = ("GPU-a1f0",)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setitem(sys.modules, "cupy", module := ModuleType("cupy"))
    vars(module)["arange"] = np.arange
    monkeypatch.setattr(host, "ROOT", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    having(monkeypatch, "cupy-cuda13x")
    monkeypatch.setattr("pipeline.gpu.transfer.transfer_path", lambda: "through pinned memory")
    return fake


def having(monkeypatch: pytest.MonkeyPatch, *distributions: str, modules: tuple[str, ...] = ("cupy", "kvikio")) -> None:
    """These distributions and modules are installed."""

    def version(name: str) -> str:
        if name in distributions:
            return "14.0"
        raise importlib.metadata.PackageNotFoundError(name)

    def find(name: str, package: str | None = None) -> Any:
        return SimpleNamespace(name=name) if name in modules else None

    for module in (importlib.metadata, gpus):
        monkeypatch.setattr(module, "version", version)
    monkeypatch.setattr(importlib.util, "find_spec", find)
    monkeypatch.setattr(gpus, "find_spec", find)


CHECKS = (gpus.driver, gpus.nvml, gpus.cuda, gpus.cupy, gpus.kvikio, gpus.mig)


def found() -> dict[str, Finding]:
    return {check.__name__: check() for check in CHECKS}


def states() -> dict[str, str]:
    """Of those that are not ok."""
    return {name: finding.state for name, finding in found().items() if finding.state != OK}


def test_all_is_well(driver: Driver) -> None:
    assert states() == {}
    assert found()["cuda"].text == "CUDA 13.0 by the driver; compute capability: NVIDIA H200 9.0"
    assert found()["kvikio"].text == "files are read through pinned memory"
    assert driver.open == 0  # as often shut down as initialized


def test_no_driver(driver: Driver, tmp_path: Path) -> None:
    """Without a GPU on the bus none is missed; with one, the driver is."""
    driver.failing["init"] = driver.NVMLError_LibraryNotFound()
    assert states() == {}
    device = tmp_path / "sys/bus/pci/devices/0000:41:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    assert states() == {"driver": PROBLEM, **dict.fromkeys(("nvml", "cuda", "cupy", "kvikio", "mig"), SKIPPED)}
    assert "for 1 NVIDIA GPU" in found()["driver"].text


def test_a_driver_that_fails(driver: Driver) -> None:
    driver.failing["init"] = driver.NVMLError("Driver/library version mismatch")
    assert found()["driver"].text == "the NVIDIA driver fails: Driver/library version mismatch"
    assert "restart the machine" in found()["driver"].remedy and states()["mig"] == SKIPPED


def test_no_gpu_is_visible(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert states() == {"nvml": PROBLEM, "cuda": SKIPPED, "cupy": SKIPPED, "kvikio": SKIPPED}
    assert "CUDA_VISIBLE_DEVICES" in found()["nvml"].remedy


def test_an_old_driver(driver: Driver) -> None:
    driver.cuda = 12080
    assert states() == {"cuda": PROBLEM}
    assert found()["cuda"].text == "CUDA 12.8 by the driver, but CuPy is that of CUDA 13"
    assert "baru[cu12]" in found()["cuda"].remedy


@pytest.mark.parametrize(("capability", "state"), [((7, 0), PROBLEM), ((8, 9), NOTE), ((12, 0), NOTE)])
def test_other_gpus(driver: Driver, capability: tuple[int, int], state: str) -> None:
    driver.capability = capability
    assert states() == {"cuda": state}


def test_no_cupy(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, modules=("kvikio",))
    assert states() == {"cupy": PROBLEM} and "baru[cu13]" in found()["cupy"].remedy


def test_two_cupys(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, "cupy-cuda12x", "cupy-cuda13x")
    assert states() == {"cupy": PROBLEM} and "pip uninstall cupy-cuda12x cupy-cuda13x" in found()["cupy"].remedy


def test_a_gpu_that_computes_wrong(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["cupy"], "arange", lambda number: np.arange(number) + 1)
    assert states() == {"cupy": PROBLEM} and "not 523776" in found()["cupy"].text


def test_no_kvikio(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, "cupy-cuda13x", modules=("cupy",))
    assert states() == {"kvikio": PROBLEM}


def test_mig(driver: Driver) -> None:
    driver.mig = {0: ("MIG-1", None)}
    assert found()["mig"].text == "1 instances" or found()["mig"].text == "1 instance"
    driver.mig = {0: (None, None)}
    finding = found()["mig"]
    assert (finding.state, finding.text) == (PROBLEM, "GPU 0 in MIG mode without an instance")
    assert "nvidia-smi mig -cgi" in finding.remedy
