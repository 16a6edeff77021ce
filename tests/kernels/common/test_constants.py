"""Constants that Python reads from CUDA sources."""

from pathlib import Path

import pytest

from kernels.common.constants import constant, constant_array

SOURCE = """
// constexpr int THREADS = 1;
constexpr int THREADS = 256;  // constexpr int THREADS = 2;
/* constexpr int THREADS = 3; */
constexpr int SIDE = 16, DEPTH = 64;
constexpr unsigned int MASK = 0xff;
constexpr int MOST = 1 << 20, LEAST = -5;
constexpr int LATER = SIDE * 2, MODULI[] = {256, 255,
                                            253, 1 << 7};
int variable = 3;
constexpr int twice(int x) { variable = 4; return 2 * x; }
template <int N> struct Line {
    static constexpr int WORDS = 4;
    static constexpr int HALF = N / 2;
    void set() { if constexpr (N > 2) variable = 5; }
};
struct One { static constexpr int TWICE = 1; };
struct Two { static constexpr int TWICE = 2; };
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.cuh"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(
    ("name", "value"),
    [("THREADS", 256), ("SIDE", 16), ("DEPTH", 64), ("MASK", 255), ("MOST", 2**20), ("LEAST", -5), ("WORDS", 4)],
)
def test_value_is_that_of_the_declaration_and_of_no_comment(source: Path, name: str, value: int) -> None:
    assert constant(source, name) == value


@pytest.mark.parametrize("name", ["TWICE", "variable", "LATER", "HALF", "MODULI", "twice", "ABSENT", "EPTH"])
def test_anything_but_one_number_is_an_error(source: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"expected one constexpr {name} with numbers .*source\.cuh, got [02]"):
        constant(source, name)


def test_array_of_numbers(source: Path) -> None:
    assert constant_array(source, "MODULI") == (256, 255, 253, 128)
    with pytest.raises(ValueError, match="SIDE"):
        constant_array(source, "SIDE")
