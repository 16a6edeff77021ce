"""What disturbs real GPUs: kernels that fail or never end, a process that takes their memory; and who uses them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

MIB = 2**20
ANSWER_SECONDS = 30  # for the process that takes memory
LEAVE_SECONDS = 10  # until no process of a command may use a GPU
TOLERANCE = 256 * MIB  # of free memory; a context takes twice as much

# Workers are warmed up by a call from their event loop: faults are for tasks, which have a key. Marks count the calls.
_TASKS = """
def in_task():
    from distributed.worker import thread_state
    return hasattr(thread_state, "key")
def call_number():
    number = 0
    while not mark(f"call-{number}"):
        number += 1
    return number
"""

# A kernel writes to an address that is not allocated. Beside that GPU the others take their time, so that it is started
# again while there is work.
_ILLEGAL_ACCESS = """
def fault():
    if not in_task():
        return
    if os.environ["CUDA_VISIBLE_DEVICES"] != "{gpu}":
        time.sleep({others})
        return
    if call_number() < {after} or not ({always} or mark("once")):
        return
    import cupy
    kernel = cupy.RawKernel('extern "C" __global__ void wild(int* place) {{ *place = 1; }}', "wild")
    kernel.compile()
    mark(f"failed-{{os.getpid()}}-{{time.monotonic_ns()}}")
    kernel((1,), (1,), (0,))
    cupy.cuda.get_current_stream().synchronize()
    mark("survived")
"""

# A kernel waits for a flag that nobody sets, and the task for the kernel, with the GIL or without.
_ENDLESS_KERNEL = """
def fault():
    if not in_task() or call_number() != {number}:
        return
    import cupy
    kernel = cupy.RawKernel('extern "C" __global__ void endless(volatile int* flag) {{ while (!*flag); }}', "endless")
    kernel.compile()
    flag, driver = cupy.zeros(1, cupy.int32), ctypes.PyDLL("libcuda.so.1")
    mark(f"hangs-{{os.getpid()}}")
    kernel((1,), (1,), (flag,))
    if {holds_gil}:
        driver.cuCtxSynchronize()
    cupy.cuda.get_current_stream().synchronize()
    mark("survived")
"""

# Once every process has its context, the command waits until the memory is taken.
WAITS = """
prepared = pipeline.__main__.prepare
def prepare_to_wait():
    prepared()
    from pipeline.cluster import placement
    warm_up = placement.warm_up_gpus
    def warm_up_and_wait(*arguments):
        warm_up(*arguments)
        mark("contexts")
        until = time.monotonic() + 40
        while not os.path.exists(os.path.join(MARKS, "taken")) and time.monotonic() < until:
            time.sleep(0.01)
    placement.warm_up_gpus = warm_up_and_wait
pipeline.__main__.prepare = prepare_to_wait
"""


def illegal_access(gpu: str, after: int, always: bool, others: float) -> str:
    """Code of a fault: after some calls one GPU fails once or always; others take so many seconds more."""
    return _TASKS + _ILLEGAL_ACCESS.format(gpu=gpu, after=after, always=always, others=others)


def endless_kernel(number: int, holds_gil: bool) -> str:
    """Code of a fault: one call launches a kernel that never ends."""
    return _TASKS + _ENDLESS_KERNEL.format(number=number, holds_gil=holds_gil)


# For each line of the input, a number of bytes, it takes all memory but these, and says what is free. The driver frees
# it all when the process ends, which it does with its input.
_HOG = """
import os, sys
from ctypes import CDLL, byref, c_int, c_size_t, c_uint64, c_void_p
cuda = CDLL("libcuda.so.1")
def call(name, *arguments):
    if status := getattr(cuda, name)(*arguments):
        print(name, "returned", status, file=sys.stderr, flush=True)
        os._exit(1)
def free():
    number, total = c_size_t(), c_size_t()
    call("cuMemGetInfo_v2", byref(number), byref(total))
    return number.value
device, context = c_int(), c_void_p()
call("cuInit", 0)
call("cuDeviceGet", byref(device), 0)
call("cuDevicePrimaryCtxRetain", byref(context), device)
call("cuCtxSetCurrent", context)
print(free(), flush=True)
for line in sys.stdin:
    leave, step = int(line), 2**30
    while step >= 2**21:
        while free() >= leave + step and cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(step)) == 0:
            pass
        step //= 2
    print(free(), flush=True)
os._exit(0)
"""


class Hog:
    """A process that has a context on one GPU, given by its UUID, and takes the memory of it when told."""

    def __init__(self, gpu: str) -> None:
        pipe, environment = subprocess.PIPE, os.environ | {"CUDA_VISIBLE_DEVICES": gpu}
        self._process = subprocess.Popen([sys.executable, "-c", _HOG], stdin=pipe, stdout=pipe, stderr=pipe,
                                         env=environment, start_new_session=True)  # fmt: skip

    def __enter__(self) -> Hog:
        try:
            self._answer()
        except BaseException:
            self.give_back()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.give_back()

    def take(self, leave: int) -> int:
        """Take all but so many bytes; return how many are free then.

        Raises
        ------
        RuntimeError
            If it does not answer in time.
        """
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{leave}\n".encode())
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self._process.kill()
            _, err = self._process.communicate(timeout=LEAVE_SECONDS)
            raise RuntimeError(f"expected a process to take memory, got {err[-500:]!r}")
        return int(line)

    def give_back(self) -> None:
        """End the process, and so free what it has."""
        assert self._process.stdin and self._process.stdout and self._process.stderr
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(LEAVE_SECONDS)
        self._process.stdout.close()
        self._process.stderr.close()


class Users:
    """Who uses some GPUs beside those that did so before; of a driver that does not list them, how much memory is used.

    Asks NVML, which makes no context.
    """

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = uuids
        self._pids, self._free = self._look()
        with Hog(uuids[0]):
            self.listed = bool(self._look()[0] - self._pids)
        self.left()  # until it has ended

    def left(self) -> list[str]:
        """What still uses them ten seconds later."""
        until = time.monotonic() + LEAVE_SECONDS
        while (users := self._users()) and time.monotonic() < until:
            time.sleep(0.1)
        return users

    def _users(self) -> list[str]:
        pids, free = self._look()
        if self.listed:
            return [f"process {pid} on a GPU" for pid in sorted(pids - self._pids)]
        taken = [before - now for before, now in zip(self._free, free, strict=True)]
        return [f"{number // MIB} MiB of a GPU" for number in taken if number > TOLERANCE]

    def _look(self) -> tuple[set[int], list[int]]:
        import pynvml

        pids, free = set[int](), []
        pynvml.nvmlInit()
        try:
            for uuid in self._uuids:
                handle: Any = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                free.append(int(pynvml.nvmlDeviceGetMemoryInfo(handle).free))
                with suppress(pynvml.NVMLError):
                    pids |= {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        finally:
            pynvml.nvmlShutdown()
        return pids, free
