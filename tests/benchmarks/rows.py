"""The rows of the README's table of speed: what is required, where it was measured, and what bounds what is short."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.benchmarks.targets import (
    CORES,
    GPU,
    GPUS,
    Need,
    Row,
    against,
    command,
    compiling,
    from_disk,
    from_file,
    kernel,
    share,
    slowest,
    small_histogram,
    spread,
    to_file,
    waiting,
)

READ, COPY = "of a plain read", "of a copy"
HISTOGRAM = {"dtype": ["int32"], "edges": ["regular"], "bins": [16, 256, 1024, 4096, 16384]}
AT_1024 = HISTOGRAM | {"bins": [1024]}
OTHERS = {"dtype": ["uint8", "int16", "uint16", "float32", "float64"], "edges": ["regular"]}
IRREGULAR = {"dtype": ["float32"], "edges": ["irregular"]}
MOST = {"dtype": ["int32"], "edges": ["regular"], "bins": [65536]}
CUB_5, CUB_10 = Need(5, "× CUB, worst beside worst"), Need(10, "× CUB at 1,024 bins, worst beside worst")
FILE_TO_FILE = Need(1, "of a histogram of its inputs and threads that fill its output")


def seconds(limit: float, unit: str = "s") -> Need:
    """At most so many."""
    return Need(limit, unit, at_most=True)


def histograms(what: str, need: Need, wanted: dict[str, Any], peer: Need, at: dict[str, Any] | None = None,
               bound: str = "") -> Row:  # fmt: skip
    """Beside a plain read and, in all of these cases or those `at`, CUB's."""
    name = "histogram_kernel"
    peers = partial(slowest, f"{name}_{GPU}", peer, "CUB", **(at or wanted))
    return kernel(what, need, name, "share of read", bound=bound, peer=peer, peers=peers, **wanted)


def beside(what: str, need: Need, name: str, keys: tuple[str, ...], peer: Need, whom: str, *, ours: str = "ours",
           rates: str = "GB/s", bound: str = "", **wanted: Any) -> Row:  # fmt: skip
    """A row whose cases each have a share, under `keys`, and a rate beside that of a peer, or several, named so."""
    peers = partial(against, f"{name}_{GPU}", peer, whom, ours, rates=rates, **wanted)
    return kernel(what, need, name, *keys, bound=bound, peer=peer, peers=peers, **wanted)


def transposes(what: str, need: Need, dtypes: list[str], bound: str) -> Row:
    """Matrices beside a copy and CuPy's."""
    return beside(what, need, "copy_kernel", ("share of copy", "ours"), Need(3, "× cupy.copyto(o, a.T)"), "cupy",
                  rates="share of copy", bound=bound, under="matrices", dtype=dtypes)  # fmt: skip


def exact_sum(dtype: str, need: Need, bound: str) -> Row:
    """Beside a plain read and CUB's sum."""
    return beside(f"exact sum, {dtype}", need, "reduce_kernel", ("share of read", "sum"),
                  Need(0.97, "× CUB's sum, which is not exact"), "cupy.sum", ours="sum", bound=bound,
                  dtype=[dtype])  # fmt: skip


def stencils(what: str, need: Need, whom: str, bound: str, **wanted: Any) -> Row:
    """Beside a copy and SciPy's functions on CuPy."""
    return beside(what, need, "stencil_kernel", ("share of copy",), Need(1, "× cupyx.scipy.ndimage"), whom, bound=bound,
                  **wanted)  # fmt: skip


ROWS: tuple[Row, ...] = (
    histograms("histogram int32, 16 … 16,384 bins", Need(0.97, READ), HISTOGRAM, CUB_10, AT_1024,
               "16,384 counters of 132 blocks are 2.2 million atomic additions at the end, about 2 % of the time where "
               "all bins have samples; memory is 81 % busy, the second-level cache 88 %. Adding up in clusters of two "
               "blocks first took 0.5 to 1 % more, blocks that end one after the other 1 %; sums of 32 bits and other "
               "orders changed nothing."),
    Row("the same, best distribution over worst", Need(1.03, "", at_most=True),
        partial(spread, f"histogram_kernel_{GPU}", **HISTOGRAM),
        bound="16,384 bins, of which some distributions have few: those have less to add up at the end, see above. "
              "Runs differ by 2 %."),
    histograms("histogram uint8, int16, uint16, float32, float64", Need(0.95, READ), OTHERS, CUB_5,
               bound="float32 with 1,000 bins is bound by instructions, 71 % of what can be issued: samples beside an "
                     "edge and outside are looked at once more. 16-bit samples: integer pipe 73 % busy, shared memory "
                     "70 %; they are at the limit, by run on either side of it. uint8 is bound by memory: 5 × CUB "
                     "would be faster than a read. A load asked for as soon as its registers are free, in place of a "
                     "tile at a time, gave 0.78 for float32 and 0.94 for uint16."),
    histograms("histogram float32, irregular edges", Need(0.60, READ), IRREGULAR, CUB_5),
    histograms("histogram int32, 65,536 bins", Need(0.85, READ), MOST, CUB_5,
               bound="256 KiB of counters exceed the shared memory of a block, so two multiprocessors look at each "
                     "sample: on uniform ones wavefronts of shared memory keep its pipe 75 % busy, integers theirs 62 "
                     "%, and adding up at the end takes 2.7 %. 6 integer instructions a look in place of 8.5 gave 0.85 "
                     "from 0.76, bins that windows take in turns gave zipf 0.85 from 0.62. Samples sent to two blocks "
                     "at once by the copy engine gave 0.43, packed counters of 16 bits 0.74 on uniform and 0.22 on "
                     "constant samples, two launches 0.46."),
    Row("histogram of 2^25 int32 on the device, launch included", Need(1.3, "× a read of them", at_most=True),
        small_histogram),
    exact_sum("float32", Need(0.97, READ),
              "ordinary numbers take 10 µs longer than a read of 1 GiB: 2 to 3 are the last block's, which makes one "
              "of what all have left, and multiprocessors end 6 µs apart. Tiles handed out while they last gave 0.97 "
              "for 0.96 here, but 0.82 for 0.93 with everything of float64. Of any bits, where cells take half of the "
              "bandwidth of shared memory, whole warps go to them, which gave 0.96 for 0.93."),
    Row("the same beside CUB's reproducible sum, which is rounded, float32 and float64",
        Need(1.1, "× CUB's sum of the same bits on any GPU"),
        partial(against, f"reduce_kernel_{GPU}", Need(1.1, ""), "CUB, reproducible", "sum",
                dtype=["float32", "float64"])),
    exact_sum("float64", Need(0.90, READ),
              "exponents spread over the whole range go to two cells each in shared memory, 54 % of whose bandwidth "
              "that takes, with 66 % of the instruction slots: 0.92 for 0.75 since whole warps go there, 63 tiles in a "
              "row, and nothing waits for the loads ahead. Three blocks with cells for six warps gave 0.54."),
    kernel("sum, mean, variance, minimum, maximum in one pass, float32 and float64", Need(0.90, READ), "reduce_kernel",
           "share of read", "everything", dtype=["float32", "float64"],
           bound="squares of any bits: of float32 three cells, which take 62 % of the bandwidth of shared memory, 66 % "
                 "of the integer units and 67 % of the instruction slots, with 14 warps; 64 cells for squares, of "
                 "which a number needs one, have room for 4 of 8 warps and gave 0.40 for 0.41, for 3 or 5 0.27 and "
                 "0.29. Of float64 nine atomic operations, digits of 22 bits for each lane, which take 63 % of "
                 "integer units and slots: 0.46 for 0.11 since such tiles are left until the others are done; cells of "
                 "the thread's own, with room for 2 of 8 warps, gave 0.14. Digits of 20 bits gave float32 0.23. With "
                 "210 KB of shared memory a multiprocessor ordinary numbers lose 4 %: the first-level cache is small."),
    transposes("transpose, items of 4 and 8 bytes", Need(0.97, COPY), ["float32", "float64"],
               "by the profiler's counters what the two halves of the second-level cache send each other takes 80 to "
               "92 % of its cycles, in a copy 90 %, while memory moves no byte twice. A sector that two tiles touch "
               "counts twice there: one in eight to one in six of those read where rows begin anywhere. Tiles walked "
               "down with a ring of rows gave 0.87 and 0.91, lines in place of sectors 0.89, asynchronous copies of 4 "
               "bytes 0.7 (the queue of the load and store unit). Going across gave 0.94 for 0.91 with pitches of a "
               "power of two, and less with others."),
    transposes("transpose, items of 1, 2 and 16 bytes", Need(0.90, COPY), ["uint8", "uint16", "complex128"],
               "the same link takes 85 to 92 %: of rows that begin anywhere half as many sectors more are read of "
               "bytes, a quarter more of 16-bit elements. Tiles in which every thread loads as much as any other gave "
               "0.78 for 0.67 and 0.83 for 0.73, words put together from single bytes of shared memory 0.55 "
               "(instructions in 73 % of all cycles). Of complex128 three times as much as CuPy is more than a copy."),
    stencils("stencil, plain sums, any radius to 4,096", Need(0.90, COPY), "uniform",
             "floats with exponents further apart than 128 bits are added up as digits of 32 bits, a thread for each "
             "window (81 % of the integer units); NaN and infinities are counted beside the sums (float16 with one NaN "
             "in a thousand: 74 % of the integer units, 42 % of the memory). Of ordinary numbers 64-bit integers are "
             "the worst: at radius 4,096 half the instructions (54 M, were 101 M) are issued in 39 % of the cycles (56 "
             "%), memory at 74 % (61 %): what is left are barriers of a block that has shared memory to itself. Floats "
             "in one float64 number, marks only where a warp has some, blocks of 768 and 1,024 threads gained nothing.",
             under="plain", radius=range(4097)),
    stencils("stencil, weighted, radius to 16", Need(0.93, COPY), "correlate",
             "products and sums are rounded one by one, as NumPy does it, so that a multiply-add counts twice: 33 taps "
             "take about as long as the copy. A kernel for each number of taps gave float32, radius 16, 0.61 from "
             "0.56: 84 M instructions (98 M) of which 69 M are products and sums, issued in 87 % of the cycles; "
             "float64 takes 82 % of the float64 units. Warps without barriers gave 0.52, 20 and 28 outputs a thread "
             "0.56 and 0.54.",
             rates="Tflop/s", under="weighted", radius=range(17)),
    kernel("stencil, weighted, radius 1,000", Need(0.80, "of the rate of products and sums"), "stencil_kernel",
           "share of these", under="weighted", radius=[1000]),
    beside("elementwise", Need(0.99, "of as many streams"), "copy_kernel", ("share of limit",), Need(1, "× CuPy"),
           "cupy", under="map"),
    kernel("matmul float64, 4,096² … 16,384²", Need(0.95, "of cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float64"],
           bound="larger matrices are faster than cuBLAS. At 4,096² the steps take 2.0 ms; the rest, a fifth of the "
                 "time, is Python, which asks how many elements are doubtful, on a host whose cores ran all tests "
                 "meanwhile. On idle ones the same kernels gave 1.04 and 1.09."),
    kernel("matmul float32, 4,096² … 16,384²", Need(0.98, "of cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float32"]),
    kernel("matmul float32 from split products", Need(2, "× cuBLAS"), "matmul_kernel", "share of cublas",
           dtype=["float32"],
           bound="the row above, which is exact, from products of 8-bit integers: 1.6 to 1.95 at 4,096² by run, 2.4 to "
                 "2.6 from 8,192² on. At 4,096² splitting and finishing take a quarter of the time of all steps; "
                 "products run at 1,300 to 1,500 TOP/s, bound by the power of the device."),
    kernel("batched matmul 16², 32², 64²", Need(0.85, "of the lower limit"), "matmul_small", "share of the limit",
           size=[16, 32, 64], peer=Need(2.5, "× cuBLAS at 16²"),
           peers=partial(share, f"matmul_small_{GPU}", Need(2.5, ""), "times cublas", size=[16]),
           bound="at 64² in float64 tensor cores are active for 53 % of the time and instructions issued in 33 % of "
                 "the cycles, by eight warps that wait for results; with three blocks in place of two it was 4 % "
                 "faster, with four slower. float32: 45 % and 47 %, memory at 60 %. 16² and 32² are bound by memory, "
                 "the L2 cache at 87 to 88 %: reading and writing as much takes longer than 2.5 × cuBLAS at 16² in "
                 "float64 would."),
    kernel("batched matmul 256²", Need(0.95, "of cuBLAS"), "matmul_kernel", "share of cublas", under="stacks",
           bound="one kernel that keeps digits in shared memory is 1.8 (float64) and 2.5 times (float32) as fast as "
                 "residues in memory. In float32 tensor cores are active for 30 % of the time, issue slots for 33 %: "
                 "sixteen warps wait for loads and their warpgroup; without rounding it takes 0.84 of the time, "
                 "without cutting B 0.73. In float64 the products of digits alone, at the peak of the tensor cores, "
                 "take 0.23 ms, more than cuBLAS in all; three warpgroups in place of two were slower, with these "
                 "active for 48 % and shared memory for 56 %."),
    Row("file in the page cache, one GPU", Need(0.90, "of pinned memory to the device"),
        partial(from_file, GPU, "one GPU", "pinned"), Need(15, "× dask.array.histogram over CuPy"),
        partial(from_file, GPU, "one GPU", "dask"),
        bound="15 × Dask would be more than the link. Of pinned memory: threads of C++ that read into one buffer while "
              "the device fetches the other gave 0.92 for 0.82 with kvikio, whose threads wait for each copy; "
              "docs/design.md has the steps between."),
    Row("file in the page cache, four GPUs", Need(0.85, "of pinned memory to all four"),
        partial(from_file, GPUS, "4 GPUs", "pinned"),
        bound="with kvikio, which 64 threads of shared memory and last-level cache: with nothing counted it alone gets "
              "0.7, the threads of C++ that replaced it since 0.81, and two GPUs 0.77 in all. Registering the mapped "
              "file, so that GPUs read it themselves, is serialised by the system: 60 to 70 GB/s for all."),
    Row("map, stencil, transpose, file to file in memory, one GPU", FILE_TO_FILE, partial(to_file, GPU, "off")),
    Row("the same, verified, a transpose whole", FILE_TO_FILE, partial(to_file, GPU, "sample"),
        bound="a transpose: the CPU compares 4 GiB with 4 GiB in 4.4 seconds of a core, 2 GB/s on each of 8 threads, "
              "60 % of it copies out of the page cache in runs of 16 KiB, beside threads that read and write for the "
              "GPU. 12 and 16 threads gave 0.86 and 0.81 s for 0.87, smaller pieces 0.88; comparing out of a mapping "
              "is half as fast. NumPy in place of C++ took 14 seconds of a core, 2.5 s in all. Of the other two a "
              "sample is checked: 1.17 and 0.97."),
    Row("file on disk only, one GPU", Need(0.95, "of direct reads"), partial(from_disk, GPU)),
    Row("file on disk only, two CPU cores", Need(0.95, "of direct reads"), partial(from_disk, CORES),
        bound="8 GiB through the page cache, whose memory this virtual machine has to get from its host: what was "
              "free for seconds is given back, and getting it again takes 3 s of system time for each GiB, 0.3 GB/s a "
              "core, as touching memory shows. Reads alone, far ahead, not ahead, or with the advice of a sequence, "
              "got 0.55 to 0.81 GB/s (once 0.30) beside direct ones with 1.0 and 2.3; into memory that was freed "
              "right before, 1.4 to 2.4. Past the page cache the next command would find nothing there."),
    Row("command on 2^25 samples, one GPU", seconds(1.6), partial(waiting, GPU, "command, seconds", "warm")),
    Row("the same, kernels compiled first", seconds(2, "s more"), partial(compiling, GPUS)),
    Row("command on 2^25 samples, four GPUs", seconds(4), partial(waiting, GPUS, "command, seconds", "warm"),
        bound="where spawned workers took 6.4 s, 3.9 s: 1.6 s until the command has imported Dask and workers are "
              "forked, 1.6 s CUDA contexts of four processes, which wait for each other in the driver (one alone takes "
              "0.3 s), 0.3 s kernels and work, 0.4 s until the driver has given the contexts up. Forking gave 1.0 s, "
              "its server before the command's own imports 0.6 s, one visible GPU for each process and contexts while "
              "Dask starts 0.4 s, chunks for all threads 0.4 s. One work queue for each GPU would save another 0.4 s, "
              "but copies and kernels would wait for each other. Such a file goes to one GPU unless all are forced."),
    Row("--help", seconds(0.3), partial(waiting, GPU, "command, seconds", "help")),
    Row("scheduling of 10,000 chunks", Need(0.01, "of the run", at_most=True),
        partial(waiting, CORES, "scheduling", "share")),
    Row("planning of 100,000 chunks", seconds(1), partial(waiting, GPU, "planning", "seconds")),
    Row("memory that it takes", Need(200, "MB", at_most=True), partial(waiting, GPU, "planning", "megabytes")),
    Row("histogram, 4 GiB of int32, two CPU cores, whole command", Need(1, "× the fastest peer"),
        partial(command, "histogram")),
    Row("sum, mean, variance, minimum, maximum, 4 GiB of float32, two CPU cores, whole command",
        Need(1, "× the fastest peer"), partial(command, "reduce"),
        bound="0.5 s are imports and Dask in one process, 0.9 the pass of its two threads: 42 % exact sums in one pass "
              "over the data, 36 % copies from the page cache, 18 % verification with NumPy, which a reference of "
              "fewer steps takes two thirds of the time for. Compiled C++ gave 0.97 from 0.47, in half of the time; "
              "blocks of 1 MiB in place of 2 took 0.1 s more. NumPy keeps the whole file in memory, this 0.1 GB."),
    Row("matmul, 256 MiB of float32, two CPU cores, whole command", Need(1, "× the fastest peer"),
        partial(command, "matmul"),
        bound="one product of BLAS in float64, which takes twice as long as in float32, is 33 % of the CPU time; its "
              "bound, rounding and what that leaves open 25 %, the check of every element 10 %, starting Dask 11 %, "
              "files and memory the rest. A sixth of the CPU time that four products and carries in int64 took."),
)  # fmt: skip
