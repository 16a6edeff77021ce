"""Checksums behind chunks: the kernel beside libraries, and what its wrapper refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common.checksums import agree
from kernels.common.decompress import MOST_BYTES
from tests.cases.case import RANDOM, Case
from tests.cases.checksums_small import agreeing, behind, checksums_cases, crc32c, fletcher32
from tests.cases.format_case import package_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", [*checksums_cases()], ids=str)
def test_small_inputs(cp: Any, case: Case) -> None:
    case.check(cp)


@pytest.mark.parametrize("size", [0, 1, 9, 1000, 4099])
def test_definitions_are_those_of_libraries(tmp_path: Path, cp: Any, size: int) -> None:
    data = RANDOM(size).bytes(size)
    library = package_of("google_crc32c")
    assert crc32c(data) == library.value(data)
    if size:
        with package_of("h5py").File(tmp_path / "a.h5", "w") as file:
            made = file.create_dataset("a", data=np.frombuffer(data, np.uint8), chunks=(size,), fletcher32=True)
            stored = made.id.read_direct_chunk((0,))[1]
        assert stored == behind(data, fletcher32(data)) and agreeing(cp, [stored], "Fletcher32") == [1]


@pytest.mark.hardware
@pytest.mark.parametrize("checksum", ["Crc32c", "Fletcher32"])
def test_chunks_of_a_gibibyte(cp: Any, checksum: str) -> None:
    """Zeros, of which a sum is 0 and CRC-32C is not."""
    stored = cp.zeros(MOST_BYTES, np.uint8)
    value = 0 if checksum == "Fletcher32" else package_of("google_crc32c").value(bytes(MOST_BYTES - 4))
    stored[-4:] = cp.asarray(np.frombuffer(value.to_bytes(4, "little"), np.uint8))
    starts, sizes = np.array([0, 2]), np.array([MOST_BYTES, MOST_BYTES - 3])
    assert agree(stored, starts[:1], sizes[:1], checksum).get().tolist() == [1]
    stored[5] = 1
    assert agree(stored, starts, sizes, checksum).get().tolist() == [0, 0]


def test_nothing(cp: Any) -> None:
    none = np.zeros(0, np.int64)
    assert agree(cp.zeros(0, np.uint8), none, none, "Crc32c").shape == (0,)


def test_what_is_refused(cp: Any) -> None:
    stored, one = cp.zeros(40, np.uint8), np.ones(1, np.int64)
    for given, text in (
        ((stored, one, one, "Adler"), r"checksum: expected one of \('Crc32c', 'Fletcher32'\), got 'Adler'"),
        ((stored.view(np.int8), one, one, "Crc32c"), "stored: expected uint8, got int8"),
        ((stored[::2], one, one, "Crc32c"), "stored: expected C-contiguous memory"),
        ((stored, one, np.ones(2, np.int64), "Crc32c"), "all input arrays must have the same shape"),
        ((stored, one, (MOST_BYTES + 1) * one, "Crc32c"), f"at most {MOST_BYTES} bytes, got {MOST_BYTES + 1}"),
        ((stored, one, 40 * one, "Crc32c"), "expected chunks inside of 40 bytes, got some outside"),
        ((stored, -one, one, "Crc32c"), "got some outside"),
        ((stored, one, -one, "Crc32c"), "got some outside"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            agree(*given)
