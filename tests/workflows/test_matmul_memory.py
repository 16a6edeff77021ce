"""Device memory of a product: the plan, the actual allocations, and a limit."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.engine.array_task
import pipeline.engine.task_memory
import workflows.matmul
from kernels.matmul.cpu_narrow import cpu_bytes
from kernels.matmul.memory import device_bytes
from pipeline.cluster.placement import Placement
from pipeline.engine.array import run_array
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.matmul import factors, same_bits, strange
from workflows.matmul import AMPLE, COPIES, COPIES_OF_SMALL, MATMUL, MatmulOptions, slabs
from workflows.matmul import SMALL as SMALL_TASK
from workflows.regions import Bounds, Spec, sizes

SMALL = 1024  # bytes of counters, and of padding planes to 16 bytes
PAIRS = [("float16", "float16"), ("float32", "float32"), ("float64", "float64"), ("float32", "float64"),
         ("int8", "int8"), ("uint16", "int64")]  # fmt: skip


def bytes_of(specs: list[Spec], region: Bounds, nbytes: float = math.inf) -> int:
    """Planned device memory for a region of one matrix, in a task of so many bytes."""
    output = MATMUL.outline(specs, MatmulOptions()).dtype
    rows, columns = sizes(region)
    inner, given = specs[0].shape[-1], (specs[0].dtype, specs[1].dtype)
    dtypes = (output, output) if output.kind == "f" else given
    _, read = slabs(region, specs, MatmulOptions(), nbytes)[0]
    return device_bytes(dtypes, output, (1, rows, read, columns), inner, given)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("inner", [1, 64, 4096, 100_000])
def test_regions_take_no_more_than_the_run_counts_on(pair: tuple[str, str], inner: int) -> None:
    assert COPIES == pipeline.engine.task_memory.COPIES
    specs = [Spec((9_000, inner), np.dtype(pair[0])), Spec((inner, 7_000), np.dtype(pair[1]))]
    output = MATMUL.outline(specs, MatmulOptions())
    each = output.dtype.itemsize + sum(spec.dtype.itemsize for spec in specs)
    for nbytes in (2**20, 2**23, 2**26, 2**28):
        regions = list(MATMUL.regions(specs, output, MatmulOptions(), nbytes // each))
        some = regions[:: max(1, len(regions) // 9)]
        copies = COPIES_OF_SMALL if nbytes < SMALL_TASK else COPIES
        assert max(bytes_of(specs, region, nbytes) for region in some) <= copies * nbytes
        assert nbytes >= AMPLE or max(held(specs, output, region, nbytes) for region in some) <= nbytes
        assert sum(int(np.prod(sizes(region))) for region in regions) == output.size


def held(specs: list[Spec], output: Spec, region: Bounds, nbytes: float) -> int:
    """Bytes of the output and of a slab."""
    (rows, columns), (_, read) = sizes(region), slabs(region, specs, MatmulOptions(), nbytes)[0]
    of_slab = read * (rows * specs[0].dtype.itemsize + columns * specs[1].dtype.itemsize)
    return rows * columns * output.dtype.itemsize + of_slab


SHAPES = [(1, 1, 2**22), (2**22, 1, 1), (1, 2**22, 1), (1, 2048, 2048), (2048, 2048, 1), (16, 2**18, 16),
          (2**18, 1, 16), (16, 1, 2**18), (64, 2**16, 64), (3, 2**20, 1), (2048, 2048, 2048), (130, 4000, 7),
          (1, 7, 2**20)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_small_tasks_use_their_memory(shape: tuple[int, int, int], dtype: str) -> None:
    """Of thin and long matrices, too: no task takes more than its share, and there are few that take little of it."""
    rows, inner, columns = shape
    specs = [Spec((rows, inner), np.dtype(dtype)), Spec((inner, columns), np.dtype(dtype))]
    output = MATMUL.outline(specs, MatmulOptions())
    each = output.dtype.itemsize + sum(spec.dtype.itemsize for spec in specs)
    for nbytes in (2**14, 2**18, 2**21, 2**24):
        regions = list(MATMUL.regions(specs, output, MatmulOptions(), nbytes // each))
        assert sum(math.prod(sizes(region)) for region in regions) == output.size
        some = regions[:: max(1, len(regions) // 9)]
        taken = [held(specs, output, region, nbytes) for region in some]
        workspaces = [bytes_of(specs, region, nbytes) for region in some]
        assert max(taken) <= nbytes and max(workspaces) <= COPIES_OF_SMALL * nbytes
        for region in some:
            parts = slabs(region, specs, MatmulOptions(), nbytes)
            assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])] and parts[-1][1] == inner
        height, width = sizes(regions[0])
        assert height == rows or width == columns or max(height, width) < 3 * min(height, width)
        if len(regions) > 1 and inner > 128:
            part = slabs(regions[0], specs, MatmulOptions(), nbytes)[0][1]
            dtypes = (output.dtype,) * 2 if output.dtype.kind == "f" else (specs[0].dtype, specs[1].dtype)
            on_cpu = max(taken) + cpu_bytes(dtypes, output.dtype, (1, height, part, width))
            shares = max(workspaces) / COPIES_OF_SMALL, on_cpu / COPIES, max(taken)
            assert max(shares) > nbytes / 3


def test_slabs_fit_also_if_regions_were_cut_for_more() -> None:
    """As by an earlier run, which had no limit."""
    specs = [Spec((4096, 4096), np.dtype("float32"))] * 2
    output = MATMUL.outline(specs, MatmulOptions())
    for nbytes in (2**25, 2**24, 2**23):
        read = [held(specs, output, ((0, 1024), (0, 1024)), within) for within in (nbytes, math.inf)]
        assert 2**22 < read[0] <= nbytes < read[1] or (nbytes == 2**25 and read[0] == read[1])


@pytest.mark.parametrize("limit", [2**18, 2**21])
@pytest.mark.parametrize("shape", [(300, 2000, 250), (1, 5000, 100), (400, 300, 1)])
def test_a_run_reads_no_more_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], limit: int
) -> None:
    """What is read of both factors, to compute or to check, and the output of a region; the bits of one without."""
    given = factors("ordinary", "float32", *shape)
    sources, read, read_region = [], list[int](), pipeline.engine.array_task.read_region
    for name, array in zip("ab", given, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
        sources.append(open_source((str(tmp_path / f"{name}.npy"),), samples=False))

    def noting(array: Any, bounds: Bounds, *rest: Any) -> Any:
        read.append(math.prod(sizes(bounds)) * array.spec.dtype.itemsize)
        return read_region(array, bounds, *rest)

    monkeypatch.setattr(pipeline.engine.array_task, "read_region", noting)
    products = []
    for within in (limit, None):
        path = tmp_path / f"{within}.npy"
        run_array(MATMUL, MatmulOptions(), sources, str(path), Settings(Placement(device="cpu"), verify="full",
                  memory_limit=within))  # fmt: skip
        if within:
            assert 0 < sum(sorted(read)[-2:]) <= limit / COPIES
        products.append(np.load(path))
    same_bits(*products)


OF_SAMPLE = 128  # bytes for each product of an element that is computed in Python's integers


class Reading:
    """Reads blocks of matrices for a task of so many bytes."""

    def __init__(self, factors: tuple[Any, Any], nbytes: float) -> None:
        self.factors, self.nbytes = factors, nbytes

    def __call__(self, number: int, bounds: Bounds) -> Any:
        return np.array(self.factors[number][tuple(slice(*ends) for ends in bounds)])


def peak_of(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """The result of a call, and how much memory NumPy and Python held meanwhile."""
    tracemalloc.start()
    try:
        return function(*arguments), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(1024, 512, 1024), (8, 2**16, 8), (1, 300, 2**16), (2**16, 3, 70)])
@pytest.mark.parametrize("name", ["float16", "float16, sums overflow", "float32", "float32, some NaN", "float64",
                                  "int8", "int32", "uint64"])  # fmt: skip
def test_a_task_keeps_the_limit_on_a_cpu(name: str, shape: tuple[int, int, int]) -> None:
    """Of 4 and 16 MiB. It takes more for the row and the column of an element that is checked to the last bit."""
    name, _, kind = name.partition(", ")
    dtype, options = np.dtype(name), MatmulOptions()
    a, b = (strange if "NaN" in kind else partial(factors, "ordinary"))(name, *shape)
    if "overflow" in kind:
        a, b = 60 * np.sign(a), 60 * np.sign(b)
    specs = [Spec(array.shape, array.dtype) for array in (a, b)]
    output = MATMUL.outline(specs, options)
    if name == "uint64":  # so that sums fit
        a, b = a % 1000, b % 1000
    few = MATMUL.compute(Reading((a, b), math.inf), ((0, 1), (0, 1)), specs, options)  # loads what it needs
    MATMUL.check(Reading((a, b), math.inf), few.elements, ((0, 1), (0, 1)), specs, options, np.random.default_rng(0))
    for limit in (2**22, 2**24):
        nbytes = limit // COPIES
        region = next(
            iter(MATMUL.regions(specs, output, options, nbytes // (output.dtype.itemsize + 2 * dtype.itemsize)))
        )
        read = Reading((a, b), nbytes)
        counted, computing = peak_of(MATMUL.compute, read, region, specs, options)
        checked, checking = peak_of(
            MATMUL.check, read, counted.elements, region, specs, options, np.random.default_rng(0)
        )
        assert not checked.details
        # Elements that are computed term by term take a few MiB beside that, whatever the limit.
        assert (computing <= limit or kind) and checking + counted.elements.nbytes <= limit + OF_SAMPLE * shape[1]


@pytest.mark.parametrize("limit", [2**22, 2**23, 2**26])
def test_a_tight_limit_takes_few_reads(limit: int) -> None:
    """Slabs together: within twice the least that is read for square tiles, if these took all of the memory."""
    side = 2048
    specs = [Spec((side, side), np.dtype("float32"))] * 2
    output = MATMUL.outline(specs, MatmulOptions())
    nbytes = limit // COPIES
    regions = list(MATMUL.regions(specs, output, MatmulOptions(), nbytes // 12))
    read = sum(side * (rows + columns) * 4 for rows, columns in map(sizes, regions))
    of_an_element = device_bytes((specs[0].dtype,) * 2, output.dtype, (1, side, 0, side), side, (output.dtype,) * 2)
    largest = min(side, math.sqrt(COPIES_OF_SMALL * nbytes / (of_an_element / side**2)))
    assert read <= 2 * (2 * side**3 * 4 / largest)


@pytest.mark.parametrize(("nbytes", "most"), [(2**22, 256), (2**24, 56), (2**26, 9)])
@pytest.mark.parametrize("inner", [8192, 2**20])
def test_longer_sums_take_no_more_regions(inner: int, nbytes: int, most: int) -> None:
    """Slabs become shallower instead of tiles smaller."""
    specs = [Spec((4096, inner), np.dtype("float32")), Spec((inner, 4096), np.dtype("float32"))]
    output = MATMUL.outline(specs, MatmulOptions())
    regions = list(MATMUL.regions(specs, output, MatmulOptions(), nbytes // 12))
    assert len(regions) <= most
    for region in regions:
        (*_, read), _ = (sizes(needed) for needed in MATMUL.needs(region, specs, MatmulOptions()))
        assert 0 < read <= 2 * max(128, *sizes(region))


@pytest.mark.gpu
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (40, 200, 30), (70, 64, 3), (3, 129, 90)])
def test_no_more_is_allocated_than_planned(
    cp: Any, monkeypatch: pytest.MonkeyPatch, pair: tuple[str, str], shape: tuple[int, int, int]
) -> None:
    """The sum of all allocations, in slabs and with elements term by term."""
    monkeypatch.setattr(workflows.matmul, "SLAB", 64)
    kinds = ["mixed" if "float" in name else "ordinary" for name in pair]
    a, b = factors(kinds[0], pair[0], *shape)[0], factors(kinds[1], pair[1], *shape)[1]
    taken: list[int] = []
    for name in ("empty", "zeros"):
        make = getattr(cp, name)

        def counted(shape: Any, dtype: Any = float, make: Any = make) -> Any:
            got = make(shape, dtype)
            taken.append(got.nbytes)
            return got

        monkeypatch.setattr(cp, name, counted)

    def read(number: int, bounds: Bounds) -> Any:
        return cp.asarray(np.ascontiguousarray((a, b)[number][tuple(slice(*ends) for ends in bounds)]))

    specs = [Spec(array.shape, array.dtype) for array in (a, b)]
    region = ((0, shape[0]), (0, shape[2]))
    MATMUL.compute(read, region, specs, MatmulOptions())
    slabs = -(-shape[1] // 64)  # each is freed before the next one
    assert max(taken) <= sum(taken) <= slabs * bytes_of(specs, region) + SMALL


@pytest.mark.hardware
@pytest.mark.parametrize("pair", PAIRS)
def test_a_limit_of_device_memory_holds(tmp_path: Path, pair: tuple[str, str]) -> None:
    """Neither factor fits: the same bits as on the CPU, and the pool stays below the limit."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    shape = (600, 9000, 500)
    a, b = factors("ordinary", pair[0], *shape)[0], factors("ordinary", pair[1], *shape)[1]
    sources = []
    for name, array in (("a", a), ("b", b)):
        np.save(tmp_path / f"{name}.npy", array)
        sources.append(open_source((str(tmp_path / f"{name}.npy"),), samples=False))
    products = []
    for device in ("gpu", "cpu"):
        path = tmp_path / f"{device}.npy"
        run_array(MATMUL, MatmulOptions(), sources, str(path), Settings(Placement(device=device), verify="off",
                  device_memory_limit=2**26 if device == "gpu" else None))  # fmt: skip
        products.append(np.load(path))
        if device == "gpu":
            assert cupy.get_default_memory_pool().total_bytes() <= 2**26
    same_bits(*products)
