"""The command: splits off its supervisor, sets up its process and starts the fork server, before large imports."""

import os
import signal
import sys

NVIDIA_DRIVER = "/proc/driver/nvidia"
IMPORTED = 1_000_000  # objects, more than there are when a run begins
MANY = 64  # GPUs, more than a machine has
CHECKED_APART = 2**25  # bytes of factors whose checks are probably worth a process: pipeline.engine.array has the rule
NOTHING_RUNS = {"-h", "--help", "--dry-run"}


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
    # and again at exit, took a fifth of the time of a command on a small file. A run that is timed collects some again.
    gc.set_threshold(IMPORTED, 20, 20)
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
    """Start what the job on the command line will probably need: workers or a server, a context, the check of products.

    Their imports take as long as this process takes until it needs them. This is a guess, from the sizes of the files
    alone: an unused one simply ends with this process.
    """
    sizes = [os.path.getsize(word) for word in words if os.path.isfile(word)]
    if not sizes or any(word.startswith("--scheduler") for word in words) or NOTHING_RUNS.intersection(words):
        return
    if not has_kernels(words[0]):  # of the other commands none needs more than its own process
        return
    compile_ahead(words)
    from pipeline.cluster import gpu_count, placement
    from pipeline.errors import UsageError

    load = gpu_count.Load(gpu_count.KINDS.get(words[0], "write"), sum(sizes))
    device, gpus = option(words, "--device") or "auto", option(words, "--gpus")
    if not gpus and load.nbytes < placement.PROCESSES_FROM_BYTES and gpu_count.best_number(load, MANY) == 1:
        expect_one_process(words, load.nbytes)
        return  # without asking the driver
    try:
        where = placement.Placement(device, own_process=True, gpus=gpus)
        found = None if device == "cpu" else placement.ask()
        chosen = placement.choose(where, load.nbytes, lambda: is_compiled(words[0]), lambda: load, found)
    except UsageError:  # to be shown once it is certain
        return
    if chosen.processes:
        from pipeline.cluster.fork_server import WORKER, start, start_early

        if chosen.gpus:
            start_early([gpu.uuid for gpu in chosen.gpus])
        else:
            start(WORKER)
    else:
        expect_one_process(words, load.nbytes)


def compile_ahead(words: list[str]) -> None:
    """Compile what the job probably needs, in threads that end with this process; the cache keeps it."""
    from threading import Thread

    from kernels.common import cxx
    from kernels.common.nvrtc import KERNELS

    on_gpu = option(words, "--device") != "cpu" and os.path.exists(NVIDIA_DRIVER)
    sources = [KERNELS / words[0] / "check.cpp"]
    sources += [KERNELS.parent / "pipeline" / "gpu" / "pinned.cpp"] if on_gpu else [KERNELS / words[0] / "cpu.cpp"]
    for source in sources:
        if cxx.expected(source):
            Thread(target=cxx.library, args=(source,), daemon=True).start()


def expect_one_process(words: list[str], nbytes: int) -> None:
    """Make the context of the only GPU; for large products, start the helper that checks them, or computes on a CPU."""
    if option(words, "--device") == "cpu" or not os.path.exists(NVIDIA_DRIVER):
        if words[0] == "matmul" and nbytes >= CHECKED_APART:
            from pipeline.cluster.helper_process import COMPUTES, start_early

            start_early(COMPUTES)
        return
    if has_one_gpu():
        from pipeline.cluster.cuda_preload import make_context

        make_context()
    if words[0] == "matmul" and option(words, "--verify") != "off" and nbytes >= CHECKED_APART:
        from pipeline.cluster.helper_process import start_early

        start_early()


def has_one_gpu() -> bool:
    """Whether there is just one GPU, not divided, so the first context is certainly the one needed.

    Once CUDA is initialized, which GPUs are visible no longer changes.
    """
    from glob import glob

    gpus, instances = glob(f"{NVIDIA_DRIVER}/gpus/*"), glob(f"{NVIDIA_DRIVER}/capabilities/*/mig/gi*")
    return len(gpus) == 1 and not instances and "CUDA_VISIBLE_DEVICES" not in os.environ


def has_kernels(word: str) -> bool:
    """Whether it is a job; a path may lead to sources that are not this project's."""
    from kernels.common.nvrtc import KERNELS

    return word in os.listdir(KERNELS) and os.path.exists(KERNELS / word / "gpu.py")


def is_compiled(job: str) -> bool:
    """Whether compiled kernels will probably do all of a CPU's work."""
    from kernels.common.cxx import expected
    from kernels.common.nvrtc import KERNELS

    return expected(KERNELS / job / "cpu.cpp")


def option(words: list[str], name: str) -> str | None:
    """The last value of an option, as the command line will read it, or the environment's."""
    value = os.environ.get(f"DASK_PIPELINE__{name.lstrip('-').upper().replace('-', '_')}")
    for word, after in zip(words, [*words[1:], None], strict=False):  # there may be none
        if word == name or word.startswith(f"{name}="):
            value = after if word == name else word.partition("=")[2]
    return value


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, with few enough BLAS threads to leave each worker thread its share of the cores."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # of imports that it interrupts Python would show a traceback
    leave_working_folder_out()
    if not os.path.exists("/proc/self"):  # psutil, files that are opened again, and the first process need it
        sys.exit("error: expected /proc, got none; mount it: mount -t proc proc /proc")
    from pipeline.packages import REMEDY, foreign

    if problem := foreign():
        sys.exit(f"error: {problem}; {REMEDY}")
    from pipeline.cli import COMPLETE
    from pipeline.process import log_lines, signals, supervisor
    from pipeline.process.last_words import leave, tell

    words = sys.argv[1:] if arguments is None else arguments
    if COMPLETE in os.environ:  # a shell completes a word: there is nothing to supervise
        from pipeline.cli.main import main as complete

        complete(words)
    log_lines.use_json(option(words, "--log-format") == "json")  # of what goes wrong before it is parsed, too
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
