"""The device query, with fake drivers: what each value comes from, and that a refusal is no error."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipeline.gpu.devices import Gpu
from pipeline.study.cards import COURSE_CARDS, Card, table
from pipeline.study.device_query import cards_of, links_of

GPUS = (Gpu(0, "X", "GPU-a", 2**37, 2**36), Gpu(3, "X", "GPU-b", 2**37, 2**36))
BUSES = {"0000:17:00.0": "GPU-a", "0000:65:00.0": "GPU-b"}
ATTRIBUTES = {
    "MultiProcessorCount": 132, "ClockRate": 1_980_000, "MemoryClockRate": 3_201_000, "GlobalMemoryBusWidth": 6144,
    "MaxThreadsPerBlock": 1024, "MaxThreadsPerMultiProcessor": 2048, "MaxSharedMemoryPerBlockOptin": 232448,
    "MaxSharedMemoryPerMultiprocessor": 233472, "MaxRegistersPerMultiprocessor": 65536, "L2CacheSize": 62914560,
    "EccEnabled": 1, "KernelExecTimeout": 0, "ComputeCapabilityMajor": 9, "ComputeCapabilityMinor": 0,
}  # fmt: skip


class Nvml(ModuleType):
    """Answers what `answers` holds, by function, a value or a function of the arguments; refuses the rest."""

    class NVMLError(Exception):
        pass

    def __init__(self, **answers: Any) -> None:
        super().__init__("pynvml")
        self.answers = {"nvmlInit": None, "nvmlShutdown": None} | answers

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            if name not in self.answers:
                raise self.NVMLError("Not Supported")
            answer = self.answers[name]
            return answer(*arguments) if callable(answer) else answer

        return call


def handles() -> dict[str, Any]:
    """Handles are UUIDs."""
    return {"nvmlDeviceGetHandleByUUID": str, "nvmlDeviceGetHandleByPciBusId": BUSES.get, "nvmlDeviceGetUUID": str}


def cupy(buses: dict[str, str]) -> Any:
    """CUDA's view: its order is the reverse of the driver's."""
    order = list(buses)[::-1]
    runtime = SimpleNamespace(getDeviceCount=lambda: len(order), deviceGetPCIBusId=lambda number: order[number])
    device = lambda number: SimpleNamespace(  # noqa: E731
        attributes=ATTRIBUTES | {"MultiProcessorCount": 132 + number}
    )
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Device=device))


def test_cuda_and_nvml_together(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(**handles(), nvmlDeviceGetMaxClockInfo=lambda handle, kind: {1: 1980, 2: 3201}[kind],
                nvmlDeviceGetMaxPcieLinkGeneration=5, nvmlDeviceGetMaxPcieLinkWidth=16)  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setitem(sys.modules, "cupy", cupy(BUSES))
    first, second = cards_of(GPUS)
    assert first == Card("X", "driver", "9.0", 133, 133 * 128, 1980, 2**37, 3201, 6144, 1024, 2048, 232448, 233472,
                         65536, 62914560, True, "PCIe 5.0 x16", False)  # fmt: skip
    assert second.multiprocessors == 132  # matched by the place on the bus, not by number
    assert first.bandwidth_gb_s == pytest.approx(4917, abs=1)


def test_an_instance_has_no_place_on_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(**handles()))
    monkeypatch.setitem(sys.modules, "cupy", cupy({"0000:17:00.0": "GPU-a"}))
    (card,) = cards_of((Gpu(0, "X MIG 1g", "MIG-1", 2**34, 2**34),))
    assert (card.multiprocessors, card.clock_mhz, card.bus, card.memory_bytes) == (132, 1980, None, 2**34)


def test_without_cupy_nvml_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(**handles(), nvmlDeviceGetCudaComputeCapability=(8, 6), nvmlDeviceGetNumGpuCores=3584,
                nvmlDeviceGetMemoryBusWidth=192, nvmlDeviceGetEccMode=[0, 0])  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setitem(sys.modules, "cupy", None)
    card = cards_of(GPUS)[0]
    assert (card.compute_capability, card.lanes, card.memory_bus_bits, card.ecc) == ("8.6", 3584, 192, False)
    assert card.multiprocessors is card.clock_mhz is card.bandwidth_gb_s is None


def test_all_refused_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = cupy(BUSES)
    failing.cuda.runtime.getDeviceCount = lambda: 1 / 0
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setitem(sys.modules, "cupy", failing)
    cards = cards_of(GPUS)
    assert cards == [Card("X", "driver", memory_bytes=2**37)] * 2
    assert [row[0] for row in table(cards) if row[1] != "unknown"] == ["", "from", "memory"]
    assert links_of(GPUS) == [(0, 3, "unknown")]
    assert cards_of(()) == links_of(()) == []


@pytest.mark.parametrize(
    ("answers", "link"),
    [
        ({"nvmlDeviceGetP2PStatus": 0, "nvmlDeviceGetNvLinkState": lambda gpu, link: int(link < 18)},
         "NVLink, 18 links"),
        ({"nvmlDeviceGetP2PStatus": 0}, "NVLink"),
        ({"nvmlDeviceGetP2PStatus": 1, "nvmlDeviceGetTopologyCommonAncestor": 30}, "PCIe, one host bridge"),
        ({"nvmlDeviceGetTopologyCommonAncestor": 50}, "PCIe, between CPUs"),
        ({"nvmlDeviceGetTopologyCommonAncestor": 77}, "unknown"),
    ],
)  # fmt: skip
def test_links(answers: dict[str, Any], link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(**handles(), **answers))
    assert links_of(GPUS) == [(0, 3, link)]


def test_constants_are_those_of_nvml() -> None:
    import pynvml

    from pipeline.study import device_query as query

    assert (query.P2P_NVLINK, query.P2P_OK) == (pynvml.NVML_P2P_CAPS_INDEX_NVLINK, pynvml.NVML_P2P_STATUS_OK)
    assert pynvml.NVML_NVLINK_MAX_LINKS >= query.MOST_LINKS
    topology = {number for name, number in vars(pynvml).items() if name.startswith("NVML_TOPOLOGY_")}
    assert topology >= set(query.PATHS)


def test_cards_of_the_courses_are_complete() -> None:
    """Bandwidths as the data sheets state them; lanes as the table of compute capabilities gives them."""
    from pipeline.study.cards import LANES

    assert [round(card.bandwidth_gb_s or 0) for card in COURSE_CARDS] == [144, 192, 288, 360]
    for card in COURSE_CARDS:
        assert card.lanes == (card.multiprocessors or 0) * LANES[card.compute_capability or ""]
        assert card.origin == "data sheet"
    rows = table(COURSE_CARDS)
    assert {len(row) for row in rows} == {1 + len(COURSE_CARDS)}
    assert [row[0] for row in rows if "unknown" in row] == ["kernels have a time limit"]
