"""The command, and what has to happen before anything large is imported."""

import atexit
import gc
import os
import sys
from collections.abc import Sequence

from pipeline.cluster import placement
from pipeline.gpu import devices
from pipeline.threads import BLAS_VARIABLES, SWITCH_SECONDS, blas_threads, processes


def prepare() -> None:
    """Get this process ready to be the command's: before NumPy is imported, which reads the variables of BLAS once."""
    for name in BLAS_VARIABLES:
        os.environ.setdefault(name, str(blas_threads()))
    # A thread that computes in Python lets one that has to start the next transfer wait for so long.
    sys.setswitchinterval(SWITCH_SECONDS)
    # Half a million objects of imported modules live to the end. Looking for garbage among them, as they come and once
    # more when all is done, took a fifth of the time of a command on a small file.
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)


def expect_processes(words: Sequence[str]) -> None:
    """Start the server that workers are forked from now, if the words of a command name files for several processes.

    It takes as long to import what it needs as this process does until it has a use for it. A guess: where nothing is
    forked it was for nothing, and ends with this process.
    """
    sizes = [os.path.getsize(word) for word in words if os.path.isfile(word)]
    nbytes, elsewhere = sum(sizes), any(word.startswith(("--device", "--scheduler")) for word in words)
    if elsewhere or not sizes or nbytes < min(placement.SMALL_BYTES, placement.PROCESSES_FROM_BYTES):
        return
    gpus = devices.find_devices().usable
    if gpus > 1 and nbytes >= placement.SMALL_BYTES:
        from pipeline.cluster.fork_server import GPU_WORKER, start

        start(GPU_WORKER)
    elif not gpus and nbytes >= placement.PROCESSES_FROM_BYTES:
        from kernels.common.cxx import expected
        from kernels.common.nvrtc import KERNELS

        if processes(expected(KERNELS / words[0] / "cpu.cpp")) > 1:
            from pipeline.cluster.fork_server import WORKER, start

            start(WORKER)


def main() -> None:
    """Run the command line with as many threads of BLAS as leave each thread of a worker its share of the cores."""
    prepare()
    expect_processes(sys.argv[1:])
    from pipeline.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
