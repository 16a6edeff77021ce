"""dask-cuda's cluster with only its own GPU visible to each process: CUDA starts three times faster."""

from __future__ import annotations

from typing import Any

from dask_cuda import LocalCUDACluster

from pipeline.gpu.transfer import FED


class GpuProcesses(LocalCUDACluster):  # type: ignore[misc]
    """In a worker of dask-cuda, CUDA sees all GPUs, the worker's own first, so every worker initializes every GPU.

    Workers then ask the driver, one after another, which process uses which GPU, before they continue. Here CUDA sees
    only the worker's own GPU.
    """

    def new_worker_spec(self) -> dict[Any, dict[str, Any]]:
        """Options of the workers that start next."""
        specs: dict[Any, dict[str, Any]] = super().new_worker_spec()
        for spec in specs.values():
            options = spec["options"]
            own = options["env"]["CUDA_VISIBLE_DEVICES"].partition(",")[0]
            options["env"] = {"CUDA_VISIBLE_DEVICES": own, FED: str(len(self.cuda_visible_devices))}
            options["preload"], options["preload_argv"] = ["pipeline.cluster.cuda_preload"], []
            if not self.scheduler_spec["options"]["dashboard"]:
                options["config"] = {**(options.get("config") or {}), "distributed.diagnostics.nvml": False}
        return specs
