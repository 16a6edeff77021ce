"""Samples reach compiled checks in C++, and others in Python, in order; errors are those of other reads."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.reduce.check import reduce_check
from kernels.reduce.partial import DTYPES, PARTS
from kernels.reduce.reference import reduce_reference
from pipeline.errors import PipelineError
from pipeline.storage import feed as storage_feed
from pipeline.storage.chunks import Chunk, Region
from pipeline.storage.feed import feed
from pipeline.storage.pieces import Piece
from tests.cases.aggregation_checks import Plain
from tests.pipeline.storage.test_blocks import piece_of

SOURCE = storage_feed.SOURCE
ALL = PARTS[-1]
TINY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def whole(samples: NDArray[Any], options: Any) -> NDArray[Any]:
    return samples


def chunk_of(path: Path, dtype: str, samples: int, pieces: int = 1) -> tuple[Chunk, NDArray[Any]]:
    """Random bits in a file, of which every piece is one part; and the samples."""
    item = np.dtype(dtype)
    content = np.random.default_rng(samples).integers(0, 256, samples * item.itemsize, np.uint8).view(item)
    content.tofile(path)
    cuts = np.linspace(0, samples, pieces + 1).astype(int) * item.itemsize
    parts = [piece_of(path, int(first), int(last - first)) for first, last in itertools.pairwise(cuts)]
    return Chunk(0, tuple(parts), item), content


@TINY
@given(
    dtype=st.sampled_from(DTYPES), order=st.sampled_from("<>"), samples=st.integers(1, 700), pieces=st.integers(1, 4),
    block=st.integers(8, 999), data=st.data(),
)  # fmt: skip
@pytest.mark.usefixtures("compiled")
def test_every_sample_once_in_order(
    tmp_path: Path, dtype: str, order: str, samples: int, pieces: int, block: int, data: st.DataObject
) -> None:
    """In blocks of any length, in either byte order; the partial tells positions, so their order too."""
    chunk, content = chunk_of(tmp_path / "x.bin", order + np.dtype(dtype).str[1:], samples, pieces)
    start = data.draw(st.integers(0, samples))
    region = Region(start, data.draw(st.integers(0, samples - start)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_feed, "BLOCK_BYTES", block)
        check, plain = reduce_check(chunk.dtype, ALL), Plain(whole, None)
        assert check is not None
        for checks in ([check], [plain]):
            copied = feed(chunk, checks, region)
            assert copied.tobytes() == content[start : start + region.samples].tobytes()
    assert plain.partial().tobytes() == content.tobytes()
    expected = reduce_reference(content, ALL)
    np.testing.assert_array_equal(check.partial(), expected)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("several", [1, 3])
def test_compiled_checks_get_no_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: int) -> None:
    """Each of them gets all samples from C++; beside a check that is not compiled, from Python."""
    chunk, content = chunk_of(tmp_path / "x.bin", "<i4", 300_000)
    checks = [reduce_check(chunk.dtype, ALL) for _ in range(several)]
    with monkeypatch.context() as patch:
        patch.setattr(storage_feed.CompiledCheck, "add", lambda *_: pytest.fail("got an array"))
        feed(chunk, [check for check in checks if check], Region(0, 0))
    for check in checks:
        assert check is not None
        np.testing.assert_array_equal(check.partial(), reduce_reference(content, ALL))
        feed(chunk, [check, Plain(whole, None)], Region(0, 0))
        assert check.partial()[2] == 600_000


@pytest.mark.usefixtures("compiled")
def test_what_cannot_be_read_at_once_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Python, block by block, whose errors say what is wrong."""
    chunk, content = chunk_of(tmp_path / "x.bin", ">f4", 300_001)
    check, asked = reduce_check(chunk.dtype, ALL), []
    assert check is not None

    class Failing:
        def __call__(self, *arguments: Any) -> int:
            asked.append(arguments[2])
            return 0

    monkeypatch.setattr(cxx, "library", lambda source: SimpleNamespace(feed=Failing()))
    feed(chunk, [check], Region(0, 0))
    np.testing.assert_array_equal(check.partial(), reduce_reference(content, ALL))
    assert asked == [content.nbytes - at for at in range(0, content.nbytes, storage_feed.BLOCK_BYTES)]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("left", [0, 4, 399_996])
def test_a_file_that_ends_early(tmp_path: Path, left: int) -> None:
    """It was planned longer; size and time are not known, as of a file that the run writes."""
    path = tmp_path / "x.bin"
    np.zeros(left // 4, np.int32).tofile(path)
    chunk = Chunk(0, (Piece(str(path), 0, 400_000, None),), np.dtype("<i4"))
    check = reduce_check(chunk.dtype, ALL)
    assert check is not None
    with pytest.raises(PipelineError, match=rf"x\.bin: ended at byte {left}, expected 400000"):
        feed(chunk, [check], Region(0, 0))
