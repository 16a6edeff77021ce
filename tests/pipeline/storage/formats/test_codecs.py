"""Deflated bytes, a part at a time: as zlib decodes them at once, to exactly their length, without a second copy; and
Zstandard."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.storage.formats import codecs
from pipeline.storage.formats.codecs import GZIP, GZIP_MAGIC, RAW_DEFLATE, ZLIB, Decoder, Inflate, zstd
from tests.cases.format_case import package_of
from tests.cases.odd_chunks import SKIPPED, frame

SHORT = settings(max_examples=300, deadline=None)


def deflated(content: bytes, bits: int, level: int = 1) -> bytes:
    compress = zlib.compressobj(level, wbits=bits)
    return compress.compress(content) + compress.flush()


@SHORT
@example(bytes(2599), RAW_DEFLATE, 7, 9, 0, 0, b"")  # the end of the input, but not of what it decodes to
@given(
    content=st.one_of(st.binary(max_size=300), st.builds(bytes, st.integers(0, 3000))),
    bits=st.sampled_from([ZLIB, GZIP, RAW_DEFLATE]), at_once=st.integers(1, 70), level=st.sampled_from([0, 1, 9]),
    other=st.integers(-3, 3), cut=st.integers(0, 12), behind=st.binary(max_size=5),
)  # fmt: skip
def test_parts_of_any_size(
    content: bytes, bits: int, at_once: int, level: int, other: int, cut: int, behind: bytes
) -> None:
    """Whatever is expected, cut off or follows."""
    stored, size = deflated(content, bits, level), max(len(content) + other, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codecs, "INFLATED_BYTES", at_once)
        patch.setattr(codecs, "STORED_BYTES", 71 - at_once)
        if bits == GZIP and behind.startswith(GZIP_MAGIC):
            behind = b""
        stored = stored[: len(stored) - cut] if cut else stored + behind
        if cut or size < len(content):
            with pytest.raises((ValueError, zlib.error)):
                Inflate(bits)(memoryview(stored), size)
        elif size > len(content):
            with pytest.raises(ValueError, match=f"{len(content)} bytes where {size} were expected"):
                Inflate(bits)(memoryview(stored), size)
            assert bytes(Inflate(bits, exact=False)(memoryview(stored), size)) == content
        else:
            assert bytes(Inflate(bits)(memoryview(stored), size)) == content


@SHORT
@given(members=st.lists(st.binary(max_size=50), min_size=1, max_size=5), at_once=st.integers(1, 70),
       behind=st.sampled_from([b"", bytes(7)]), other=st.sampled_from([0, 1, -1]))  # fmt: skip
def test_members_of_gzip_follow_one_another(members: list[bytes], at_once: int, behind: bytes, other: int) -> None:
    """Wherever one of them ends; as `gzip.decompress` has them."""
    stored = b"".join(map(gzip.compress, members)) + behind
    content = gzip.decompress(stored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codecs, "STORED_BYTES", at_once)
        if other and len(content) + other >= 0:
            with pytest.raises(ValueError, match="bytes where"):
                Inflate(GZIP)(memoryview(stored), len(content) + other)
        else:
            assert bytes(Inflate(GZIP)(memoryview(stored), len(content))) == content


@SHORT
@given(contents=st.lists(st.tuples(st.binary(max_size=20), st.sampled_from([True, False, None])), min_size=1,
                         max_size=5), other=st.integers(-3, 3), hidden=st.booleans())  # fmt: skip
def test_frames_of_zstandard_follow_one_another(
    contents: list[tuple[bytes, bool | None]], other: int, hidden: bool
) -> None:
    """Those to skip, too. They have exactly the bytes that are expected, or are refused; also where numcodecs hides
    the functions of its library."""
    package_of("numcodecs")
    stored = b"".join(SKIPPED if sized is None else frame(one, sized) for one, sized in contents)
    content = b"".join(one for one, sized in contents if sized is not None)
    if not content or len(content) + other <= 0:
        return
    with pytest.MonkeyPatch.context() as patch:
        if hidden:
            patch.setattr(codecs, "_zstd_library", lambda: None)
        if other:
            with pytest.raises((ValueError, RuntimeError)):
                zstd(memoryview(stored), len(content) + other)
        else:
            assert bytes(zstd(memoryview(stored), len(content))) == content


@pytest.mark.parametrize("sizes", [[True], [False], [True, True], [None, True], [False, False]])
def test_frames_of_zstandard_are_decoded_once(monkeypatch: pytest.MonkeyPatch, sizes: list[bool | None]) -> None:
    """Several, those without a size, and one behind a frame to skip were decoded two or three times."""
    package_of("numcodecs")
    library, calls = codecs._zstd_library(), []
    assert library is not None

    def decompress(*arguments: Any) -> int:
        calls.append(arguments)
        return int(library.ZSTD_decompress(*arguments))

    counted = SimpleNamespace(ZSTD_decompress=decompress, ZSTD_isError=library.ZSTD_isError)
    monkeypatch.setattr(codecs, "_zstd_library", lambda: counted)
    monkeypatch.setattr(package_of("numcodecs.zstd"), "decompress", decompress)
    stored = b"".join(SKIPPED if sized is None else frame(bytes(range(50)), sized) for sized in sizes)
    number = 50 * sum(sized is not None for sized in sizes)
    assert len(zstd(memoryview(stored), number)) == number
    assert len(calls) == 1


def test_damaged_zstandard_is_refused() -> None:
    package_of("numcodecs")
    with pytest.raises(ValueError, match=r"Zstandard: .*, 50 bytes were expected"):
        zstd(memoryview(frame(bytes(50), True)[:-1]), 50)


def test_a_chunk_has_its_place_and_no_second_one() -> None:
    samples = np.random.default_rng(0).integers(0, 4, 2**22, dtype=np.int32)
    stored: Any = memoryview(deflated(samples.tobytes(), ZLIB))
    target = np.empty_like(samples)
    tracemalloc.start()
    try:
        assert Decoder((Inflate(ZLIB),), samples.dtype).into(stored, target)
        assert tracemalloc.get_traced_memory()[1] < samples.nbytes // 2
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(target, samples)
