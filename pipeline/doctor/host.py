"""What jobs need of the host: platform, compiler, cores, limits, memory, disk, ports."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import tempfile
from pathlib import Path

from kernels.common import cxx
from kernels.common.cache import cache_folder
from kernels.transpose.cpu import SOURCE
from pipeline.doctor.check import NOTE, OK, PROBLEM, Finding
from pipeline.gpu.devices import find_devices
from pipeline.threads import cores

ROOT = Path("/")  # of /proc, /sys and /dev
GIB = 2**30
TESTED, SUPPORTED = ("x86_64",), ("x86_64", "aarch64")  # machines; docs/doctor.md has the table
LEAST_FILES, FEW_FILES = 128, 1024
LEAST_SHARED, LEAST_DISK, LEAST_MEMORY = 2**26, GIB, GIB
DASHBOARD = 8787


def machine() -> Finding:
    """Operating system, processor architecture and Python."""
    text = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if platform.system() != "Linux" or platform.machine() not in SUPPORTED:
        return Finding(PROBLEM, text, f"use Linux on {' or '.join(SUPPORTED)}")
    if platform.machine() not in TESTED:
        return Finding(NOTE, f"{text}: supported, but not tested", "run the tests once")
    return Finding(OK, text)


def compiler() -> Finding:
    """Whether the C++ of CPUs compiles, as jobs compile it at first use."""
    words = cxx.compiler()
    remedy = "install g++ or clang++, or name one with CXX: without it NumPy computes the same bits, slower"
    if words is None:
        return Finding(NOTE, "no C++ compiler", remedy)
    if cxx.library(SOURCE) is None:
        return Finding(NOTE, f"{words[0]} does not compile the C++ of jobs", remedy)
    return Finding(OK, f"{words[0]} compiles the C++ of jobs")


def cache() -> Finding:
    """Whether compiled kernels are kept."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "baru"
    folder = cache_folder()
    if folder != wanted:
        return Finding(NOTE, f"compiled kernels cannot be kept in {wanted}: each command compiles again",
                       "set XDG_CACHE_HOME to a folder that is yours alone")  # fmt: skip
    return Finding(OK, f"compiled kernels are kept in {folder}")


def affinity() -> Finding:
    """How many cores this process may use."""
    allowed, there = cores(), os.cpu_count() or 1
    text = f"{allowed} of {there} CPUs"
    if allowed == 1 < there:
        return Finding(NOTE, f"{text}: reading, computing and checking share it",
                       "allow more: taskset -c, sbatch --cpus-per-task, docker --cpuset-cpus")  # fmt: skip
    return Finding(OK, text)


def ports() -> Finding:
    """Whether a process reaches another one on this machine, and whether the dashboard's usual port is free."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            pass
    except OSError as error:
        return Finding(PROBLEM, f"127.0.0.1 cannot be used: {error.strerror or error}",
                       "bring the loopback interface up (ip link set lo up), or run on one GPU: --gpus 1")  # fmt: skip
    try:
        with socket.create_server(("127.0.0.1", DASHBOARD)):
            return Finding(OK, f"127.0.0.1 works, {DASHBOARD} is free for a dashboard")
    except OSError:
        return Finding(OK, f"127.0.0.1 works; {DASHBOARD} is taken: for a dashboard, --dashboard-address :0")


def disk() -> Finding:
    """Whether temporary files can be written, and how much there is room for."""
    folder = tempfile.gettempdir()
    remedy = "free some space, or name another folder with TMPDIR"
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"\0" * 4096)
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(PROBLEM, f"temporary files cannot be written in {folder}: {error.strerror or error}", remedy)
    text = f"{free / GIB:.1f} GiB free for temporary files in {folder}"
    return Finding(PROBLEM, text, remedy) if free < LEAST_DISK else Finding(OK, text)


def shared_memory() -> Finding:
    """Whether /dev/shm is there: locks between processes need it."""
    folder = ROOT / "dev/shm"
    remedy = "mount it: docker --shm-size=1g, or mount -t tmpfs tmpfs /dev/shm"
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return Finding(PROBLEM, "/dev/shm is missing, or cannot be written to", remedy)
    free = shutil.disk_usage(folder).free
    text = f"{free / GIB:.2f} GiB free in /dev/shm"
    return Finding(PROBLEM, text, remedy) if free < LEAST_SHARED else Finding(OK, text)


def limits() -> Finding:
    """What `ulimit` allows: open files, address space, sizes of files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    endless = resource.RLIM_INFINITY
    if space != endless and find_devices().usable:
        return Finding(PROBLEM, f"address space is limited to {space / GIB:.1f} GiB, and CUDA reserves as much as "
                                "there is memory", "ulimit -v unlimited")  # fmt: skip
    if files != endless and files < LEAST_FILES:
        return Finding(PROBLEM, f"{files} open files at a time", f"ulimit -n {FEW_FILES}")
    if space != endless:
        return Finding(NOTE, f"address space is limited to {space / GIB:.1f} GiB", "ulimit -v unlimited")
    if files != endless and files < FEW_FILES:
        return Finding(NOTE, f"{files} open files at a time", f"ulimit -n {FEW_FILES}")
    if size != endless:
        return Finding(NOTE, f"files may have {size / GIB:.1f} GiB at most", "ulimit -f unlimited")
    return Finding(OK, f"{'any number of' if files == endless else f'{files:,}'} open files, any address space")


def cgroup() -> Finding:
    """Memory and CPU time that the container, batch job or service may use."""
    memory, quota = _memory_limit(), _cpu_quota()
    text = [f"{memory / GIB:.1f} GiB of memory" if memory else "no limit of memory"]
    text.append(f"{quota:g} CPUs' time" if quota else "no limit of CPU time")
    if memory and memory < LEAST_MEMORY:
        return Finding(PROBLEM, ", ".join(text), "allow more memory: sbatch --mem, docker --memory")
    if quota and quota < cores():
        return Finding(NOTE, f"{', '.join(text)}, for {cores()} threads, which are stopped again and again",
                       f"taskset -c 0-{max(0, int(quota) - 1)}, or a higher quota: docker --cpus")  # fmt: skip
    return Finding(OK, ", ".join(text))


def _groups(controller: str) -> list[Path]:
    """Folders of this process's group of a controller and of those above it, which limit it, too."""
    try:
        lines = os.fsdecode((ROOT / "proc/self/cgroup").read_bytes()).splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = ROOT / "sys/fs/cgroup" / controllers
        group = Path(path.lstrip("/"))
        folders += [top / group, *(top / above for above in group.parents)]
    return folders


def _numbers(controller: str, *names: str) -> list[list[str]]:
    """Words of these files of all groups; files that are not there are left out."""
    paths = (folder / name for folder in _groups(controller) for name in names)
    return [path.read_text().split() for path in paths if path.is_file()]


def _memory_limit() -> int | None:
    limited = [int(words[0]) for words in _numbers("memory", "memory.max", "memory.limit_in_bytes")
               if words and words[0].isdecimal()]  # fmt: skip
    least = min(limited, default=None)
    return None if least is None or least > 2**60 else least  # the first version writes a huge number for none


def _cpu_quota() -> float | None:
    quotas = [int(words[0]) / int(words[1]) for words in _numbers("cpu", "cpu.max") if words[0].isdecimal()]
    for folder in _groups("cpu"):
        quota, period = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
        if quota.is_file() and period.is_file() and (microseconds := int(quota.read_text())) > 0:
            quotas.append(microseconds / int(period.read_text()))
    return min(quotas, default=None)


def numa() -> Finding:
    """Nodes of memory, and those that this process's cores are near to."""
    nodes = {path.name: _cpus((path / "cpulist").read_text())
             for path in sorted((ROOT / "sys/devices/system/node").glob("node[0-9]*"))}  # fmt: skip
    if len(nodes) < 2:
        return Finding(OK, "one node")
    allowed = os.sched_getaffinity(0)
    used = [name for name, cpus in nodes.items() if cpus & allowed]
    text = f"{len(nodes)} nodes, CPUs of {', '.join(used)}"
    far = _far_gpus(used)
    if far:
        return Finding(NOTE, f"{text}; GPUs at {', '.join(far)} are near others",
                       "allow CPUs near them: numactl --cpunodebind, sbatch --gres-flags=enforce-binding")  # fmt: skip
    return Finding(OK, text)


def _far_gpus(used: list[str]) -> list[str]:
    """PCI addresses of NVIDIA GPUs whose node has none of this process's CPUs."""
    far = []
    for device in gpus_on_the_bus():
        node = (device / "numa_node").read_text().strip() if (device / "numa_node").is_file() else "-1"
        if node != "-1" and f"node{node}" not in used:
            far.append(device.name)
    return far


def gpus_on_the_bus() -> list[Path]:
    """NVIDIA's display and 3D controllers, as the kernel lists them, with or without a driver."""
    folders = sorted((ROOT / "sys/bus/pci/devices").glob("*"))
    return [folder for folder in folders
            if _text(folder / "vendor") == "0x10de" and _text(folder / "class").startswith("0x03")]  # fmt: skip


def _text(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""


def _cpus(text: str) -> set[int]:
    """CPUs of a list like 0-3,8."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus
