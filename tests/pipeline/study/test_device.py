"""The device of a study: an error if there is none; on a real one, plausible clock and limits."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.study.roofline import read_stream
from pipeline.errors import UsageError
from pipeline.gpu.devices import Devices, Gpu
from pipeline.study import device as study_device
from pipeline.study.host import HostDevice
from pipeline.study.run import run_study
from tests.cases.toy_study import WHOLE, case, toy
from workflows.study.registry import STUDIES


@pytest.mark.parametrize("gpus", [0, 1])
def test_refused_in_one_line(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = Devices((Gpu(0, "GPU", "GPU-0", 1, 1),) * gpus, "580", None, "CuPy is not installed; install the extra")
    monkeypatch.setattr(study_device, "find_devices", lambda: devices)
    with pytest.raises(UsageError, match="needs an NVIDIA GPU, its driver and CuPy, here CuPy is not installed"):
        study_device.open_device(WHOLE, WHOLE.cases)
    baselines = toy(case("cpu"))
    assert isinstance(study_device.open_device(baselines, baselines.cases), HostDevice)


@pytest.mark.gpu
@pytest.mark.hardware
def test_clock_limits_and_transfers() -> None:
    import cupy

    device = study_device.CupyDevice()
    limits = {name: device.limit(name) for name in ("read", "copy", "float32", "float64")}
    assert all(rate > 0 for rate in limits.values())
    assert 0.5 < limits["copy"] / limits["read"] < 1.5
    # Reading takes as long as the limit says, and reading twice takes twice as long.
    data = cupy.arange(2**27, dtype=cupy.uint32)
    once = min(device.elapsed(lambda: read_stream(data)) for _ in range(5))
    twice = min(device.elapsed(lambda: (read_stream(data), read_stream(data))) for _ in range(5))
    assert 1.8 < twice / once < 2.2
    assert abs(data.nbytes / once / 1e6 / limits["read"] - 1) < 0.1
    there, back = device.transfer(2**26, False), device.transfer(2**20, True)
    assert 8 < there / back < 200
    assert device.environment()["device"]


@pytest.mark.gpu
@pytest.mark.hardware
def test_arrays_go_there_and_back() -> None:
    device = study_device.CupyDevice()
    arrays = (np.arange(12.0).reshape(3, 4)[:, ::2], np.array([1, 2, 3], np.int8))
    for host, copied in zip(arrays, device.to_device(arrays), strict=True):
        assert copied.dtype == host.dtype and (device.to_host(copied) == host).all()
    huge = np.broadcast_to(np.zeros(1, np.uint8), (2**50,))
    with pytest.raises(
        MemoryError, match=r"needs 1125899906842624 bytes of device memory for the inputs, \d+ are free"
    ):
        device.to_device((huge,))
    device.release()


@pytest.mark.parametrize("job", STUDIES)
def test_every_broken_variant_is_in_the_quick_study(job: str) -> None:
    """The study repeats it until it is caught."""
    study = STUDIES[job]
    quick = {case.variant for case in study.cases if case.quick}
    assert {name for name, variant in study.variants.items() if variant.broken} <= quick
    assert all(case.quick for case in study.cases if study.variants[case.variant].broken)


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("job", STUDIES)
def test_quick_study_passes(job: str) -> None:
    """Right variants are right, broken ones are caught."""
    study = STUDIES[job]
    cases = tuple(case for case in study.cases if case.quick)
    assert not run_study(study, cases, study_device.open_device(study, cases)).failures
