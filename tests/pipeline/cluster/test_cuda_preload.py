"""The preload of a GPU worker: it creates a CUDA context, and nothing fails without a driver."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipeline.cluster import cuda_preload
from pipeline.gpu import transfer


class Driver:
    """A stand-in for libcuda with a failing function."""

    def __init__(self, failing: str | None) -> None:
        self.failing = failing
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            self.called.append(name)
            return 100 if name == self.failing else 0

        return function


@pytest.mark.parametrize(("failing", "calls"), [(None, 3), ("cuInit", 1), ("cuDeviceGet", 2)])
def test_context_is_made_as_far_as_the_driver_goes(
    failing: str | None, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(failing)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    cuda_preload._make_context()
    assert driver.called == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"][:calls]


def test_no_driver_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    cuda_preload._make_context()


@pytest.mark.parametrize(("fed", "mib"), [(None, 4), ("1", 4), ("2", 4), ("4", 2), ("8", 2)])
def test_process_that_sees_one_gpu_knows_how_many_are_fed(
    fed: str | None, mib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults: dict[str, int] = {}
    kvikio: Any = ModuleType("kvikio")
    kvikio.defaults = SimpleNamespace(set=defaults.update)
    monkeypatch.setitem(sys.modules, "kvikio", kvikio)
    monkeypatch.setitem(sys.modules, "kvikio.defaults", kvikio.defaults)
    monkeypatch.setattr(transfer, "find_devices", lambda: SimpleNamespace(usable=1))
    monkeypatch.delenv(transfer.FED, raising=False)
    if fed:
        monkeypatch.setenv(transfer.FED, fed)
    transfer._fed.cache_clear()
    transfer._warm_up_kvikio.__wrapped__()  # the cached state of this process stays
    transfer._fed.cache_clear()
    assert defaults["task_size"] == mib * 2**20
