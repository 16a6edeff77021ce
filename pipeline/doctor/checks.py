"""All checks, in the order in which they are shown."""

from __future__ import annotations

from pipeline.doctor import gpus, host
from pipeline.doctor.check import Check
from pipeline.doctor.packages import packages

COMPILE_SECONDS = 40.0  # more than a compiler gets
CUDA_SECONDS = 60.0  # first use of a GPU, of several, on a busy machine

CHECKS = (
    Check("packages", packages),
    Check("machine", host.machine),
    Check("driver", gpus.driver),
    Check("NVML", gpus.nvml),
    Check("CUDA", gpus.cuda),
    Check("CuPy", gpus.cupy, CUDA_SECONDS),
    Check("kvikio", gpus.kvikio, CUDA_SECONDS),
    Check("MIG", gpus.mig),
    Check("compiler", host.compiler, COMPILE_SECONDS),
    Check("cache", host.cache),
    Check("affinity", host.affinity),
    Check("ports", host.ports),
    Check("disk", host.disk),
    Check("/dev/shm", host.shared_memory),
    Check("limits", host.limits),
    Check("cgroup", host.cgroup),
    Check("NUMA", host.numa),
)
