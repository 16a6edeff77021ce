"""Which errors pass in elements far below the largest ones of their rows: one in a product at a time, in hard products.

python -m tests.benchmarks OUT_FOLDER --only hidden_errors
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from kernels.matmul import check_floats
from kernels.matmul.check_each import EachCheck, functions
from kernels.matmul.check_floats import FloatCheck
from kernels.matmul.check_library import LibraryCheck
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS
from tests.benchmarks.markdown import table
from tests.benchmarks.product_errors import HARD
from tests.cases.matmul import KINDS, factors, on_cpu
from tests.cases.matmul_checks import WAYS

Array = NDArray[Any]
SHORT = "short sums"


def one_huge(dtype: str, size: int, random: np.random.Generator) -> tuple[Array, Array]:
    """One number in each row of A and in each column of B is huge."""
    a, b = random.standard_normal((2, size, size))
    huge, every = 2.0 ** (FORMATS[dtype].top * 3 // 8), np.arange(size)
    a[every, random.permutation(size)] *= huge
    b[random.permutation(size), every] *= huge
    return a.astype(dtype), b.astype(dtype)


def nothing_left(dtype: str, size: int, random: np.random.Generator) -> tuple[Array, Array]:
    """All but the diagonal cancels to zero."""
    places = np.arange(size)
    signs = 1.0 - 2 * (np.bitwise_count(places[:, None] & places) % 2)
    return signs.astype(dtype), (1.5 * signs.T).astype(dtype)


HOSTILE: dict[str, Callable[[str, int, np.random.Generator], tuple[Array, Array]]] = {
    **{f"{kind} sums": make for kind, make in HARD.items()}, "one huge": one_huge, "nothing left": nothing_left,
}  # fmt: skip


def measure(trials: int = 20, ways: tuple[str, ...] = (SHORT, *WAYS, "library")) -> dict[str, Any]:
    """How many errors of each kind were planted, and how many passed, by the way to check."""
    rows = [row for way in ways for dtype in FORMATS for row in _of_kinds(_rows(way, dtype, trials))]
    names = list(dict.fromkeys(row["error"] for row in rows))
    lines = [
        [way, dtype, *(_told([row for row in rows if (row["way"], row["dtype"], row["error"]) == (way, dtype, name)])
                       for name in names)]
        for way in ways for dtype in FORMATS
    ]  # fmt: skip
    print(table(["passed", "", *names], lines))
    return {"rows": rows}


def _of_kinds(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those of all kinds of products together, by error; and of which kinds errors passed."""
    by_error: dict[str, dict[str, Any]] = {}
    for row in rows:
        start = {
            "way": row["way"],
            "dtype": row["dtype"],
            "error": row["error"],
            "planted": 0,
            "passed": 0,
            "kinds": [],
        }
        sums = by_error.setdefault(row["error"], start)
        sums["planted"] += row["planted"]
        sums["passed"] += row["passed"]
        sums["kinds"] += [row["kind"]] * (row["passed"] > 0)
    yield from by_error.values()


def _told(rows: list[dict[str, Any]]) -> str:
    passed, planted = (sum(row[name] for row in rows) for name in ("passed", "planted"))
    return f"{passed} of {planted}"


def _rows(way: str, dtype: str, trials: int) -> Iterator[dict[str, Any]]:
    size = 8 if way == SHORT else 48
    for kind in (*KINDS, *HOSTILE):
        random = np.random.default_rng(7)
        a, b = HOSTILE[kind](dtype, size, random) if kind in HOSTILE else factors(kind, dtype, size, size, size)
        with np.errstate(all="ignore"):
            wide = np.float32 if dtype == "float16" else dtype
            right = (a.astype(wide) @ b.astype(wide)).astype(dtype) if way == "library" else on_cpu(a, b)
            assert not _found(way, a, b, right, 0), "a right product"
            for name, change in changes(dtype):
                planted = passed = 0
                for trial in range(trials):
                    wrong, place = (
                        right.copy(),
                        tuple(random.integers(0, right.shape) if trial else (size - 1, size - 1)),
                    )
                    wrong[place] = change(right[place])
                    if wrong[place].tobytes() != right[place].tobytes():
                        planted += 1
                        passed += not _found(way, a, b, wrong, trial)
                yield {"way": way, "dtype": dtype, "kind": kind, "error": name, "planted": planted, "passed": passed}


def changes(dtype: str) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Names of errors, and what they make of an element."""
    bits, mantissa = 8 * np.dtype(dtype).itemsize, FORMATS[dtype].precision - 1
    yield "zero", lambda element: 0
    for name, bit in (("sign", bits - 1), ("exponent", mantissa), ("exponent, high", bits - 2),
                      ("first bit", mantissa - 1), ("last bit", 0)):  # fmt: skip

        def flipped(element: Any, bit: int = bit) -> Any:
            words = np.array(element).view(f"u{bits // 8}")
            return (words ^ words.dtype.type(1 << bit)).view(dtype)

        yield name, flipped
    yield "NaN", lambda element: np.nan
    yield "infinity", lambda element: np.inf
    yield "largest", lambda element: np.finfo(dtype).max
    yield "least", lambda element: np.finfo(dtype).smallest_subnormal


def _found(way: str, a: Array, b: Array, product: Array, seed: int) -> list[str]:
    given = Factors.of(a, b), product.shape, FORMATS[product.dtype.name]
    if way == SHORT:
        library = functions()
        assert library
        return EachCheck(library, *given).wrong(product)
    compiled, random = way.startswith("compiled"), np.random.default_rng(seed)

    def sums(check: FloatCheck, *sizes: int) -> bool:
        return way.endswith("sums") and (compiled or check.format.dtype != "float16")

    with ExitStack() as stack:
        for name, value in (("COMPILED", 0 if compiled else 2**60), ("HEIGHT", 0)):
            stack.enter_context(patch.object(check_floats, name, value))
        if way != "library":
            stack.enter_context(patch.object(FloatCheck, "_worth_it", sums))
        return (LibraryCheck if way == "library" else FloatCheck)(*given, random).wrong(product)
