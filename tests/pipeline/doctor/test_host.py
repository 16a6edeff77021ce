"""Checks of the host: each thing that they read is broken once."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from kernels.common import cxx
from pipeline.doctor import host
from pipeline.doctor.check import NOTE, OK, PROBLEM

GIB = 2**30
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine: its /proc, /sys and /dev are folders that a test fills."""
    monkeypatch.setattr(host, "ROOT", tmp_path)
    return tmp_path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("system", "machine", "state"),
    [("Linux", "x86_64", OK), ("Linux", "aarch64", NOTE), ("Linux", "riscv64", PROBLEM), ("Darwin", "x86_64", PROBLEM)],
)
def test_machine(system: str, machine: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    finding = host.machine()
    assert finding.state == state and f"{system} {machine}" in finding.text
    assert bool(finding.remedy) == (state != OK)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    cxx.compiler.cache_clear()
    try:
        finding = host.compiler()
    finally:
        cxx.compiler.cache_clear()
    assert (finding.state, finding.text) == (NOTE, "no C++ compiler") and "install g++" in finding.remedy


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "c++").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "c++"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for cached in (cxx.compiler, cxx._library):
        cached.cache_clear()
    try:
        finding = host.compiler()
    finally:
        for cached in (cxx.compiler, cxx._library):
            cached.cache_clear()
    assert finding.state == NOTE and "does not compile" in finding.text


def test_a_cache_that_others_can_write_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert host.cache().state == OK
    tmp_path.chmod(0o777)
    monkeypatch.setattr("kernels.common.cache.warn_once", lambda *words: None)
    finding = host.cache()
    tmp_path.chmod(0o700)
    assert finding.state == NOTE and "XDG_CACHE_HOME" in finding.remedy


def test_one_core_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    assert host.affinity().state == NOTE
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 4})
    assert host.affinity().text == "2 of 8 CPUs" and host.affinity().state == OK


def test_no_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_connection", refuse)
    finding = host.ports()
    assert finding.state == PROBLEM and "Cannot assign" in finding.text and "lo up" in finding.remedy


def test_the_port_of_the_dashboard_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(host, "DASHBOARD", taken.getsockname()[1])
        finding = host.ports()
    assert finding.state == OK and "--dashboard-address :0" in finding.text


def test_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(GIB, GIB // 2, GIB // 2))
    assert host.disk().state == PROBLEM and host.disk().text == f"0.5 GiB free for temporary files in {tmp_path}"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(9 * GIB, 0, 9 * GIB))
    assert host.disk().state == OK
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert host.disk().state == PROBLEM and "TMPDIR" in host.disk().remedy


def test_shared_memory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.shared_memory().state == PROBLEM  # missing
    (root / "dev/shm").mkdir(parents=True)
    assert host.shared_memory().state == OK
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**26, 2**25, 2**25))
    assert (host.shared_memory().state, host.shared_memory().text) == (PROBLEM, "0.03 GiB free in /dev/shm")
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("which", "value", "state", "remedy"),
    [
        (resource.RLIMIT_NOFILE, 64, PROBLEM, "ulimit -n 1024"), (resource.RLIMIT_NOFILE, 512, NOTE, "ulimit -n 1024"),
        (resource.RLIMIT_AS, 4 * GIB, NOTE, "ulimit -v unlimited"),
        (resource.RLIMIT_FSIZE, GIB, NOTE, "ulimit -f unlimited"), (resource.RLIMIT_NOFILE, 4096, OK, ""),
    ],
)  # fmt: skip
def test_limits(which: int, value: int, state: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (value if asked == which else endless, endless))
    assert (host.limits().state, host.limits().remedy) == (state, remedy)


def test_address_space_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class One:
        usable = 1

    monkeypatch.setattr(host, "find_devices", One)
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (8 * GIB, 8 * GIB))
    assert host.limits().state == PROBLEM and "CUDA reserves" in host.limits().text


def test_cache_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user whom nobody knows, as in containers."""
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    monkeypatch.setattr(host, "cache_folder", lambda: Path("/tmp/new"))
    assert host.cache().state == NOTE and "XDG_CACHE_HOME" in host.cache().remedy


def test_cgroup_2(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least of the group and those above it."""
    assert host.cgroup().text == "no limit of memory, no limit of CPU time"
    put(root / "proc/self/cgroup", "0::/user/job\n")
    put(root / "sys/fs/cgroup/user/job/memory.max", "max\n")
    put(root / "sys/fs/cgroup/user/memory.max", f"{8 * GIB}\n")
    put(root / "sys/fs/cgroup/user/job/cpu.max", "max 100000\n")
    assert (host.cgroup().state, host.cgroup().text) == (OK, "8.0 GiB of memory, no limit of CPU time")
    put(root / "sys/fs/cgroup/user/job/cpu.max", "150000 100000\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    assert host.cgroup().state == NOTE and "1.5 CPUs' time, for 8 threads" in host.cgroup().text
    put(root / "sys/fs/cgroup/user/job/memory.max", str(GIB // 2))
    assert host.cgroup().state == PROBLEM and host.cgroup().text.startswith("0.5 GiB of memory")


def test_cgroup_of_any_name(root: Path) -> None:
    """Names are bytes."""
    put(root / "proc/self/cgroup", "")
    (root / "proc/self/cgroup").write_bytes(b"0::/\xe9\n")
    put(root / "sys/fs/cgroup" / os.fsdecode(b"\xe9") / "memory.max", f"{8 * GIB}\n")
    assert host.cgroup().text == "8.0 GiB of memory, no limit of CPU time"


def test_cgroup_1(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container sees its own group at the top, whatever its path is called outside."""
    put(root / "proc/self/cgroup", "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n")
    put(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", str(GIB // 4))
    put(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000")
    put(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
    assert (host.cgroup().state, host.cgroup().text) == (PROBLEM, "0.2 GiB of memory, 2 CPUs' time")
    put(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", str(2**63 - 4096))
    put(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1")
    assert host.cgroup().text == "no limit of memory, no limit of CPU time"


def test_numa(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, device = root / "sys/devices/system/node", root / "sys/bus/pci/devices/0000:41:00.0"
    put(nodes / "node0/cpulist", "0-3\n")
    assert host.numa().text == "one node"
    put(nodes / "node1/cpulist", "4-7,12\n")
    put(device / "vendor", "0x10de\n")
    put(device / "class", "0x030200\n")
    put(device / "numa_node", "1\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 12})
    assert (host.numa().state, host.numa().text) == (OK, "2 nodes, CPUs of node0, node1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    assert host.numa().state == NOTE and "0000:41:00.0 are near others" in host.numa().text
    put(device / "class", "0x020000\n")  # a network card
    assert host.numa().state == OK
