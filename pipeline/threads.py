"""How many threads compute in a process."""

from __future__ import annotations

import os

# Of a process, at most: more of them wait for Python's lock longer than they work. On 64 cores a GPU job on 64 threads
# took four times as long as on 16 cores with 16, under the same limit of memory. On a GPU four compute, others verify.
THREADS = {"cpu": 4, "gpu": 8}

# Of a process where NumPy computes: numpy.bincount holds Python's lock for two thirds of a pass over the data, and
# exact sums are so many calls that two threads get no further than one. On two cores two processes reduce 4 GiB in
# 1.9 s and count them in 1.2, one with two threads takes 4.1 and 1.75; to start them takes 0.25 s longer. Compiled
# kernels wait for nobody: threads of one process count as fast as processes do, and nothing has to be started.
THREADS_OF_NUMPY = 2

# After which a thread lets others run Python, in processes of the command. After 5 ms, as usual, jobs that write arrays
# from a GPU took 10 to 30 % longer.
SWITCH_SECONDS = 5e-4

# Read once, when NumPy is imported. Dask sets them, to 1, for the processes that it starts.
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def cores() -> int:
    """Of the machine, those that this process may use."""
    return len(os.sched_getaffinity(0))


def processes(compiled: bool) -> int:
    """As many as the cores keep busy with a large input.

    Parameters
    ----------
    compiled
        Whether compiled kernels do all of the computing.
    """
    if compiled:
        return -(-cores() // THREADS["cpu"])
    return min(cores(), max(2, -(-cores() // THREADS_OF_NUMPY)))


def blas_threads() -> int:
    """Threads of each call of BLAS: several at a time of all cores each take turns, and wait for each other.

    A product of matrices of 1024 x 1024 in small parts took 15 s with two on two cores, 6 s with one.
    """
    return max(1, cores() // THREADS["cpu"])
