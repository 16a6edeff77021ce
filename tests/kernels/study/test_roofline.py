"""The kernels that measure the limits of a device: their wrappers refuse arrays that they would misread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.common import nvrtc
from kernels.study import roofline
from tests.cases.sizes import sizes


@pytest.fixture(autouse=True)
def nothing_is_loaded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(nvrtc, "load", lambda *_: pytest.fail("loaded"))


@pytest.mark.parametrize("read", [roofline.read_stream, roofline.displace_cache, lambda a: roofline.copy(a, a)])
def test_reading_refuses(read: Any) -> None:
    with pytest.raises(TypeError, match="expected uint32, got float32"):
        read(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="expected 1 dimension"):
        read(np.zeros((2, 2), np.uint32))
    with pytest.raises(ValueError, match="expected C-contiguous memory, got strides"):
        read(np.zeros(8, np.uint32)[::2])


def test_copy_refuses_another_size() -> None:
    with pytest.raises(ValueError, match="expected arrays of one size, got 4 and 5"):
        roofline.copy(np.zeros(4, np.uint32), np.zeros(5, np.uint32))


def test_merge_refuses() -> None:
    with pytest.raises(ValueError, match="expected 1 to 3 sources, got 0"):
        roofline.merge(np.zeros(4, np.uint32))
    with pytest.raises(TypeError, match="expected uint32, got float32"):
        roofline.merge(np.zeros(4, np.float32), np.zeros(4, np.float32))


def test_product_refuses() -> None:
    square = np.zeros((3, 3))
    with pytest.raises(TypeError, match="expected float32 or float64, got int64"):
        roofline.product(square, square, square.astype(np.int64))
    with pytest.raises(ValueError, match="expected square matrices of float64, "):
        roofline.product(square, square, np.zeros((3, 4)))
    with pytest.raises(ValueError, match="expected square matrices of float64, "):
        roofline.product(square, square.astype(np.float32), square)


@pytest.mark.gpu
def test_on_the_device() -> None:
    import cupy

    data = cupy.arange(sizes(4999, 10**6 + 7)[-1], dtype=cupy.uint32)
    roofline.read_stream(data)
    roofline.displace_cache(data[:3])
    target = cupy.empty_like(data)
    roofline.copy(target, data)
    assert (target == data).all()
    packs = data[: data.size // 4 * 4]
    roofline.merge(target[: packs.size], packs, packs, packs)
    assert (target == data).all()
    with pytest.raises(ValueError, match="expected arrays of one size in packs of 16 bytes, got 4998 numbers"):
        roofline.merge(target[:4998], packs[:4998])
    a = cupy.asarray(np.random.default_rng(0).standard_normal((257, 257)))
    out = cupy.empty_like(a)
    roofline.product(a, a, out)
    np.testing.assert_allclose(out.get(), a.get() @ a.get(), rtol=0, atol=1e-11)
