"""Numbers of processes and threads, and the GIL's switch interval."""

from __future__ import annotations

import os

# Most threads per process: more would spend more time waiting for the GIL than working. Under the same memory limit, a
# GPU job took four times as long with 64 threads on 64 cores as with 16 on 16. On a GPU four compute, the rest verify:
# with 8 of 16 cores a histogram of 8 GiB took 0.60 s verified whole, with 16 it took 0.52 s.
THREADS = {"cpu": 4, "gpu": 16}

# Threads per process if NumPy computes: numpy.bincount holds the GIL for two thirds of its time, and exact sums make so
# many small calls that a second thread gains nothing. On two cores, two processes reduce 4 GiB in 1.9 s and histogram
# them in 1.2 s; one process with two threads takes 4.1 and 1.75 s, but starts 0.25 s sooner. Compiled kernels release
# the GIL: threads of one process are as fast as processes, and nothing has to be started.
THREADS_OF_NUMPY = 2

# Switch interval of the GIL in the command's processes. With Python's default, 5 ms, jobs that write arrays from a GPU
# took 10 to 30 % longer.
SWITCH_SECONDS = 5e-4

# Read once, when NumPy is imported. Dask sets them to 1 for processes that it starts.
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def processes(compiled: bool) -> int:
    """Number of processes that keeps all cores busy with a large input; fewer if only compiled kernels compute."""
    if compiled:
        return -(-cores() // THREADS["cpu"])
    return min(cores(), max(2, -(-cores() // THREADS_OF_NUMPY)))


def blas_threads() -> int:
    """Threads per BLAS call, so that concurrent calls share the cores instead of waiting for each other.

    On two cores, a product of 1024 x 1024 matrices in small parts took 15 s with two threads per call, 6 s with one.
    """
    return max(1, cores() // THREADS["cpu"])
