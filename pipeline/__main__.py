"""The command: splits off its supervisor, sets up its process and starts the fork server, before large imports."""

import os
import sys

NVIDIA_DRIVER = "/proc/driver/nvidia"


def prepare() -> None:
    """Set up the command's process, before NumPy is imported, because BLAS reads its variables only once."""
    import atexit
    import gc

    from kernels.common.cache import cache_folder
    from pipeline.threads import BLAS_VARIABLES, SWITCH_SECONDS, blas_threads

    for name in BLAS_VARIABLES:
        os.environ.setdefault(name, str(blas_threads()))
    # Dask logs connections that are lost because the command is stopped, also after its cluster is closed.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    # How long a thread that computes in Python may hold the GIL while another waits to start the next transfer.
    sys.setswitchinterval(SWITCH_SECONDS)
    if os.path.exists(NVIDIA_DRIVER):
        # CuPy's own kernels, too, are run as they are; it would keep them where others may be able to write.
        os.environ.setdefault("CUPY_CACHE_DIR", str(cache_folder() / "cupy"))
    # The half million objects of imported modules live until the end. Collecting garbage among them, during the imports
    # and again at exit, took a fifth of the time of a command on a small file.
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)


def leave_working_folder_out() -> None:
    """Import nothing from the working folder, where `python -m` looks first, unless this project is there.

    A file beside the data that is called like a module of the standard library would be run.
    """
    try:
        here = os.getcwd()
    except OSError:  # removed: nothing is there to be imported
        return
    if sys.path and sys.path[0] in ("", here):
        project = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        if os.path.realpath(sys.path[0] or ".") != os.path.realpath(project):
            del sys.path[0]


def expect_processes(words: list[str]) -> None:
    """Start the fork server now if the files on the command line are large enough for several processes.

    Its imports take as long as this process takes until it needs workers. This is a guess: an unused server simply ends
    with this process.
    """
    from pipeline import threads
    from pipeline.cluster import placement
    from pipeline.gpu import devices

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

        if threads.processes(expected(KERNELS / words[0] / "cpu.cpp")) > 1:
            from pipeline.cluster.fork_server import WORKER, start

            start(WORKER)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, with few enough BLAS threads to leave each worker thread its share of the cores."""
    leave_working_folder_out()
    from pipeline.process import signals, supervisor
    from pipeline.process.last_words import leave, tell

    words = sys.argv[1:] if arguments is None else arguments
    supervisor.supervise()
    try:
        signals.install()
        prepare()
        expect_processes(words)
        from pipeline.cli.main import main as run

        run(words)
    except (signals.Stopped, Exception) as error:
        leave(tell(error))


if __name__ == "__main__":
    main()
