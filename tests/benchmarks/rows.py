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
    slowest,
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
CUB_5, CUB_10 = Need(5, "× CUB, worst beside worst"), Need(10, "× CUB at 1,024 bins, worst beside worst")


def seconds(limit: float, unit: str = "s") -> Need:
    """At most so many."""
    return Need(limit, unit, at_most=True)


def cub(need: Need, **wanted: object) -> partial[object]:
    """Histograms beside CUB's."""
    return partial(slowest, f"histogram_kernel_{GPU}", need, "CUB", **wanted)


def transposes(what: str, need: Need, dtypes: list[str], bound: str) -> Row:
    """Matrices beside a copy and CuPy's."""
    name, wanted, peer = "copy_kernel", {"under": "matrices", "dtype": dtypes}, Need(3, "× cupy.copyto(o, a.T)")
    beside = partial(against, f"{name}_{GPU}", peer, "cupy", rates="share of copy", **wanted)
    return kernel(what, need, name, "share of copy", "ours", bound=bound, peer=peer, peers=beside, **wanted)


ROWS: tuple[Row, ...] = (
    kernel("histogram int32, 16 … 16,384 bins", Need(0.97, READ), "histogram_kernel", "share of read", **HISTOGRAM,
           peer=CUB_10, peers=cub(CUB_10, **AT_1024),
           bound="0.97 to 0.98 against reads of 4,500 GB/s in another run, 0.94 to 0.97 here, where they reach 4,580: "
                 "counters are cleared by a launch of its own, and merging those of 16,384 bins takes 1.3 %. Two "
                 "copies with a bank of its own for each lane's neighbours brought the worst distribution from 0.78 to "
                 "the others."),
    Row("the same, best distribution over worst", Need(1.03, "", at_most=True),
        partial(spread, f"histogram_kernel_{GPU}", **HISTOGRAM)),
    kernel("histogram uint8, int16, uint16, float32, float64", Need(0.95, READ), "histogram_kernel", "share of read",
           **OTHERS, peer=CUB_5, peers=cub(CUB_5, **OTHERS),
           bound="float16 is not among them; what is short is float32 with 1,000 bins, where samples beside an edge "
                 "are compared with it: eight loads in flight gave 0.97 and 0.95 with two, 0.22 where every sample is "
                 "an edge. 16-bit samples take two atomic operations for each four bytes: from 0.33 and 0.84 to 0.94 "
                 "by a line checked for all values."),
    kernel("histogram float32, irregular edges", Need(0.60, READ), "histogram_kernel", "share of read", **IRREGULAR,
           peer=CUB_5, peers=cub(CUB_5, **IRREGULAR),
           bound="a table of cells, then one comparison: 0.60 to 0.71, but of zipf most samples fall in few cells of "
                 "many edges and on few counters, which takes 92 % of the load and store unit. A loop over the cell's "
                 "thresholds gave 0.43, a search among all edges 0.13."),
    kernel("histogram int32, 65,536 bins", Need(0.85, READ), "histogram_kernel", "share of read", **MOST,
           peer=CUB_5, peers=cub(CUB_5, **MOST),
           bound="256 KiB of counters exceed the shared memory of a block, so two multiprocessors look at each sample. "
                 "Packed counters of 16 bits gave 0.74 on uniform and 0.22 on constant samples, two launches 0.46."),
    Row("histogram of 2^25 int32 on the device, launch included", Need(1.3, "× a read of them", at_most=True),
        small_histogram),
    kernel("exact sum, float32", Need(0.97, READ), "reduce_kernel", "share of read", "sum", dtype=["float32"],
           peer=Need(0.97, "× CUB's sum, which is not exact"),
           peers=partial(against, f"reduce_kernel_{GPU}", Need(0.97, ""), "cupy.sum", "sum", dtype=["float32"]),
           bound="ordinary numbers 0.96: of 10 µs over the read 2 to 3 are the last block's, which makes one of what "
                 "all have left, and multiprocessors end 6 µs apart. Tiles handed out while they last gave 0.97 here, "
                 "0.82 with everything. Any bits 0.92: cells in shared memory take half of its bandwidth."),
    Row("the same beside CUB's reproducible sum, which is rounded, float32 and float64",
        Need(1.1, "× CUB's sum of the same bits on any GPU"),
        partial(against, f"reduce_kernel_{GPU}", Need(1.1, ""), "CUB, reproducible", "sum",
                dtype=["float32", "float64"])),
    kernel("exact sum, float64", Need(0.90, READ), "reduce_kernel", "share of read", "sum", dtype=["float64"],
           peer=Need(0.97, "× CUB's sum, which is not exact"),
           peers=partial(against, f"reduce_kernel_{GPU}", Need(0.97, ""), "cupy.sum", "sum", dtype=["float64"]),
           bound="ordinary numbers 0.92. Exponents spread over the whole range are split by four additions and go to "
                 "two cells each in shared memory (0.75, from 0.51; integer arithmetic took 80 % of its units), whose "
                 "86 KB leave room for two blocks."),
    kernel("sum, mean, variance, minimum, maximum in one pass, float32 and float64", Need(0.90, READ), "reduce_kernel",
           "share of read", "everything", dtype=["float32", "float64"],
           bound="ordinary float64 0.93. Squares of any bits: float64 0.12, eight atomic operations a number; float32 "
                 "0.35, three cells, which take 59 % of the bandwidth of shared memory and 73 % of the integer units. "
                 "Digits of 20 bits for each lane gave float64 0.30 and float32 0.23, but ordinary float64 0.60 to "
                 "0.74; floating-point cells gave float32 0.43, but 98 KB of them ordinary 0.89."),
    transposes("transpose, items of 4 and 8 bytes", Need(0.97, COPY), ["float32", "float64"],
               "where rows do not begin on 16 bytes, tiles are read in whole sectors of memory and put together "
               "from two of "
               "them: 0.72 to 0.89. Aligned ones reach 0.90 to 0.98; going down the tiles, so that what is "
               "written lies "
               "together, gave 0.04, larger tiles for narrow items 0.05."),
    transposes("transpose, items of 1, 2 and 16 bytes", Need(0.90, COPY), ["uint8", "uint16", "complex128"],
               "as above; aligned ones reach 0.87 to 0.96, bytes in rows of any length 0.67 (from 0.16)."),
    kernel("stencil, plain sums, any radius to 4,096", Need(0.90, COPY), "stencil_kernel", "share of copy",
           under="plain", radius=range(4097), peer=Need(1, "× cupyx.scipy.ndimage"),
           peers=partial(against, f"stencil_kernel_{GPU}", Need(1, ""), "uniform", under="plain", radius=range(4097)),
           bound="floats with exponents further apart than 128 bits are added up as digits of 32 bits, a thread for "
                 "each window (78 % of the integer units); with one NaN in a thousand 0.5 to 0.7, counted beside the "
                 "sums. Ordinary numbers: 0.69 (int64, radius 4,096, where rings leave room for two blocks) to 0.93. A "
                 "chain of tiles in place of rings gave 0.3 to 0.5."),
    kernel("stencil, weighted, radius to 16", Need(0.93, COPY), "stencil_kernel", "share of copy",
           under="weighted", radius=range(17), peer=Need(1, "× cupyx.scipy.ndimage"),
           peers=partial(against, f"stencil_kernel_{GPU}", Need(1, ""), "correlate", under="weighted",
                         rates="Tflop/s", radius=range(17)),
           bound="products and sums are rounded one by one, as NumPy does it, so that a multiply-add counts twice: 33 "
                 "taps take longer than the copy."),
    kernel("stencil, weighted, radius 1,000", Need(0.80, "of the rate of products and sums"), "stencil_kernel",
           "share of these", under="weighted", radius=[1000]),
    kernel("elementwise", Need(0.99, "of as many streams"), "copy_kernel", "share of limit", under="map",
           peer=Need(1, "× CuPy"), peers=partial(against, f"copy_kernel_{GPU}", Need(1, ""), "cupy", under="map"),
           bound="where arrays lie in memory decides: CuPy's addition of float64 gets 4,396 GB/s in one place "
                 "of it, ours "
                 "4,390 in another, 4,149 here; so does a kernel that does nothing but read and write."),
    kernel("matmul float64, 4,096² … 16,384²", Need(0.95, "of cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float64"]),
    kernel("matmul float32, 4,096² … 16,384²", Need(0.98, "of cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float32"]),
    kernel("matmul float32 from split products", Need(2, "× cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float32"],
           bound="the row above, which is exact, from products of 8-bit integers: 1.6 to 1.95 at 4,096² by run, "
                 "2.4 to 2.6 "
                 "from 8,192² on. At 4,096² splitting and finishing take a third of the time; products run at 1,300 to "
                 "1,550 TOP/s, bound by the power of the device."),
    kernel("batched matmul 16², 32², 64²", Need(0.85, "of the lower limit"), "matmul_small", "share of the limit",
           size=[16, 32, 64], peer=Need(2.5, "× cuBLAS at 16²"),
           peers=partial(share, f"matmul_small_{GPU}", Need(2.5, ""), "times cublas", size=[16]),
           bound="at 64² float64 49 products of digits keep the tensor cores busy for two thirds of the time "
                 "(0.69, float32 "
                 "0.74), and cuBLAS, which has one product, is faster there; at 16² and 32² memory bounds it "
                 "(0.86 to 0.90). "
                 "16² in float64 is 2.1 × cuBLAS."),
    kernel("batched matmul 256²", Need(0.95, "of cuBLAS"), "matmul_kernel", "share of cublas", under="stacks",
           bound="each number becomes 11 or 17 bytes that are written and read again, three times what cuBLAS "
                 "takes in all; "
                 "a kernel that keeps them to itself exists up to 64² only."),
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
