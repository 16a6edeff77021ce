"""dask-cuda's cluster, in which each process sees only its own GPU: CUDA starts three times faster."""

from __future__ import annotations

from typing import Any

from dask_cuda import LocalCUDACluster

from pipeline.gpu.transfer import FED


class GpuProcesses(LocalCUDACluster):  # type: ignore[misc]
    """A worker of dask-cuda shows CUDA all GPUs, its own first, so every worker initializes every GPU.

    It then asks the driver which process uses which GPU, one worker after another, before it continues. Here a worker
    shows CUDA its own GPU only.
    """

    def new_worker_spec(self) -> dict[Any, dict[str, Any]]:
        """Options of the workers to start next."""
        specs: dict[Any, dict[str, Any]] = super().new_worker_spec()
        for spec in specs.values():
            options = spec["options"]
            own = options["env"]["CUDA_VISIBLE_DEVICES"].partition(",")[0]
            options["env"] = {"CUDA_VISIBLE_DEVICES": own, FED: str(len(self.cuda_visible_devices))}
            options["preload"], options["preload_argv"] = ["pipeline.cluster.cuda_preload"], []
            if not self.scheduler_spec["options"]["dashboard"]:
                options["config"] = {**(options.get("config") or {}), "distributed.diagnostics.nvml": False}
        return specs
