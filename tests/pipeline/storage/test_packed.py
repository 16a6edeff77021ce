"""Packed samples of 10, 12 and 14 bits, against an oracle that takes them bit by bit."""

from __future__ import annotations

import ctypes
import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.storage import packed
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.packed import Packing
from pipeline.storage.pieces import FilledPiece
from pipeline.storage.protocol import BYTEORDERS, PACKED, Byteorder, Opening
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline

SOURCE = packed.SOURCE
KINDS = [(name, order) for name in PACKED for order in BYTEORDERS]


def oracle(stored: bytes, name: str, order: str) -> list[int]:
    """All samples of a stream of bits: characters 0 and 1, in the order in which they are counted."""
    bits, step = "".join(f"{byte:08b}"[:: 1 if order == "big" else -1] for byte in stored), int(name[1:3])
    assert len(bits) % step == 0
    words = [bits[start : start + step][:: 1 if order == "big" else -1] for start in range(0, len(bits), step)]
    return [int(word, 2) - (int(word[0]) << step if name[0] == "i" else 0) for word in words]


def random_bytes(packing: Packing, groups: int) -> NDArray[np.uint8]:
    """Groups of random bytes, after one of zeros and one of ones."""
    data = np.random.default_rng(groups).integers(0, 256, (groups, packing.group_bytes), dtype=np.uint8)
    data[:1], data[1:2] = 0, 255
    return data.reshape(-1)


def packing_of(name: str, order: Byteorder) -> Packing:
    packing = Packing.of(Opening(name, order))
    assert packing is not None
    return packing


def unpacked(packing: Packing, stored: NDArray[np.uint8]) -> NDArray[Any]:
    samples = np.empty(len(stored) // packing.group_bytes * packing.group, packing.dtype)
    packing.unpack(stored, samples)
    return samples


@pytest.mark.parametrize(("name", "order"), KINDS)
@pytest.mark.usefixtures("by")
def test_samples_are_the_oracles(name: str, order: Byteorder) -> None:
    packing = packing_of(name, order)
    for groups in (0, 1, 2, 3, 17, 1000):
        stored = random_bytes(packing, groups)
        samples = unpacked(packing, stored)
        assert samples.dtype == ("int16" if name[0] == "i" else "uint16")
        assert samples.tolist() == oracle(stored.tobytes(), name, order)


def test_layouts_of_the_documents() -> None:
    """Mono12p of GenICam, Mono10p with 0x3FF as its second sample, and TIFF's."""
    little = np.frombuffer(bytes.fromhex("BCFADE"), np.uint8)
    assert unpacked(packing_of("u12p", "little"), little).tolist() == [0xABC, 0xDEF]
    second = np.frombuffer((0x3FF << 10).to_bytes(5, "little"), np.uint8)
    assert unpacked(packing_of("u10p", "little"), second).tolist() == [0, 0x3FF, 0, 0]
    big = np.frombuffer(bytes.fromhex("ABCDEF"), np.uint8)
    assert unpacked(packing_of("u12p", "big"), big).tolist() == [0xABC, 0xDEF]
    assert unpacked(packing_of("i12p", "big"), big).tolist() == [0xABC - 4096, 0xDEF - 4096]


@pytest.mark.parametrize(("name", "order"), KINDS)
@pytest.mark.usefixtures("by")
def test_any_run_of_samples(tmp_path: Path, name: str, order: Byteorder) -> None:
    """Runs that begin and end within a group, of a file after bytes to skip; pieces travel to other processes."""
    packing = packing_of(name, order)
    stored = random_bytes(packing, 5)
    (tmp_path / "a").write_bytes(b"head" + stored.tobytes())
    source = open_source((str(tmp_path / "a"),), name, order, 4)
    expected = oracle(stored.tobytes(), name, order)
    assert source.shape == (len(expected),) and source.nbytes == 2 * len(expected)
    (piece,) = pickle.loads(pickle.dumps(list(source.pieces())))
    assert isinstance(piece, FilledPiece)
    for start in range(len(expected)):
        for stop in range(start + 1, len(expected) + 1):
            buffer = np.empty(stop - start, source.dtype)
            piece.filler.fill(start, buffer)
            assert buffer.tolist() == expected[start:stop]


@pytest.mark.parametrize("chunk_bytes", [2, 14, 1000])
def test_chunks_of_any_size(tmp_path: Path, chunk_bytes: int) -> None:
    stored = random_bytes(packing_of("i14p", "big"), 400)
    stored.tofile(tmp_path / "a")
    chunks = plan(open_source((str(tmp_path / "a"),), "i14p", "big"), chunk_bytes, "off", 0)
    assert isinstance(chunks, tuple) and len(chunks) == -(-3200 // chunk_bytes)
    samples = np.concatenate([block.copy() for chunk in chunks for block in read_blocks(chunk, Timeline())])
    assert samples.tolist() == oracle(stored.tobytes(), "i14p", "big")


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("chunk_bytes", [None, 4098])
@pytest.mark.parametrize(("name", "order"), KINDS)
def test_jobs_agree_with_numpy(tmp_path: Path, name: str, order: Byteorder, chunk_bytes: int | None) -> None:
    """Of two files, checked in full; positions count over both."""
    stored = random_bytes(packing_of(name, order), 3000)
    for number, part in enumerate(np.split(stored, [1000 * len(stored) // 3000])):
        part.tofile(tmp_path / f"{number}.bin")
    samples = np.array(oracle(stored.tobytes(), name, order))
    jobs = [("histogram", {"bins": 100, "range": (-9000, 17000)}), ("reduce", {"op": "sum,min,max,argmin,argmax"})]
    counted, reduced = pipeline.run(jobs, tmp_path / "*.bin", dtype=name, byteorder=order, verify="full",
                                    chunk_bytes=chunk_bytes)  # fmt: skip
    np.testing.assert_array_equal(counted.counts, np.histogram(samples, 100, (-9000, 17000))[0])
    assert reduced.values == {
        "sum": samples.sum(), "min": samples.min(), "max": samples.max(), "argmin": samples.argmin(),
        "argmax": samples.argmax(),
    }  # fmt: skip
    assert counted.verification.checked == len(samples)


@pytest.mark.usefixtures("shared")
def test_what_cannot_be_packed_samples(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(101))
    np.save(tmp_path / "b.npy", np.arange(3, dtype=np.int16))
    text = r"a: expected a multiple of 7 bytes \(4 samples of 14 bits\), got 101, 3 too many; check --dtype"
    with pytest.raises(UsageError, match=text):
        pipeline.run("reduce", tmp_path / "a", dtype="u14p")
    assert pipeline.run("reduce", tmp_path / "a", dtype="u14p", offset=3, op="count").samples == 56
    with pytest.raises(UsageError, match=r"b.npy: expected i12p as --dtype says, got int16; leave --dtype out"):
        pipeline.run("reduce", tmp_path / "b.npy", dtype="i12p")
    with pytest.raises(UsageError, match=r"expected u12p as --dtype says, got int16"):
        pipeline.run("reduce", np.arange(3, dtype=np.int16), dtype="u12p")
    with pytest.raises(UsageError, match=r"expected one of int8, .*, i14p, .*, got 'u11p'"):
        pipeline.run("reduce", tmp_path / "a", dtype="u11p")
    with pytest.raises(UsageError, match=r"a: expected an array that is stored in one piece"):
        pipeline.run("transpose", tmp_path / "a", dtype="u14p", offset=3, output=tmp_path / "t.npy")


def test_file_that_changes_after_it_was_planned(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(30))
    source = open_source((str(tmp_path / "a"),), "u10p")
    (piece,) = source.pieces()
    os.utime(tmp_path / "a", ns=(0, 0))
    assert isinstance(piece, FilledPiece)
    for look in (source.check_unchanged, lambda: piece.filler.fill(0, np.empty(4, np.uint16))):
        with pytest.raises(PipelineError, match="was written to while it was read"):
            look()


@pytest.mark.parametrize("place", [0, -1])
def test_code_that_unpacks_wrongly_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """Always, and so in both reads: a check alone would agree."""
    library = packed.cxx.library(packed.SOURCE)
    if library is None:
        pytest.skip("no C++ compiler")
    unpacked(packing_of("u12p", "little"), np.zeros(3, np.uint8))  # sets the types of its arguments

    def wrong(*given: Any) -> None:
        library.unpack_groups(*given)
        groups, address = given[4:]
        np.ctypeslib.as_array((ctypes.c_uint16 * (2 * groups)).from_address(address))[place] ^= 1

    real = packed.cxx.library
    monkeypatch.setattr(
        packed.cxx, "library",
        lambda source: SimpleNamespace(unpack_groups=wrong) if source == packed.SOURCE else real(source),
    )  # fmt: skip
    path = tmp_path / "a.raw"
    path.write_bytes(bytes(range(90)))
    with pytest.raises(VerificationError, match="samples of 12 bits are unpacked wrongly"):
        pipeline.run("reduce", str(path), op="sum", dtype="u12p", verify="full", device="cpu")
