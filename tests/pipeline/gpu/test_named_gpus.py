"""`--gpus`: numbers, lists, UUIDs and idle GPUs, with a fake driver; every refusal says what to do."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError, UsageError
from pipeline.gpu.devices import Gpu
from pipeline.gpu.named_gpus import as_text, label, selected


def gpu(index: int, uuid: str) -> Gpu:
    return Gpu(index, "planted", uuid, 2**37, 2**37)


GPUS = (gpu(0, "GPU-a1f0"), gpu(1, "GPU-a2f0"), gpu(2, "GPU-b300"), gpu(3, "GPU-b301"))
INSTANCES = (gpu(0, "MIG-10000000-00"), gpu(0, "MIG-20000000-00"), gpu(3, "MIG-30000000-00"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2", "2"), (2, "2"), (np.int64(2), "2"), ("all", "all"), ("idle", "idle"), ("0,2", "0,2"), ("0, 2", "0,2"),
        ("2,", "2,"), ((0, 2), "0,2"), ([2], "2,"), ((2,), "2,"), (["GPU-a1", 3], "GPU-a1,3"), ("GPU-A1", "GPU-A1"),
        ("mig-1", "mig-1"), (["2"], "2,"), ("GPU-8d1bcf00-12f0-4c2b-9b6f-1c2d3e4f5a6b",) * 2, ("0", "0"),
    ],
)  # fmt: skip
def test_every_form_has_a_text(value: Any, text: str) -> None:
    assert as_text(value) == text
    assert as_text(text) == text


@pytest.mark.parametrize(
    "value",
    ["", ",", "some", "-1", -1, "0,,1", "0;1", "0-2", 1.0, True, [], [True], [1.5], {0}, "GPU-", "²", "0,²", "1,,",
     None, b"1", "all,0", ["all"], ["idle", 1], "0x1", "1" * 5000, "1" * 5000 + ","],
)  # fmt: skip
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^--gpus: expected a number of GPUs, all, idle, indices like 0,2 .*; got "):
        as_text(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", [0]), ("3", [0, 1, 2]), ("4", [0, 1, 2, 3]), ("all", [0, 1, 2, 3]), ("2,", [2]), ("0,2", [0, 2]),
        ("3,1", [3, 1]), ("GPU-a1f0", [0]), ("gpu-A2", [1]), ("GPU-b301,GPU-a1", [3, 0]), ("GPU-b300,0", [2, 0]),
        ("02,", [2]),
    ],
)  # fmt: skip
def test_gpus_that_are_named_take_part(text: str, expected: list[int]) -> None:
    assert [chosen.index for chosen in selected(text, GPUS)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "--gpus 5: expected 1 to 4, the number of usable GPUs, got 5; for one by its index write 5,"),
        ("0", "--gpus 0: expected 1 to 4, the number of usable GPUs, got 0; for one by its index write 0,"),
        ("0,7", "--gpus 0,7: expected some of 0, 1, 2, 3, got 7; `python -m pipeline devices` lists them"),
        ("GPU-b3", "--gpus GPU-b3: expected some of GPU-a1f0, GPU-a2f0, GPU-b300, GPU-b301, got GPU-b3, which "
                   "means 2 of them; `python -m pipeline devices` lists them"),
        ("GPU-c", "--gpus GPU-c: expected some of GPU-a1f0, GPU-a2f0, GPU-b300, GPU-b301, got GPU-c; `python -m "
                  "pipeline devices` lists them"),
        ("1,1", "--gpus 1,1: expected every GPU once, got 1 2 times; leave it out"),
        ("3,GPU-b301,0", "--gpus 3,GPU-b301,0: expected every GPU once, got 3 2 times; leave it out"),
    ],
)  # fmt: skip
def test_others_are_refused(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(UsageError) as caught:
        selected(text, GPUS)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["1,", "4"])
def test_hidden_ones_are_refused_with_what_hides_them(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert [chosen.index for chosen in selected("2,", (GPUS[2], GPUS[0]))] == [2]
    with pytest.raises(UsageError, match=r"under CUDA_VISIBLE_DEVICES=2,0, got"):
        selected(text, (GPUS[2], GPUS[0]))


def test_instances_go_by_their_uuids() -> None:
    assert selected("MIG-2", INSTANCES) == INSTANCES[1:2]
    assert selected("3,", INSTANCES) == INSTANCES[2:]
    assert selected("2", INSTANCES) == INSTANCES[:2]
    assert [*map(label, INSTANCES)] == ["MIG-10000000"[:12], "MIG-20000000"[:12], "MIG-30000000"[:12]]
    with pytest.raises(UsageError, match="expected one GPU for 0, got 2 MIG instances; name one by its UUID: "):
        selected("0,", INSTANCES)


class Nvml(ModuleType):
    """The part of pynvml that tells what uses a GPU."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.running: dict[str, tuple[int, ...]] = {}
        self.percent: dict[str, int] = {}
        self.silent: set[str] = set()
        self.open = 0

    def nvmlInit(self) -> None:
        if "init" in self.silent:
            raise self.NVMLError("Driver/library version mismatch")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        if handle in self.silent:
            raise self.NVMLError("GPU is lost")
        return [SimpleNamespace(pid=pid) for pid in self.running.get(handle, ())]

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        if handle.startswith("MIG-"):
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=self.percent.get(handle, 0))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    planted = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", planted)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return planted


def test_idle_ones_are_those_that_nobody_else_uses(nvml: Nvml) -> None:
    assert selected("idle", GPUS) == GPUS
    nvml.running = {"GPU-a1f0": (1,), "GPU-a2f0": (os.getpid(),), "GPU-b301": (os.getpid(), 2)}
    assert selected("idle", GPUS) == GPUS[1:3]
    nvml.percent = {"GPU-a2f0": 5, "GPU-b300": 6}
    assert selected("idle", GPUS) == GPUS[1:2]
    assert selected("idle", INSTANCES) == INSTANCES  # whose utilisation the driver does not tell
    assert nvml.open == 0


def test_none_idle_says_what_each_is_used_by(nvml: Nvml) -> None:
    nvml.running, nvml.percent, nvml.silent = {"GPU-a1f0": (1,), "GPU-a2f0": (1, 2)}, {"GPU-b300": 93}, {"GPU-b301"}
    with pytest.raises(UsageError) as caught:
        selected("idle", GPUS)
    assert str(caught.value) == (
        "--gpus idle: expected a GPU that nobody else uses, but 0 has 1 process, 1 has 2 processes, 2 has a "
        "utilisation of 93 %, 3 has an unknown use (GPU is lost); wait, or name GPUs to share"
    )
    assert nvml.open == 0


def test_driver_that_fails_says_how(nvml: Nvml) -> None:
    nvml.silent = {"init"}
    with pytest.raises(
        PipelineError, match=r"--gpus idle: expected .*, but it fails: Driver/library version mismatch;"
    ):
        selected("idle", GPUS)
