"""Jobs that write arrays under tight limits of memory, on the CPU and on one GPU: seconds, regions, same bits.

Matrices of many shapes, and limits of a few MiB, down to less than a row. Beside each the same without a limit.

python -m tests.benchmarks.limits OUT.json [MiB]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.common import save
from tests.benchmarks.jobs import MEMORY, gpu_places, one_run

KIB, MIB = 2**10, 2**20
Shape = tuple[int, int]
# Job and its options, dtype, shapes of its inputs if a matrix of 64 MiB has n² numbers, limits in bytes for those.
ROWS: tuple[tuple[tuple[str, ...], str, str, tuple[int, ...]], ...] = (
    (("matmul",), "float32", "n/2 n/2, n/2 n/2", (2 * MIB, 16 * MIB)),
    (("matmul",), "float64", "n/4 n/4, n/4 n/4", (8 * MIB,)),
    (("matmul",), "int32", "n/4 n/4, n/4 n/4", (4 * MIB,)),
    (("matmul",), "float32", "1 n, n n", (MIB,)),
    (("matmul",), "float32", "n n, n 1", (MIB,)),
    (("matmul",), "float32", "n 1, 1 n/4", (MIB,)),
    (("matmul",), "float32", "16 n*n/16, n*n/16 16", (4 * MIB,)),
    (("transpose",), "float64", "n n/2", (MIB, 32 * MIB)),
    (("map", "multiply-add"), "float32", "n n, n n, n n", (MIB, 96 * MIB)),
    (("stencil", "--radius", "1000"), "float32", "2 n*n/2", (MIB,)),
    (("stencil", "--radius", "100"), "int16", "n n*2", (MIB,)),
)


def shapes_of(text: str, n: int) -> list[Shape]:
    """Shapes, from products and quotients of n."""

    def length(word: str) -> int:
        product, _, divisor = word.partition("/")
        factors = (n if factor == "n" else int(factor) for factor in product.split("*"))
        return max(1, int(np.prod(list(factors))) // int(divisor or 1))

    return [(length(one), length(other)) for one, other in (shape.split() for shape in text.split(", "))]


def measure(mebibytes: int = 64) -> Iterator[dict[str, Any]]:
    """All rows, after each of them; `mebibytes`: of a matrix of n² float32."""
    n = int((mebibytes * MIB // 4) ** 0.5) // 16 * 16
    places = {place: visible for place, visible in gpu_places().items() if place in ("CPU", "1 GPU")}
    figures: list[dict[str, Any]] = []
    for words, dtype, shapes, limits in ROWS:
        with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
            paths = []
            for number, shape in enumerate(shapes_of(shapes, n)):
                paths.append(f"{scratch}/{number}.npy")
                values = np.random.default_rng(number).standard_normal(min(MIB, shape[0] * shape[1])) * 100
                np.save(paths[-1], np.resize(values.astype(dtype), shape))
            row: dict[str, Any] = {"job": words, "dtype": dtype, "shapes": shapes_of(shapes, n), "places": {}}
            digests = set()
            for place, visible in places.items():
                for limit in (None, *(max(256 * KIB, limit * mebibytes // 64) for limit in limits)):
                    given = [] if limit is None else ["--memory-limit", str(limit)]
                    given += ["--device-memory-limit", str(limit)] * bool(given and visible)
                    digest, told = one_run([*words, *paths], Path(scratch, "out.npy"), visible, given)
                    digests.add(digest)
                    row["places"][f"{place}, {limit or 'no limit'}"] = told["seconds"], told["chunks"]
            row["identical"] = len(digests) == 1
            figures.append(row)
            print(*lines([row]), sep="\n", flush=True)
            yield {"rows": figures}


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table: job, shapes, whether all bits are the same, seconds and regions in each place."""
    for row in rows:
        what = f"{row['job'][0]} {row['dtype']} {' '.join('×'.join(map(str, shape)) for shape in row['shapes'])}"
        told = "; ".join(f"{place}: {seconds:.2f} s, {regions}" for place, (seconds, regions) in row["places"].items())
        yield f"{what}, {'identical' if row['identical'] else 'DIFFERENT'}: {told}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.limits")
    parser.add_argument("path", metavar="OUT.json", type=Path)
    parser.add_argument("mebibytes", metavar="MiB", type=int, nargs="?", default=64)
    given = parser.parse_args()
    save(measure(given.mebibytes), given.path)
    print(*lines(json.loads(given.path.read_text(encoding="utf-8"))["rows"]), sep="\n")
