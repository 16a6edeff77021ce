"""The tables of docs/matmul.md, from recorded figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.markdown import share, table

Case = Mapping[str, Any]
# Names in docs/matmul.md for cases of `matmul_small.py`; the others keep their own.
NAMES = {"12 x 12": "12²", "a row of zeros": "a row of zeros in each A"}


def large(cases: Sequence[Case]) -> str:
    """Share of cuBLAS, by dtype and size."""
    sizes = sorted({case["size"] for case in cases})
    shares = {(case["dtype"], case["size"]): share(case["share of cublas"]) for case in cases}
    rows = [[f"{dtype}, normally distributed", *(shares[dtype, size] for size in sizes)]
            for dtype in ("float64", "float32")]  # fmt: skip
    return table(["share of cuBLAS", *(f"{size}²" for size in sizes)], rows)


def hard(cases: Sequence[Case]) -> str:
    """Number of elements computed term by term, and the remaining speed."""
    rows = [[case["what"], _percent(case["share of elements term by term"]), share(case["share of cublas"])]
            for case in cases]  # fmt: skip
    return table([f"float64, {cases[0]['size']}²", "elements term by term", "share of cuBLAS"], rows)


def small(cases: Sequence[Case]) -> str:
    """GB/s, share of the limit, and the ratio to cuBLAS."""
    by_key = {(case["dtype"], case["size"]): case for case in cases}
    sizes = sorted({case["size"] for case in cases})
    columns = [f"{by_key['float32', size]['matrices']:,} of {size}²" for size in sizes]
    rows = []
    for dtype in ("float32", "float64"):
        texts = []
        for size in sizes:
            case = by_key[dtype, size]
            texts.append(f"{case['GB/s']['ours']:.0f}, {share(case['share of the limit'])} of the limit, "
                         f"{share(case['times cublas'])} × cuBLAS")  # fmt: skip
        rows.append([dtype, *texts])
    return table(["GB/s", *columns], rows)


def odd(figures: Case) -> str:
    """GB/s, and the number of elements computed term by term."""
    cases = sorted(figures["other cases"], key=lambda case: float(case["share of elements term by term"]))
    rows = [[NAMES.get(case["what"], case["what"]), _percent(case["share of elements term by term"]),
             f"{case['GB/s']:.0f}"] for case in cases]  # fmt: skip
    matrices = next(case["matrices"] for case in figures["cases"] if case["size"] == 16)
    return table([f"float64, {matrices:,} of 16²", "elements term by term", "GB/s"], rows)


def _percent(number: float) -> str:
    return f"{100 * number:.2g} %"
