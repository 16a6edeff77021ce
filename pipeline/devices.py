"""Which GPUs this process may use, without touching CUDA."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver lists it; memory in bytes."""

    index: int
    name: str
    uuid: str
    memory: int
    free: int


@dataclass(frozen=True)
class Devices:
    """GPUs that CUDA_VISIBLE_DEVICES leaves, and what is needed to use them."""

    gpus: tuple[Gpu, ...]
    driver: str | None
    cupy: str | None
    missing: str | None

    @property
    def usable(self) -> int:
        """Number of GPUs that jobs will run on."""
        return 0 if self.missing else len(self.gpus)


def find_devices() -> Devices:
    """GPUs through NVML; an empty list where there is no driver."""
    cupy = _version("cupy", ("cupy-cuda13x", "cupy-cuda12x", "cupy"))
    driver, gpus, missing = _nvml()
    if missing is None and not gpus:
        missing = "no NVIDIA GPU is visible"
    elif missing is None and cupy is None:
        missing = "CuPy is not installed; install the extra cu12 or cu13"
    elif missing is None and importlib.util.find_spec("kvikio") is None:
        missing = "kvikio is not installed; install the extra cu12 or cu13"
    return Devices(gpus, driver, cupy, missing)


def _nvml() -> tuple[str | None, tuple[Gpu, ...], str | None]:
    """Driver, visible GPUs, and why there can be none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return None, (), "no NVIDIA driver is loaded"
    except pynvml.NVMLError as error:
        return None, (), f"the NVIDIA driver fails: {error}"
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        gpus = [_gpu(pynvml, i, handle) for i, handle in enumerate(handles)]
        return str(pynvml.nvmlSystemGetDriverVersion()), _visible(gpus), None
    except pynvml.NVMLError as error:
        return None, (), f"the NVIDIA driver fails: {error}"
    finally:
        pynvml.nvmlShutdown()


def _gpu(pynvml: Any, index: int, handle: Any) -> Gpu:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index, pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle), int(memory.total), int(memory.free)
    )


def _visible(gpus: list[Gpu]) -> tuple[Gpu, ...]:
    """What CUDA_VISIBLE_DEVICES leaves: CUDA stops at the first entry that names no device."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(gpus)
    found = []
    for entry in (entry.strip() for entry in chosen.split(",")):
        match = [gpu for gpu in gpus if entry == str(gpu.index) or (entry and gpu.uuid.startswith(entry))]
        if len(match) != 1:
            break
        found.append(match[0])
    return tuple(found)


def _version(module: str, distributions: tuple[str, ...]) -> str | None:
    """Version of an installed package, without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    if importlib.util.find_spec(module) is None:
        return None
    for distribution in distributions:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "unknown"
