"""Chunks of LZ4, deflate, gzip and Zstandard: kernels beside the libraries, and what the wrapper refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.common import device, lz4, nvrtc, zstd
from kernels.common.decompress import MOST_BYTES, decompress
from tests.cases.case import Case
from tests.cases.inflate_small import inflate_cases
from tests.cases.lz4_small import compressed, decompressed_by, lz4_cases, sized
from tests.cases.zstd_bits import frame
from tests.cases.zstd_small import compressed as in_frame
from tests.cases.zstd_small import zstd_cases

pytestmark = pytest.mark.gpu

DATA = b"abc" * 99


@pytest.mark.parametrize("case", [*lz4_cases(), *inflate_cases(), *zstd_cases()], ids=str)
def test_small_inputs(cp: Any, case: Case) -> None:
    case.check(cp)


@pytest.mark.hardware
@pytest.mark.parametrize("chunk_bytes", [2**13, 2**16, 2**18])
def test_more_than_2_to_the_31_bytes(cp: Any, chunk_bytes: int) -> None:
    """Whatever the number of lanes that so many chunks get."""
    random, number = np.random.default_rng(0), 2**31 // chunk_bytes + 3
    data = np.repeat(random.integers(0, 999, chunk_bytes, np.int16), 5)[: chunk_bytes // 2].tobytes()
    chunk = np.frombuffer(sized(compressed(data), chunk_bytes), np.uint8)
    starts, sizes = np.arange(number) * len(chunk), np.full(number, len(chunk))
    out = cp.zeros(number * chunk_bytes, np.uint8)
    right = decompress(cp.asarray(np.tile(chunk, number)), starts, sizes, out, np.arange(number), chunk_bytes, "Sized")
    assert right.all() and (out.reshape(number, -1) == cp.asarray(np.frombuffer(data, np.uint8))).all()


@pytest.mark.parametrize("seed", range(3))
def test_nothing_outside_is_written_whatever_a_chunk_holds(cp: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    heads = {"Sized": (500).to_bytes(4, "little"), "Blocks": (500).to_bytes(8, "big") + bytes([0, 0, 1, 244]),
             "Zstd": frame(bytes([13, 9, 0]), None, 0)}  # fmt: skip
    for framing, head in heads.items():
        chunks = [head + random.bytes(int(random.integers(0, 300))) for _ in range(200)]
        decompressed_by(cp, chunks, 500, framing, 32)


@pytest.mark.parametrize("codec", [lz4, zstd])
def test_fewer_chunks_get_more_lanes(cp: Any, codec: Any) -> None:
    threads = codec.THREADS_AT_ONCE * device.limits().multiprocessors
    for fewer, lanes in zip((None, *codec.LANES), codec.LANES, strict=False):
        assert codec.lanes_for(threads // lanes) == lanes
        assert fewer is None or codec.lanes_for(threads // lanes + 1) == fewer
    assert codec.lanes_for(1) == codec.LANES[-1] and codec.lanes_for(10**9) == codec.LANES[0]


@pytest.mark.parametrize("lanes", zstd.LANES)
def test_frames_get_as_many_lanes_as_there_are_for_them(cp: Any, monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    _decompressed_by(cp, monkeypatch, in_frame(DATA), "Zstd", lanes, zstd.instance(lanes))


@pytest.mark.parametrize("lanes", lz4.LANES)
def test_blocks_get_as_many_lanes_as_there_are_for_them(cp: Any, monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    chunk = sized(compressed(DATA), len(DATA))
    _decompressed_by(cp, monkeypatch, chunk, "Sized", lanes, lz4.instance("Sized", lanes))


def _decompressed_by(
    cp: Any, monkeypatch: pytest.MonkeyPatch, chunk: bytes, framing: str, lanes: int, instance: str
) -> None:
    loaded, load = list[str](), nvrtc.load
    monkeypatch.setattr(nvrtc, "load", lambda source, name: loaded.append(name) or load(source, name))
    assert decompressed_by(cp, [chunk] * 5, len(DATA), framing, lanes) == [DATA] * 5
    assert loaded == [instance]


def test_nothing(cp: Any) -> None:
    none = np.zeros(0, np.int64)
    assert decompress(cp.zeros(0, np.uint8), none, none, cp.zeros(0, np.uint8), none, 10, "Sized").shape == (0,)


def test_what_is_refused(cp: Any) -> None:
    stored, out, one = cp.zeros(40, np.uint8), cp.zeros(30, np.uint8), np.ones(1, np.int64)
    for given, text in (
        (
            (stored, one, one, out, one, 10, "Frame"),
            r"framing: expected one of \('Sized', .*, 'Zstd'\), got 'Frame'",
        ),
        ((stored.view(np.int8), one, one, out, one, 10, "Sized"), "stored: expected uint8, got int8"),
        ((stored, one, one, out[::2], one, 10, "Sized"), "out: expected C-contiguous memory"),
        ((stored, one, np.ones(2, np.int64), out, one, 10, "Sized"), "all input arrays must have the same shape"),
        ((stored, one, one, out, one, 0, "Sized"), f"expected chunks of 1 to {MOST_BYTES} bytes, got 0, stored in 1"),
        ((stored, one, (2**30 + 1) * one, out, one, 10, "Sized"), f"got 10, stored in {2**30 + 1}"),
        ((stored, one, 40 * one, out, one, 10, "Sized"), "expected chunks inside of 40 and 30 bytes, got some outside"),
        ((stored, -one, one, out, one, 10, "Sized"), "got some outside"),
        ((stored, one, one, out, 3 * one, 10, "Sized"), "got some outside"),
        ((stored, one, one, out, -one, 10, "Sized"), "got some outside"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            decompress(*given)
