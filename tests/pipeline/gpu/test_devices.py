"""The choice of GPUs, with a fake driver of four GPUs, and packages that are installed or missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipeline.gpu.devices import Devices, find_devices

UUIDS = ("GPU-a1f0", "GPU-a2f0", "GPU-b300", "GPU-b301")


class Nvml(ModuleType):
    """The part of pynvml that is used."""

    class NVMLError(Exception):
        pass

    class NVMLError_LibraryNotFound(NVMLError):
        pass

    class NVMLError_DriverNotLoaded(NVMLError):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    class NVMLError_NotFound(NVMLError):
        pass

    NVML_DEVICE_MIG_ENABLE = 1

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.uuids: tuple[str, ...] = UUIDS
        self.mig: dict[int, tuple[str | None, ...]] = {}  # MIG instances by GPU in that mode; None for no instance
        self.failing: dict[str, Exception] = {}
        self.open = 0

    def _may_fail(self, call: str) -> None:
        if call in self.failing:
            raise self.failing[call]

    def nvmlInit(self) -> None:
        self._may_fail("init")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self._may_fail("handle")
        return index

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        if handle % 2 and handle not in self.mig:
            raise self.NVMLError_NotSupported
        return [int(handle in self.mig), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return len(self.mig[handle])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> str:
        uuid = self.mig[handle][index]
        if uuid is None:
            raise self.NVMLError_NotFound
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: int | str) -> Any:
        size = handle if isinstance(handle, int) else -500
        return SimpleNamespace(total=1000 + size, free=900 + size)

    def nvmlDeviceGetName(self, handle: int | str) -> str:
        return f"planted {handle}" if isinstance(handle, int) else "planted MIG 1g"

    def nvmlDeviceGetUUID(self, handle: int | str) -> str:
        return self.uuids[handle] if isinstance(handle, int) else handle

    def nvmlSystemGetDriverVersion(self) -> str:
        return "999.1"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    planted = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", planted)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return planted


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Version by distribution; a module is importable if a distribution starts with its name."""
    planted = {"cupy-cuda13x": "14.0.1", "kvikio-cu13": "26.10.0"}

    def version(distribution: str) -> str:
        if distribution not in planted:
            raise importlib.metadata.PackageNotFoundError(distribution)
        return planted[distribution]

    def find_spec(module: str) -> object | None:
        return object() if any(name.startswith(module) for name in planted) else None

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return planted


def indices(devices: Devices) -> list[int]:
    return [gpu.index for gpu in devices.gpus]


@pytest.mark.usefixtures("installed")
def test_everything_is_there(nvml: Nvml) -> None:
    devices = find_devices()
    assert (devices.driver, devices.cupy, devices.missing, devices.usable) == ("999.1", "14.0.1", None, 4)
    last = devices.gpus[-1]
    assert (last.index, last.name, last.uuid, last.memory, last.free) == (3, "planted 3", "GPU-b301", 1003, 903)
    assert nvml.open == 0


@pytest.mark.usefixtures("nvml", "installed")
@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,1,2,3", [0, 1, 2, 3]),
        ("3,1", [3, 1]),
        (" 2 , 0 ", [2, 0]),
        ("GPU-b301,GPU-a1f0", [3, 0]),
        ("GPU-a2,GPU-B300", [1, 2]),  # a unique prefix of the UUID, in upper or lower case
        ("GPU-b3,GPU-a1", []),  # an ambiguous prefix
        ("GPU-", []),
        ("GPU-a2,0", [1]),  # all are what the first one is
        ("0,GPU-a2,1", [0]),
        ("1,0,1", []),  # a device named twice is an error
        ("GPU-a1f0,GPU-a1", []),
        ("+1gpu,00", [1, 0]),  # only leading digits are a number
        (" GPU-a1f0", []),
        ("0,GPU-ffff,1", [0]),  # CUDA stops at the first entry that names no device
        ("1,4,0", [1]),
        ("1,-1,0", [1]),
        ("1,,0", [1]),
        ("-1", []),
        ("", []),
        ("NoDevFiles", []),
        ("MIG-a1f0", []),
    ],
)
def test_cuda_visible_devices(visible: str, expected: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    devices = find_devices()
    assert indices(devices) == expected
    assert devices.usable == len(expected)
    assert devices.missing == (None if expected else "no NVIDIA GPU is visible")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("visible", "expected"), [("", []), ("GPU", []), ("GPU-a", [0]), ("0", [0]), ("1", [])])
def test_the_only_gpu(nvml: Nvml, visible: str, expected: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The empty string is no prefix of a UUID."""
    nvml.uuids = UUIDS[:1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert indices(find_devices()) == expected


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["MIG-10", "MIG-12", "MIG-20"]),  # no whole GPU beside instances
        ("MIG-12,MIG-20", ["MIG-12", "MIG-20"]),
        ("MIG-2", ["MIG-20"]),
        ("MIG-1", []),
        ("1", ["MIG-10"]),  # a GPU in this mode is its first instance
        ("GPU-a2,MIG-12", ["MIG-10"]),  # all are what the first one is
        ("MIG-12,GPU-a1", ["MIG-12"]),
        ("0,1,2", ["MIG-10"]),
        ("MIG-12,MIG-12", []),
        ("3,0", []),  # in this mode, without an instance
        ("0,2", ["GPU-a1f0", "GPU-b300"]),
    ],
)
def test_instances_of_gpus(
    nvml: Nvml, visible: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.uuids = (*UUIDS, "GPU-c000")
    nvml.mig = {1: ("MIG-10", None, "MIG-12"), 3: (None,), 4: ("MIG-20",)}
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    devices = find_devices()
    assert [gpu.uuid for gpu in devices.gpus] == expected
    assert devices.usable == len(expected)
    for gpu in devices.gpus:
        if gpu.uuid.startswith("MIG-"):
            assert (gpu.name, gpu.memory, gpu.free) == ("planted MIG 1g", 500, 400)


@pytest.mark.usefixtures("installed")
def test_driver_without_gpus(nvml: Nvml) -> None:
    nvml.uuids = ()
    assert find_devices() == Devices((), "999.1", "14.0.1", "no NVIDIA GPU is visible")


@pytest.mark.parametrize("error", [Nvml.NVMLError_LibraryNotFound(), Nvml.NVMLError_DriverNotLoaded()])
def test_no_driver(nvml: Nvml, error: Exception) -> None:
    nvml.failing["init"] = error
    devices = find_devices()
    assert (devices.driver, devices.gpus, devices.missing) == (None, (), "no NVIDIA driver is loaded")


@pytest.mark.parametrize("call", ["init", "handle"])
def test_driver_that_fails_says_how(nvml: Nvml, call: str) -> None:
    """A lost GPU, or a driver updated meanwhile, is not "no driver"."""
    nvml.failing[call] = Nvml.NVMLError("GPU is lost")
    devices = find_devices()
    assert (devices.gpus, devices.missing, devices.usable) == ((), "the NVIDIA driver fails: GPU is lost", 0)
    assert nvml.open == 0


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize(
    ("absent", "version", "missing"),
    [
        ("cupy-cuda13x", None, "CuPy is not installed; pip install 'baru[cu13]' (or cu12)"),
        ("kvikio-cu13", "14.0.1", "kvikio is not installed; pip install 'baru[cu13]' (or cu12)"),
    ],
)
def test_missing_package_is_named(installed: dict[str, str], absent: str, version: str | None, missing: str) -> None:
    del installed[absent]
    devices = find_devices()
    assert (devices.cupy, devices.missing, devices.usable, indices(devices)) == (version, missing, 0, [0, 1, 2, 3])


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize("distribution", ["cupy-cuda12x", "cupy"])
def test_cupy_by_any_of_its_names(installed: dict[str, str], distribution: str) -> None:
    installed[distribution] = installed.pop("cupy-cuda13x")
    assert find_devices().cupy == "14.0.1"


@pytest.mark.usefixtures("nvml")
def test_cupy_of_unknown_origin(installed: dict[str, str]) -> None:
    installed["cupy-from-source"] = installed.pop("cupy-cuda13x")
    devices = find_devices()
    assert (devices.cupy, devices.missing) == ("unknown", None)


def test_this_machine_says_something() -> None:
    devices = find_devices()
    assert (devices.missing is None) == (devices.usable > 0)
