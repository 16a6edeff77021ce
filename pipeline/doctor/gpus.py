"""What jobs need of GPUs: driver, CUDA, CuPy, NVML, kvikio, MIG."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from pipeline.doctor.check import NOTE, OK, PROBLEM, SKIPPED, Finding
from pipeline.doctor.host import gpus_on_the_bus
from pipeline.gpu.devices import find_devices

CUPY = {"cupy-cuda12x": 12, "cupy-cuda13x": 13}  # distributions, and the CUDA that each needs of the driver
LEAST_CAPABILITY = (7, 5)
TESTED = {"H200": (9, 0)}  # docs/doctor.md has the table
INSTALL = "pip install 'baru[cu13]', for a driver of CUDA 12 'baru[cu12]'"
NO_GPU = Finding(OK, "not needed without a GPU")


def driver() -> Finding:
    """Whether the driver is loaded and answers."""
    known, there = find_devices(), gpus_on_the_bus()
    if known.driver:
        return Finding(OK, f"NVIDIA {known.driver}")
    if known.missing == "no NVIDIA driver is loaded" and not there:
        return Finding(OK, "no NVIDIA GPU: jobs run on the CPU, with the same results")
    names = f", for {len(there)} NVIDIA GPU{'s'[: len(there) > 1]}" if there else ""
    return Finding(PROBLEM, f"{known.missing}{names}",
                   "install NVIDIA's driver (580 or newer for CUDA 13); after an update restart the machine; in a "
                   "container, --gpus all or --nv")  # fmt: skip


def nvml() -> Finding:
    """Which GPUs are visible, and whether NVML says how much memory they have."""
    known = find_devices()
    if not known.driver:
        return _without(known.missing)
    if not known.gpus:
        return Finding(PROBLEM, "NVML answers, but no GPU is visible",
                       "unset CUDA_VISIBLE_DEVICES, or set it to what nvidia-smi -L shows")  # fmt: skip
    free = ", ".join(
        f"{gpu.name} with {gpu.free / 2**30:.0f} of {gpu.memory / 2**30:.0f} GiB free" for gpu in known.gpus
    )
    return Finding(OK, free)


def cuda() -> Finding:
    """Whether the driver is new enough for the CUDA that CuPy brings, and whether GPUs are of a supported kind."""
    known = find_devices()
    if not known.driver or not known.gpus:
        return _without(known.missing)
    with _nvml() as pynvml:
        of_driver = int(pynvml.nvmlSystemGetCudaDriverVersion())
        capabilities = {gpu.name: _capability(pynvml, gpu.uuid) for gpu in known.gpus}
    text = f"CUDA {of_driver // 1000}.{of_driver % 1000 // 10} by the driver"
    wanted = max((CUPY[name] for name in _installed(CUPY)), default=0)
    if of_driver // 1000 < wanted:
        return Finding(PROBLEM, f"{text}, but CuPy is that of CUDA {wanted}",
                       f"update the driver, or pip install 'baru[cu{of_driver // 1000}]'")  # fmt: skip
    shown = ", ".join(f"{name} {'.'.join(map(str, pair))}" for name, pair in capabilities.items())
    if any(pair < LEAST_CAPABILITY for pair in capabilities.values()):
        return Finding(PROBLEM, f"{text}; compute capability: {shown}",
                       "use --device cpu: GPUs below 7.5 are not supported")  # fmt: skip
    if not all(
        any(word in name and pair == own for word, own in TESTED.items()) for name, pair in capabilities.items()
    ):
        return Finding(NOTE, f"{text}; compute capability: {shown}: supported, but not tested",
                       "run demo, and python -m pytest -m gpu once")  # fmt: skip
    return Finding(OK, f"{text}; compute capability: {shown}")


def cupy() -> Finding:
    """Whether CuPy is installed once, and computes."""
    known = find_devices()
    if not known.driver or not known.gpus:
        return _without(known.missing)
    several = _installed(CUPY)
    if len(several) > 1:
        return Finding(PROBLEM, f"{' and '.join(several)} are installed, of which one overwrites the other",
                       f"pip uninstall {' '.join(several)}, then {INSTALL}")  # fmt: skip
    if known.cupy is None:
        return Finding(PROBLEM, "CuPy is not installed: jobs run on the CPU", INSTALL)
    import cupy as module

    total = int(module.arange(1024).sum())
    if total != 1024 * 1023 // 2:
        return Finding(PROBLEM, f"CuPy adds 0 to 1023 up to {total}, not 523776", "test this GPU: dcgmi diag -r 3")
    return Finding(OK, f"CuPy {known.cupy} computes")


def kvikio() -> Finding:
    """Whether kvikio is there, and how it reads files."""
    known = find_devices()
    if not known.driver or not known.gpus:
        return _without(known.missing)
    if find_spec("kvikio") is None:
        return Finding(PROBLEM, "kvikio is not installed: jobs run on the CPU", INSTALL)
    from pipeline.gpu.transfer import transfer_path

    return Finding(OK, f"files are read {transfer_path()}")


def mig() -> Finding:
    """Whether GPUs in MIG mode have instances: without any they can compute nothing."""
    known = find_devices()
    if not known.driver:
        return _without(known.missing)
    empty, instances = [], 0
    with _nvml() as pynvml:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            try:
                if pynvml.nvmlDeviceGetMigMode(handle)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
                    continue
            except pynvml.NVMLError:  # the GPU has no such mode
                continue
            number = sum(
                _instance(pynvml, handle, place) for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))
            )
            instances += number
            empty += [str(index)] * (not number)
    if empty:
        return Finding(PROBLEM, f"GPU {', '.join(empty)} in MIG mode without an instance",
                       "create one (nvidia-smi mig -cgi), or leave the mode (nvidia-smi -mig 0)")  # fmt: skip
    return Finding(OK, f"{instances} instances" if instances else "not in use")


def _instance(pynvml: Any, handle: Any, place: int) -> bool:
    try:
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
    except pynvml.NVMLError_NotFound:
        return False
    return True


def _without(missing: str | None) -> Finding:
    """The finding for a check that needs a GPU, if no GPU answers."""
    if missing == "no NVIDIA driver is loaded" and not gpus_on_the_bus():
        return NO_GPU
    return Finding(SKIPPED, f"not looked at: {missing or 'no GPU is visible'}")


def _installed(names: dict[str, int]) -> list[str]:
    found = []
    for name in names:
        try:
            version(name)
        except PackageNotFoundError:
            continue
        found.append(name)
    return found


def _capability(pynvml: Any, uuid: str) -> tuple[int, int]:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return int(major), int(minor)


@contextmanager
def _nvml() -> Iterator[Any]:
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()
