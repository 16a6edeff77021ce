"""C++ types of NumPy's dtypes, as the kernels are instantiated for them (`types.cuh`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

C_TYPES = {
    "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "int", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "float16": "float16", "float32": "float", "float64": "double",
}  # fmt: skip
COURSE_TYPES = {name: C_TYPES[name] for name in ("int32", "float32", "float64")}  # dtypes of the courses

# Elements that are only moved, by their bytes.
UINT_OF_SIZE = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "ulonglong2"}

# The name of a dtype, other byte orders included, which takes NumPy as long as launching a kernel.
name_of: Callable[[np.dtype[Any]], str] = lru_cache(maxsize=64)(str)


@cache
def instance(kernel: str, dtype: np.dtype[Any], *arguments: int) -> str:
    """A kernel's name, for samples of a dtype and with more template arguments; NumPy takes long to name a dtype."""
    return f"{kernel}<{', '.join(map(str, (C_TYPES[dtype.name], *arguments)))}>"
