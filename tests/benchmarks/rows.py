"""The rows of the README's table of speed: what is required, where it was measured, and what bounds what is short."""

from __future__ import annotations

from functools import partial

from tests.benchmarks.targets import (
    CORES,
    GPU,
    GPUS,
    Need,
    Row,
    against,
    command,
    compiling,
    from_file,
    kernel,
    share,
    small_histogram,
    spread,
    waiting,
)

READ, COPY = "of a plain read", "of a copy"
HISTOGRAM = {"dtype": ["int32"], "edges": ["regular"], "bins": [16, 256, 1024, 4096, 16384]}
AT_1024 = HISTOGRAM | {"bins": [1024]}
OTHERS = {"dtype": ["uint8", "int16", "uint16", "float32", "float64"], "edges": ["regular"]}
IRREGULAR = {"dtype": ["float32"], "edges": ["irregular"]}
MOST = {"dtype": ["int32"], "edges": ["regular"], "bins": [65536]}
CUB_5, CUB_10 = Need(5, "× CUB"), Need(10, "× CUB at 1,024 bins")


def seconds(limit: float, unit: str = "s") -> Need:
    """At most so many."""
    return Need(limit, unit, at_most=True)


def cub(need: Need, **wanted: object) -> partial[object]:
    """Histograms beside CUB's."""
    return partial(against, f"histogram_kernel_{GPU}", need, "CUB", **wanted)


ROWS: tuple[Row, ...] = (
    kernel("histogram int32, 16 … 16,384 bins", Need(0.97, READ), "histogram_kernel", "share of read", **HISTOGRAM,
           peer=CUB_10, peers=cub(CUB_10, **AT_1024),
           bound="all but 1,024 bins are within half a per cent of it; 8 copies of 1,024 counters, which even out the "
                 "distributions, cost the time to clear and to add them up."),
    Row("the same, best distribution over worst", Need(1.03, "", at_most=True),
        partial(spread, f"histogram_kernel_{GPU}", **HISTOGRAM)),
    kernel("histogram uint8, int16, uint16, float32, float64", Need(0.95, READ), "histogram_kernel", "share of read",
           **OTHERS, peer=CUB_5, peers=cub(CUB_5, **OTHERS),
           bound="bins that are no power of two wide take a comparison with both edges of the guessed bin, from shared "
                 "memory; two narrow samples for each four bytes take twice the atomic operations."),
    kernel("histogram float32, irregular edges", Need(0.60, READ), "histogram_kernel", "share of read", **IRREGULAR,
           peer=CUB_5, peers=cub(CUB_5, **IRREGULAR),
           bound="ten dependent loads from shared memory for each sample of a search among 1,024 edges."),
    kernel("histogram int32, 65,536 bins", Need(0.85, READ), "histogram_kernel", "share of read", **MOST,
           peer=CUB_5, peers=cub(CUB_5, **MOST),
           bound="256 KiB of counters exceed the shared memory of a block, so the samples are read twice."),
    Row("histogram of 2^25 int32 on the device, launch included", Need(1.3, "× the time to read them", at_most=True),
        small_histogram,
        bound="three launches (counters cleared, counted, added up) where the floor is one of 29 µs."),
    kernel("exact sum, float32", Need(0.97, READ), "reduce_kernel", "share of read", "sum", dtype=["float32"],
           peer=Need(0.97, "× CUB's sum, which is not exact"),
           peers=partial(against, f"reduce_kernel_{GPU}", Need(0.97, ""), "cupy.sum", "sum", dtype=["float32"]),
           bound="emptying and rounding around a launch take 2 % of 1 GiB; exponents spread over the whole range need "
                 "more digits than registers hold."),
    kernel("exact sum, float64", Need(0.90, READ), "reduce_kernel", "share of read", "sum", dtype=["float64"],
           peer=Need(0.97, "× CUB's sum, which is not exact"),
           peers=partial(against, f"reduce_kernel_{GPU}", Need(0.97, ""), "cupy.sum", "sum", dtype=["float64"]),
           bound="exponents spread over the whole range are counted by atomic operations in shared memory."),
    kernel("sum, mean, variance, minimum, maximum in one pass, float32 and float64", Need(0.90, READ), "reduce_kernel",
           "share of read", "everything", dtype=["float32", "float64"],
           bound="squares of float64 of any bits are counted by atomic operations in shared memory, four or five a "
                 "number."),
    kernel("transpose, items of 4 and 8 bytes", Need(0.97, COPY), "copy_kernel", "share of copy",
           under="transpose", itemsize=[4, 8], peer=Need(3, "× cupy.copyto(o, a.T)"),
           peers=partial(against, f"copy_kernel_{GPU}", Need(3, ""), "cupy", under="transpose", itemsize=[4, 8])),
    kernel("transpose, items of 1, 2 and 16 bytes", Need(0.90, COPY), "copy_kernel", "share of copy",
           under="transpose", itemsize=[1, 2, 16], peer=Need(3, "× cupy.copyto(o, a.T)"),
           peers=partial(against, f"copy_kernel_{GPU}", Need(3, ""), "cupy", under="transpose", itemsize=[1, 2, 16])),
    kernel("stencil, plain sums, any radius to 4,096", Need(0.90, COPY), "stencil_kernel", "share of copy",
           under="plain", radius=range(4097), peer=Need(1, "× cupyx.scipy.ndimage"),
           peers=partial(against, f"stencil_kernel_{GPU}", Need(1, ""), "uniform", under="plain", radius=range(4097)),
           bound="floats with exponents further apart than 128 bits are added up as digits of 32 bits, a thread for "
                 "each window; among ordinary numbers float64 at a radius of 4,096 is the slowest (0.74), where a ring "
                 "of a window's elements leaves room for two blocks."),
    kernel("stencil, weighted, radius to 16", Need(0.93, COPY), "stencil_kernel", "share of copy",
           under="weighted", radius=range(17), peer=Need(1, "× cupyx.scipy.ndimage"),
           peers=partial(against, f"stencil_kernel_{GPU}", Need(1, ""), "correlate", under="weighted",
                         rates="Tflop/s", radius=range(17)),
           bound="products and sums are rounded one by one, as NumPy does it, so that a multiply-add counts twice: 33 "
                 "taps take longer than the copy."),
    kernel("stencil, weighted, radius 1,000", Need(0.80, "of the rate of products and sums"), "stencil_kernel",
           "share of these", under="weighted", radius=[1000]),
    kernel("elementwise", Need(0.99, COPY), "copy_kernel", "share of copy", under="elementwise",
           peer=Need(1, "× CuPy"),
           peers=partial(against, f"copy_kernel_{GPU}", Need(1, ""), "cupy", under="elementwise")),
    kernel("matmul float64, 4,096² … 16,384²", Need(0.95, "of cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float64"],
           bound="exact, with the same bits everywhere: 16 products of 8-bit integers, at half of the peak rate of "
                 "INT8, which is all that mma.sync reaches."),
    kernel("matmul float32, 4,096² … 16,384²", Need(0.98, "of cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float32"]),
    kernel("matmul float32 from split products", Need(2, "× cuBLAS"), "matmul_kernel", "share of cublas",
           under="split cases",
           ),
    kernel("batched matmul 16², 32², 64²", Need(0.85, "of the lower limit"), "matmul_small", "share of the limit",
           size=[16, 32, 64], peer=Need(2.5, "× cuBLAS at 16²"),
           peers=partial(share, f"matmul_small_{GPU}", Need(2.5, ""), "times cublas", size=[16])),
    kernel("batched matmul 256²", Need(0.95, "of cuBLAS"), "matmul_small", "times cublas", size=[256]),
    Row("file in the page cache, one GPU", Need(0.90, "of pinned memory to the device"),
        partial(from_file, GPU, "one GPU", "pinned"), Need(15, "× dask.array.histogram over CuPy"),
        partial(from_file, GPU, "one GPU", "dask"),
        bound="the bytes pass through pinned memory of the reader, which copies them once in the host's memory."),
    Row("file in the page cache, four GPUs", Need(0.85, "of pinned memory to all four"),
        partial(from_file, GPUS, "4 GPUs", "pinned")),
    Row("command on 2^25 samples, one GPU", seconds(1.6), partial(waiting, GPU, "command, seconds", "warm")),
    Row("the same, kernels compiled first", seconds(2, "s more"),
        partial(compiling, GPU)),
    Row("command on 2^25 samples, four GPUs", seconds(4), partial(waiting, GPUS, "command, seconds", "warm")),
    Row("--help", seconds(0.3), partial(waiting, GPU, "command, seconds", "help")),
    Row("scheduling of 10,000 chunks", Need(0.01, "of the run", at_most=True),
        partial(waiting, CORES, "scheduling", "share")),
    Row("planning of 100,000 chunks", seconds(1), partial(waiting, GPU, "planning", "seconds")),
    Row("memory that it takes", Need(200, "MB", at_most=True), partial(waiting, GPU, "planning", "megabytes")),
    Row("histogram, 4 GiB of int32, two CPU cores, whole command", Need(1, "× the fastest peer"),
        partial(command, "histogram")),
    Row("sum, mean, variance, minimum, maximum, 4 GiB of float32, two CPU cores, whole command",
        Need(1, "× the fastest peer"), partial(command, "reduce")),
    Row("matmul, 256 MiB of float32, two CPU cores, whole command", Need(1, "× the fastest peer"),
        partial(command, "matmul"),
        bound="exact products are five or more of BLAS in float64 where NumPy has one in float32, and each is checked; "
              "the rest is cutting into pieces and carrying, a pass of NumPy each."),
)  # fmt: skip
