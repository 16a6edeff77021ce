"""Asks the driver what the GPUs are and how they are linked; what it does not tell is None."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pipeline.gpu.devices import Gpu
from pipeline.study.cards import LANES, Card

DRIVER = "driver"


def cards_of(gpus: Sequence[Gpu]) -> list[Card]:
    """What CUDA and NVML say of each GPU; a value that both refuse is None."""
    known = _cuda_attributes()
    with _nvml() as nvml:
        if len(gpus) == len(known) == 1:  # an instance of a GPU in MIG mode has no address of its own on the bus
            return [_card(gpus[0], attributes, nvml) for attributes in known.values()]
        return [_card(gpu, known.get(gpu.uuid, {}), nvml) for gpu in gpus]


def links_of(gpus: Sequence[Gpu]) -> list[tuple[int, int, str]]:
    """How each two GPUs are linked: their indices, and NVLink or the way through PCIe."""
    with _nvml() as nvml:
        handles = [nvml("nvmlDeviceGetHandleByUUID", gpu.uuid) for gpu in gpus]
        return [
            (one.index, other.index, _link(nvml, handles[i], handles[i + 1 + j]))
            for i, one in enumerate(gpus)
            for j, other in enumerate(gpus[i + 1 :])
        ]


Ask = Callable[..., Any]  # (name of a function of NVML, arguments) -> its value, or None


@contextmanager
def _nvml() -> Iterator[Ask]:
    """Calls NVML; every refusal is None: MIG instances, containers and WSL lack many functions."""
    import pynvml

    def ask(name: str, *arguments: Any) -> Any:
        if None in arguments:
            return None
        try:
            return getattr(pynvml, name)(*arguments)
        except (pynvml.NVMLError, AttributeError, ValueError):  # AttributeError: bindings older than the function
            return None

    ask("nvmlInit")  # without it every call is refused
    try:
        yield ask
    finally:
        ask("nvmlShutdown")


def _card(gpu: Gpu, cuda: Mapping[str, int], nvml: Ask) -> Card:
    handle = nvml("nvmlDeviceGetHandleByUUID", gpu.uuid)
    capability = _capability(cuda, nvml, handle)
    multiprocessors = cuda.get("MultiProcessorCount")
    of_one = LANES.get(capability or "")
    lanes = of_one * multiprocessors if of_one and multiprocessors else nvml("nvmlDeviceGetNumGpuCores", handle)
    ecc = nvml("nvmlDeviceGetEccMode", handle)
    return Card(
        gpu.name, DRIVER, capability, multiprocessors, lanes,
        _clock(nvml, handle, 1) or _mhz(cuda, "ClockRate"),
        gpu.memory,
        _clock(nvml, handle, 2) or _mhz(cuda, "MemoryClockRate"),
        cuda.get("GlobalMemoryBusWidth") or nvml("nvmlDeviceGetMemoryBusWidth", handle),
        cuda.get("MaxThreadsPerBlock"), cuda.get("MaxThreadsPerMultiProcessor"),
        cuda.get("MaxSharedMemoryPerBlockOptin"), cuda.get("MaxSharedMemoryPerMultiprocessor"),
        cuda.get("MaxRegistersPerMultiprocessor"), cuda.get("L2CacheSize"),
        bool(cuda["EccEnabled"]) if "EccEnabled" in cuda else bool(ecc[0]) if ecc else None,
        _bus(nvml, handle),
        bool(cuda["KernelExecTimeout"]) if "KernelExecTimeout" in cuda else None,
    )  # fmt: skip


def _capability(cuda: Mapping[str, int], nvml: Ask, handle: Any) -> str | None:
    numbers = cuda.get("ComputeCapabilityMajor"), cuda.get("ComputeCapabilityMinor")
    if None in numbers:
        numbers = nvml("nvmlDeviceGetCudaComputeCapability", handle)
    return "{}.{}".format(*numbers) if numbers else None


def _clock(nvml: Ask, handle: Any, kind: int) -> int | None:
    """MHz: kind 1 of the multiprocessors, 2 of the memory, as NVML numbers them."""
    clock = nvml("nvmlDeviceGetMaxClockInfo", handle, kind)
    return int(clock) if clock else None


def _mhz(cuda: Mapping[str, int], name: str) -> int | None:
    return cuda[name] // 1000 if cuda.get(name) else None


def _bus(nvml: Ask, handle: Any) -> str | None:
    generation, width = (nvml(f"nvmlDeviceGetMaxPcieLink{what}", handle) for what in ("Generation", "Width"))
    return f"PCIe {generation}.0 x{width}" if generation and width else None


def _link(nvml: Ask, one: Any, other: Any) -> str:
    if nvml("nvmlDeviceGetP2PStatus", one, other, P2P_NVLINK) == P2P_OK:
        active = sum(nvml("nvmlDeviceGetNvLinkState", one, link) == 1 for link in range(MOST_LINKS))
        return f"NVLink, {active} links" if active else "NVLink"
    return PATHS.get(nvml("nvmlDeviceGetTopologyCommonAncestor", one, other), "unknown")


P2P_NVLINK, P2P_OK, MOST_LINKS = 2, 0, 36  # NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK, NVML_NVLINK_MAX_LINKS
PATHS = {  # NVML_TOPOLOGY_*
    0: "PCIe, on one board", 10: "PCIe, one switch", 20: "PCIe, several switches", 30: "PCIe, one host bridge",
    40: "PCIe, one CPU", 50: "PCIe, between CPUs",
}  # fmt: skip


def _cuda_attributes() -> dict[str, dict[str, int]]:
    """CUDA's attributes of each visible GPU by its UUID; none without CuPy or where CUDA fails."""
    try:
        import cupy

        runtime = cupy.cuda.runtime
        known: dict[str, dict[str, int]] = {}
        for number in range(runtime.getDeviceCount()):
            known[_uuid_of(runtime.deviceGetPCIBusId(number))] = dict(cupy.cuda.Device(number).attributes)
    except Exception:  # whatever CuPy raises: the table shows what NVML knows
        return {}
    return known


def _uuid_of(bus: str) -> str:
    with _nvml() as nvml:
        return str(nvml("nvmlDeviceGetUUID", nvml("nvmlDeviceGetHandleByPciBusId", bus)))
