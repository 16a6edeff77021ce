"""The rows of the speed table: the requirement, where it was measured, and what limits rows that fall short."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.benchmarks.targets import (
    CORES,
    GPU,
    GPUS,
    IN_MEMORY,
    Need,
    Row,
    against,
    command,
    from_disk,
    from_file,
    kernel,
    later,
    longer,
    share,
    slowest,
    small_histogram,
    spread,
    to_file,
    waiting,
)

READ, COPY = "of a plain read", "of a copy"
TO_2048 = [16, 100, 256, 1000, 1024, 2048]
REGULAR = {"edges": ["regular"]}
HISTOGRAM = REGULAR | {"dtype": ["int32"], "bins": [*TO_2048, 4096, 16384]}
FEW_BINS = REGULAR | {"dtype": ["int32", "uint32"], "bins": TO_2048}
MANY_BINS = REGULAR | {"dtype": ["int32", "uint32"], "bins": [4096, 16384]}
NARROW = REGULAR | {"dtype": ["uint8", "int8", "int16", "uint16"]}
MOST_BINS = REGULAR | {"dtype": ["int32"], "bins": [65536]}
WIDE = REGULAR | {"dtype": ["float32", "float64", "int64"], "bins": TO_2048}
HALF = REGULAR | {"dtype": ["float16"]}
IRREGULAR = {"dtype": ["float32"], "edges": ["irregular"]}
AT_1024 = HISTOGRAM | {"bins": [1024]}
CUB_5, CUB_10 = Need(5, "× CUB, worst against worst"), Need(10, "× CUB at 1,024 bins, worst against worst")
FILE_TO_FILE = Need(1, "× reading the inputs for a histogram, then filling the output from memory")


def seconds(limit: float, unit: str = "s") -> Need:
    """At most so many."""
    return Need(limit, unit, at_most=True)


def histograms(what: str, need: Need, wanted: dict[str, Any], peer: Need, at: dict[str, Any] | None = None,
               bound: str = "", in_readme: bool = False) -> Row:  # fmt: skip
    """Against a plain read and against CUB's histogram, the latter in the cases `at` or in all of them."""
    name = "histogram_kernel"
    peers = partial(slowest, f"{name}_{GPU}", peer, "CUB", **(at or wanted))
    return kernel(what, need, name, "share of read", bound=bound, peer=peer, peers=peers, in_readme=in_readme, **wanted)


def beside(what: str, need: Need, name: str, keys: tuple[str, ...], peer: Need, whom: str, *, ours: str = "ours",
           rates: str = "GB/s", bound: str = "", in_readme: bool = False, **wanted: Any) -> Row:  # fmt: skip
    """A row whose cases have a share under `keys`, and a rate to compare with peers whose names start with `whom`."""
    peers = partial(against, f"{name}_{GPU}", peer, whom, ours, rates=rates, **wanted)
    return kernel(what, need, name, *keys, bound=bound, peer=peer, peers=peers, in_readme=in_readme, **wanted)


def transposes(what: str, need: Need, dtypes: list[str], bound: str) -> Row:
    """Matrices, against a copy and against CuPy."""
    return beside(what, need, "copy_kernel", ("share of copy", "ours"), Need(3, "× cupy.copyto(o, a.T)"), "cupy",
                  rates="share of copy", bound=bound, under="matrices", dtype=dtypes)  # fmt: skip


def exact_sum(dtype: str, need: Need, bound: str, in_readme: bool = False) -> Row:
    """Against a plain read and against CUB's sum."""
    return beside(f"exact sum, {dtype}", need, "reduce_kernel", ("share of read", "sum"),
                  Need(0.97, "× CUB's sum, which is not exact"), "cupy.sum", ours="sum", bound=bound,
                  in_readme=in_readme, dtype=[dtype])  # fmt: skip


def in_memory(what: str, need: Need, samples: str, bound: str) -> Row:
    """A call of `pipeline.run` on a CuPy array, launch, check and waiting included, against CuPy's own function."""
    find = partial(against, f"arrays_{IN_MEMORY}", need, "cupy", rates="calls/s", job=["histogram"], samples=[samples])
    return Row(what, need, find, bound=bound)


def stencils(what: str, need: Need, whom: str, bound: str, **wanted: Any) -> Row:
    """Against a copy and against SciPy's functions on CuPy."""
    return beside(what, need, "stencil_kernel", ("share of copy",), Need(1, "× cupyx.scipy.ndimage"), whom, bound=bound,
                  **wanted)  # fmt: skip


ROWS: tuple[Row, ...] = (
    histograms("histogram int32, uint32, to 2,048 bins", Need(0.97, READ), FEW_BINS, CUB_10, AT_1024,
               in_readme=True),
    histograms("histogram int32, uint32, 4,096 and 16,384 bins", Need(0.95, READ), MANY_BINS, CUB_5,
               bound="with 16,384 bins the 132 blocks add their counters to the result by 2.2 million atomic "
                     "operations, about 2 % of the time if every bin has samples. Memory is 81 % busy, the L2 cache 88 "
                     "%. Adding up in clusters of two blocks first cost another 0.5 to 1 %, staggered ends of the "
                     "blocks 1 %; 32-bit sums and other orders made no difference."),
    Row("histogram int32, 16 … 16,384 bins, best distribution over worst", Need(1.03, "", at_most=True),
        partial(spread, f"histogram_kernel_{GPU}", **HISTOGRAM),
        bound="the worst case is 16,384 bins: distributions that fill few of them have less to add to the result at "
              "the end (see above). Runs differ by 2 %."),
    histograms("histogram of 8- and 16-bit integers", Need(0.93, READ), NARROW, CUB_5,
               bound="16-bit samples keep the integer pipe 73 % and shared memory 70 % busy. uint8 is bound by memory: "
                     "5 × CUB would be faster than a read. For uint16, issuing each load as soon as its registers are "
                     "free, instead of a tile at a time, gave 0.94."),
    histograms("histogram int32, 65,536 bins", Need(0.80, READ), MOST_BINS, CUB_5,
               bound="two multiprocessors examine each sample. float32 needs three windows for as many bins, because "
                     "thresholds take shared memory, too: 0.30 to 0.58, and 0.11 with all samples in one bank."),
    histograms("histogram float32, float64, int64, to 2,048 bins", Need(0.93, READ), WIDE, CUB_5),
    histograms("histogram float32, irregular edges", Need(0.65, READ), IRREGULAR, CUB_5),
    kernel("histogram float16", Need(0.60, READ), "histogram_kernel", "share of read", **HALF),
    Row("histogram of 2^25 int32 on the device, launch included", Need(1.3, "× a read of them", at_most=True),
        small_histogram),
    exact_sum("float32", Need(0.97, READ),
              "a warp counts its NaN and infinities one by one and replaces them by zeros. Since these figures, these "
              "zeros no longer count as the smallest numbers of a tile: 0.83 instead of 0.72 with half NaN, 0.93 "
              "instead of 0.87 with one in a thousand, side by side, in a version that differed for tiles with zeros "
              "of their own. (Reading the samples again gave 0.28 instead of 0.735 with half NaN, and 0.47 instead of "
              "0.87 with one in a thousand.) "
              "Without NaN and infinities the worst case is 0.946: on ordinary numbers the kernel takes 10 µs longer "
              "than a read of 1 GiB, of which the last block, which combines the results of all others, takes 2 to 3 "
              "µs; multiprocessors finish 6 µs apart. Scheduling tiles dynamically raised this row from 0.96 to 0.97, "
              "but lowered all operations in one pass on float64 from 0.93 to 0.82. For random bits, whose bins take "
              "half of the shared-memory bandwidth, sending whole warps to the bins raised 0.93 to 0.95.",
              in_readme=True),
    Row("the same against CUB's reproducible sum, which is rounded, float32 and float64",
        Need(1.1, "× CUB's sum of the same bits on any GPU"),
        partial(against, f"reduce_kernel_{GPU}", Need(1.1, ""), "CUB, reproducible", "sum",
                dtype=["float32", "float64"])),
    exact_sum("float64", Need(0.90, READ),
              "numbers with exponents over the whole range go to two bins each in shared memory, which takes 54 % of "
              "its bandwidth and 66 % of the issue slots. Sending whole warps there, for 63 tiles in a row, without "
              "waiting for prefetched loads, raised 0.75 to 0.92. Three blocks with bins for six warps gave 0.54."),
    kernel("sum, mean, variance, minimum, maximum in one pass, float32 and float64", Need(0.90, READ), "reduce_kernel",
           "share of read", "everything", dtype=["float32", "float64"],
           bound="the worst data are squares of random bits, or of two exponents far apart. float32 needs three bins a "
                 "number, which take 62 % of the shared-memory bandwidth, 66 % of the integer units and 67 % of the "
                 "issue slots, with 14 warps. 64 bins for squares, one per number, leave room for 4 of 8 warps and "
                 "gave 0.40 instead of 0.41 (3 or 5 warps: 0.27 and 0.29); 20-bit digits gave 0.23. float64 needs nine "
                 "atomic operations on 22-bit digits, one set per lane, which take 63 % of integer units and issue "
                 "slots. Deferring such tiles until the others are done raised 0.11 to 0.46; bins owned by a thread, "
                 "with room for 2 of 8 warps, gave 0.14. Taking 210 KB of shared memory per multiprocessor costs "
                 "ordinary numbers 4 %, because the L1 cache shrinks."),
    transposes("transpose, items of 4 and 8 bytes", Need(0.97, COPY), ["float32", "float64"],
               "the link between the two halves of the L2 cache is busy for 80 to 92 % of the cycles (in a copy for 90 "
               "%), although memory moves no byte twice. A sector that two tiles touch crosses the link twice; with "
               "rows at arbitrary addresses that is an eighth to a sixth of the sectors read. Walking tiles downwards "
               "with a ring of rows gave 0.87 and 0.91, whole cache lines instead of sectors 0.89, asynchronous 4-byte "
               "copies 0.7 (the load/store queue). Walking across raised 0.91 to 0.94 for power-of-two pitches and "
               "lowered others."),
    transposes("transpose, items of 1, 2 and 16 bytes", Need(0.90, COPY), ["uint8", "uint16", "complex128"],
               "the same link is busy for 85 to 92 % of the cycles: with rows at arbitrary addresses 50 % more sectors "
               "are read for bytes, 25 % more for 16-bit elements. Tiles in which all threads load the same amount "
               "raised 0.67 to 0.78 and 0.73 to 0.83; assembling words from single bytes of shared memory gave 0.55 "
               "(instructions issued in 73 % of the cycles). For complex128 three times CuPy's rate would exceed that "
               "of a copy."),
    stencils("stencil, plain sums, any radius to 4,096", Need(0.90, COPY), "uniform",
             "the worst data are floats with exponents far apart: 0.19 to 0.45 of a copy in layers of 80 bits per "
             "thread; 32-bit digits gave 0.02. NaN and infinities are counted beside the sums (float16 with one NaN in "
             "a thousand: integer units 74 %, memory 42 % busy). Of ordinary numbers, 64-bit integers are the slowest: "
             "at radius 4,096 instructions are issued in 39 % of the cycles and memory is 74 % busy; the rest are "
             "barriers, with one block per multiprocessor. Summing floats in a single float64, flagging only warps "
             "that have such elements, and blocks of 768 and 1,024 threads gained nothing.",
             under="plain", radius=range(4097), in_readme=True),
    stencils("stencil, weighted, radius to 16", Need(0.93, COPY), "correlate",
             "products and sums are rounded separately, as in NumPy, so each tap takes two instructions, and 33 taps "
             "take about as long as the copy. A kernel for each number of taps raised float32, radius 16, from 0.56 to "
             "0.61: 84 M instructions instead of 98 M, of which 69 M are products and sums, issued in 87 % of the "
             "cycles. float64 keeps the float64 units 82 % busy. Warps without barriers gave 0.52; 20 and 28 outputs "
             "per thread 0.56 and 0.54.",
             rates="Tflop/s", under="weighted", radius=range(17)),
    kernel("stencil, weighted, radius 1,000", Need(0.80, "of the rate of products and sums"), "stencil_kernel",
           "share of these", under="weighted", radius=[1000]),
    beside("elementwise", Need(0.99, "of as many streams"), "copy_kernel", ("share of limit",), Need(1, "× CuPy"),
           "cupy", under="map",
           bound="in float64 both this and CuPy are bound by memory; runs differ by 0.2 %. float32 is 1.7 times as "
                 "fast as CuPy."),
    kernel("matmul float64, 4,096² … 16,384²", Need(0.95, "of cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float64"], in_readme=True,
           bound="larger matrices are faster than cuBLAS. At 4,096² the kernels take 2.0 ms; the rest, a fifth of the "
                 "time, is Python, which asks how many elements are uncertain. That was on a host that ran the tests "
                 "at the same time; on an idle one the same kernels gave 1.04 and 1.09."),
    kernel("matmul float32, 4,096² … 16,384²", Need(0.98, "of cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float32"]),
    kernel("matmul float32 from split products", Need(2, "× cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float32"],
           bound="these are the products of the row above, computed exactly from products of 8-bit integers: 1.6 to "
                 "1.95 at 4,096², depending on the run, and 2.4 to 2.6 from 8,192² on. At 4,096² splitting and "
                 "finishing take a quarter of the time. The multiplication runs at 1,300 to 1,500 TOP/s, bound by the "
                 "power limit of the device."),
    kernel("batched matmul 16², 32², 64²", Need(0.85, "of the lower limit"), "matmul_small", "share of the limit",
           size=[16, 32, 64], peer=Need(2.5, "× cuBLAS at 16²"),
           peers=partial(share, f"matmul_small_{GPU}", Need(2.5, ""), "times cublas", size=[16]),
           bound="at 64² in float64 tensor cores are active for 53 % of the time and instructions are issued in 33 % "
                 "of the cycles: eight warps wait for results. Three blocks instead of two were 4 % faster, four were "
                 "slower. float32: 45 % and 47 %, memory 60 % busy. 16² and 32² are bound by memory, with the L2 cache "
                 "87 to 88 % busy: at 16² in float64 just reading and writing the matrices takes longer than 2.5 × "
                 "cuBLAS allows."),
    kernel("batched matmul 256²", Need(0.95, "of cuBLAS"), "matmul_kernel", "share of cublas", under="stacks",
           in_readme=True,
           bound="a single kernel that keeps digits in shared memory is 2.3 (float64) and 2.7 times (float32) as fast "
                 "as residues in global memory. float32: tensor cores are active for 30 % of the time and 33 % of the "
                 "issue slots are used, because sixteen warps wait for loads and for their warpgroup. Without rounding "
                 "the kernel takes 0.84 of the time, without splitting B 0.73. float64: the digit products alone, at "
                 "the peak of the tensor cores, take 0.23 ms, more than cuBLAS takes for everything. Some warpgroups "
                 "load and split columns while others multiply and round; if each does everything in turn, the kernel "
                 "takes a fifth longer. Two warpgroups that only multiply reach the peak; three were slower, with "
                 "tensor cores active for 48 % and shared memory for 56 %. What remains are the additions between "
                 "products: after each digit of A the 7 sums of an element go to 64-bit words by wide multiply-adds; "
                 "28 instead of 49 of these per element saved 0.06 ms. Splitting and loading the rows takes 0.06 ms. "
                 "Without rounding the kernel takes 0.03 ms less, without splitting B 0.02, without loading B 0.07. "
                 "Without the six products of the lowest weights it took 0.03 ms less, but left one result in 5,000 "
                 "uncertain. Prefetching the next rows into the L2 cache gave 0.48 ms; with three multiplying "
                 "warpgroups and one that splits, too, 0.50."),
    Row("file in the page cache, one GPU", Need(0.90, "of pinned memory to the device"),
        partial(from_file, GPU, "one GPU", "pinned"), Need(15, "× dask.array.histogram over CuPy"),
        partial(from_file, GPU, "one GPU", "dask"), in_readme=True,
        bound="15 × Dask would exceed the bandwidth of the link. kvikio, whose threads wait for each copy, reached "
              "0.82 of the rate of pinned memory; C++ threads that fill one buffer while the device fetches the other "
              "reach 0.92. docs/design.md lists the steps in between."),
    Row("file in the page cache to its sums, four GPUs, verified by sample", Need(0.75, "of pinned memory to all four"),
        partial(from_file, GPUS, "4 GPUs", "pinned", "reduce", verify="sample"),
        bound="see the next row."),
    Row("file in the page cache, four GPUs, verified by sample", Need(0.75, "of pinned memory to all four"),
        partial(from_file, GPUS, "4 GPUs", "pinned", verify="sample"), in_readme=True,
        bound="the CPU's copies out of the page cache. Without a device, 48 to 64 threads copy 133 to 148 GB/s on such "
              "a host, 32 threads 114. While GPUs fetch the copies, each of 50 busy cores copies 2.1 GB/s: 82 to 114 "
              "in all, without any counting, where pinned memory gives 155 to 160. Parts of 512 KiB need fewer cores "
              "per byte, but cost a GPU's copy engine 3 to 8 µs each besides the transfer, on one queue or many. Small "
              "kernels that fetch parts instead gave 51 GB/s at 512 KiB on one GPU (the copy engine: 33), and 96 to "
              "118 on four. Buffers in huge pages, and flags in memory instead of events, gained nothing. GPUs could "
              "read a mapped file themselves, but the operating system registers mappings one at a time: 60 to 70 GB/s "
              "for all GPUs together."),
    Row("map, stencil, transpose, file to file in memory, one GPU", FILE_TO_FILE, partial(to_file, GPU, "off")),
    Row("the same, verified, a transpose whole", FILE_TO_FILE, partial(to_file, GPU, "sample"),
        bound="the check of the transpose. The CPU compares 4 GiB with 4 GiB in 4.4 core seconds, 2 GB/s on each of 8 "
              "threads. 60 % of that is copying runs of 16 KiB out of the page cache while other threads read and "
              "write for the GPU. With 12 and 16 threads the run took 0.86 and 0.81 s instead of 0.87, with smaller "
              "pieces 0.88; comparing through a mapping takes twice as long. NumPy instead of C++ took 14 core "
              "seconds, 2.5 s in all. map and stencil, of which only a sample is checked, reach 1.17 and 0.95."),
    Row("file on disk only, one GPU", Need(0.95, "of direct reads"), partial(from_disk, GPU)),
    Row("file on disk only, two CPU cores", Need(0.95, "of direct reads"), partial(from_disk, CORES)),
    in_memory("histogram of an array on a GPU, 1 GiB of int32", Need(5, "× cupy.histogram"), "1 GiB",
              "on one H100. cupy.histogram is fastest on sorted and constant samples; on others this is 7.2 and 8.4 "
              "times as fast. The kernel takes 0.34 ms, the call 0.45 to 0.51, the check of a sample 0.05 to 0.08 "
              "more. Unverified, the worst ratio is 4.6. On an H200, whose kernel takes 0.24 ms, calls took 0.48 and "
              "0.51 ms: 4.7 on constant samples."),
    in_memory("histogram of an array on a GPU, 2^20 of int32", Need(1, "× cupy.histogram"), "2^20",
              "on one H100. The check of a sample takes half of the call: a separate launch, a copy and a count on "
              "the CPU, and Python around them. Unverified, the worst ratio is 1.9. On an H200 a call in a tight loop "
              "took 0.17 to 0.18 ms, unverified 0.07 to 0.1. Counting the sample in the same launch gave 0.94 to "
              "1.03, but its kernels needed more registers than there are."),
    Row("command on 2^25 samples, one GPU", seconds(1.6), partial(waiting, GPU, "command, seconds", "warm")),
    Row("the same, kernels compiled first", seconds(2, "s more"),
        partial(longer, GPUS, "cold, one GPU", "warm, one GPU"),
        bound="C++ sources are compiled during the imports, kernels when the first block arrives."),
    Row("the same, next to an interpreter that imports CuPy and distributed and makes a context",
        seconds(0.4, "s more"), partial(longer, GPUS, "warm, one GPU", "bare interpreter")),
    Row("command on 2^25 samples, four GPUs", seconds(4), partial(waiting, GPUS, "command, seconds", "warm"),
        bound="the CUDA contexts of four processes, which the driver serialises, take 1.3 s, releasing them 0.4 s. By "
              "default such a file goes to one GPU."),
    Row("files of 8 and 32 GiB, until four GPUs read, next to one", seconds(1.3, "s more"),
        partial(later, GPUS, "4 GPU", "1 GPU"), bound="the driver makes contexts one after the other."),
    Row("--help", seconds(0.3), partial(waiting, GPU, "command, seconds", "help")),
    Row("scheduling of 10,000 chunks", Need(0.01, "of the run", at_most=True),
        partial(waiting, CORES, "scheduling", "share")),
    Row("planning of 100,000 chunks", seconds(1), partial(waiting, GPU, "planning", "seconds")),
    Row("memory for that plan", Need(200, "MB", at_most=True), partial(waiting, GPU, "planning", "megabytes")),
    Row("histogram, 4 GiB of int32, two CPU cores, whole command", Need(1, "× the fastest peer"),
        partial(command, "histogram"), in_readme=True,
        bound="0.4 s of CPU time are start-up, more than boost-histogram takes, and half of the rest is copying out of "
              "the page cache: every sample is read again for its check, from the last-level cache. Two records gave "
              "0.96 and 1.04."),
    Row("sum, mean, variance, minimum, maximum, 4 GiB of float32, two CPU cores, whole command",
        Need(1, "× the fastest peer"), partial(command, "reduce"),
        bound="0.4 s of CPU time are start-up. Half of the rest is copying out of the page cache: every sample is read "
              "again for its check, from the last-level cache. Two records gave 0.99. Blocks of 1 MiB instead of 2 "
              "cost 0.1 s. NumPy holds the whole file in memory, this job 0.1 GB."),
    Row("matmul, 256 MiB of float32, two CPU cores, whole command", Need(1, "× the fastest peer"),
        partial(command, "matmul"),
        bound="131,072 × 512 by 512 × 512 is computed in float64, which takes twice as long as float32. With the "
              "product by BLAS, it took 33 % of the CPU time, 25 % went to its error bound, rounding and uncertain "
              "elements, 10 % to the check of every element, 11 % to starting Dask, the rest to files and memory. A "
              "kernel that multiplies and rounds has replaced BLAS: 0.63 of that CPU time at 4096². A separate process "
              "begins the product during the imports. docs/matmul.md has 4096²."),
)  # fmt: skip
