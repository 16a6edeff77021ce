"""Which GPUs this process may use, without touching CUDA."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a MIG instance of one, as the driver lists it; memory in bytes."""

    index: int
    name: str
    uuid: str
    memory: int
    free: int


_Named = tuple[tuple[str, ...], Gpu]  # a GPU and the names that select it


@dataclass(frozen=True)
class Devices:
    """GPUs visible under CUDA_VISIBLE_DEVICES, and what is needed to use them."""

    gpus: tuple[Gpu, ...]
    driver: str | None
    cupy: str | None
    missing: str | None

    @property
    def usable(self) -> int:
        """Number of GPUs that jobs will run on."""
        return 0 if self.missing else len(self.gpus)


def find_devices() -> Devices:
    """GPUs through NVML; none if there is no driver."""
    cupy = _version("cupy", ("cupy-cuda13x", "cupy-cuda12x", "cupy"))
    driver, gpus, missing = _nvml()
    if missing is None and not gpus:
        missing = "no NVIDIA GPU is visible"
    elif missing is None and cupy is None:
        missing = "CuPy is not installed; pip install 'baru[cu13]' (or cu12)"
    elif missing is None and importlib.util.find_spec("kvikio") is None:
        missing = "kvikio is not installed; pip install 'baru[cu13]' (or cu12)"
    return Devices(gpus, driver, cupy, missing)


@contextmanager
def only_visible(gpu: Gpu) -> Iterator[None]:
    """Hide all other GPUs from CUDA, which would initialize them too: with four GPUs that takes a second.

    No effect if this process has already used CUDA.
    """
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def _nvml() -> tuple[str | None, tuple[Gpu, ...], str | None]:
    """Driver, visible GPUs, and why there are none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return None, (), "no NVIDIA driver is loaded"
    except pynvml.NVMLError as error:
        return None, (), f"the NVIDIA driver fails: {error}"
    try:
        gpus = [gpu for index in range(pynvml.nvmlDeviceGetCount()) for gpu in _offered(pynvml, index)]
        return str(pynvml.nvmlSystemGetDriverVersion()), _visible(gpus), None
    except pynvml.NVMLError as error:
        return None, (), f"the NVIDIA driver fails: {error}"
    finally:
        pynvml.nvmlShutdown()


def _offered(pynvml: Any, index: int) -> list[_Named]:
    """A GPU by its index and UUID; in MIG mode its instances: these names then select the first."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    board = (str(index), pynvml.nvmlDeviceGetUUID(handle))
    try:
        mig = pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    except pynvml.NVMLError:  # the GPU has no such mode
        mig = False
    if not mig:
        return [(board, _gpu(pynvml, index, handle))]
    instances: list[_Named] = []
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            gpu = _gpu(pynvml, index, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
        except pynvml.NVMLError_NotFound:
            continue
        instances.append(((*(() if instances else board), gpu.uuid), gpu))
    return instances


def _gpu(pynvml: Any, index: int, handle: Any) -> Gpu:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index, pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle), int(memory.total), int(memory.free)
    )


def _visible(offered: list[_Named]) -> tuple[Gpu, ...]:
    """GPUs visible under CUDA_VISIBLE_DEVICES, as CUDA parses it (tested with driver 580).

    The first entry sets the kind of all: indices, UUIDs of GPUs, or UUIDs of instances. CUDA stops at the first entry
    of another kind or without a device; a device listed twice is an error, and none is visible.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        visible = [gpu for _, gpu in offered]
    else:
        visible = []
        kind = chosen[:4].upper()
        for entry in chosen.split(","):
            name = _uuid(entry, kind) if kind in ("GPU-", "MIG-") else _index(entry)
            match = [gpu for names, gpu in offered if name and any(_means(name, other) for other in names)]
            if len(match) != 1:
                break
            visible += match
        if len({gpu.uuid for gpu in visible}) < len(visible):
            return ()
    # CUDA shows no whole GPU along with an instance.
    instances = [gpu for gpu in visible if gpu.uuid.startswith("MIG-")]
    return tuple(instances or visible)


def _uuid(entry: str, kind: str) -> str | None:
    """A UUID or a prefix of one, if the entry is of this kind."""
    return entry if entry[:4].upper() == kind and len(entry) > 4 else None


def _index(entry: str) -> str | None:
    """The number that an entry begins with."""
    number = re.match(r"\s*\+?(\d+)", entry)
    return str(int(number[1])) if number else None


def _means(name: str, other: str) -> bool:
    """A unique prefix of a UUID is enough, and case does not matter."""
    return name == other or (not name.isdigit() and other.upper().startswith(name.upper()))


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
