"""What one device does to one array: CUDA and C++ sources, their launch wrappers, and plain CPU references.

No Dask, no files, no printing here. `load` compiles a `.cu` file and loads one of its kernels.
"""

from __future__ import annotations

from kernels.common.nvrtc import load

__all__ = ["load"]
