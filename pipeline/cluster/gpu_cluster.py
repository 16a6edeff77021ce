"""One process per GPU, which sees no other: dask-cuda's cluster, where CUDA starts in a third of the time."""

from __future__ import annotations

from typing import Any

from dask_cuda import LocalCUDACluster

from pipeline.gpu.transfer import FED


class GpuProcesses(LocalCUDACluster):  # type: ignore[misc]
    """As dask-cuda starts its workers, each shows CUDA all GPUs, its own first, and all are got ready by all of them.

    Then it asks the driver who uses which, while others wait for it, and only then the worker goes on.
    """

    def new_worker_spec(self) -> dict[Any, dict[str, Any]]:
        """What to start next."""
        found: dict[Any, dict[str, Any]] = super().new_worker_spec()
        for spec in found.values():
            options = spec["options"]
            own = options["env"]["CUDA_VISIBLE_DEVICES"].partition(",")[0]
            options["env"] = {"CUDA_VISIBLE_DEVICES": own, FED: str(len(self.cuda_visible_devices))}
            options["preload"], options["preload_argv"] = ["pipeline.cluster.cuda_preload"], []
            if not self.scheduler_spec["options"]["dashboard"]:
                options["config"] = {**(options.get("config") or {}), "distributed.diagnostics.nvml": False}
        return found
