"""Baselines on the CPU that the kernels are measured beside, on NumPy arrays: loops in Python and C, NumPy, BLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.study.variant import Variant, by_name

SOURCE = Path(__file__).with_suffix(".cpp")

VALUES = 1024  # of a 10-bit sample
Array = NDArray[Any]


def _call(function: str, *arguments: Array | int, returns: Any = None) -> Any:
    """Call a function of baselines.cpp with the addresses of arrays and 64-bit sizes.

    Raises
    ------
    ValueError
        Without a C++ compiler.
    """
    library = cxx.library(SOURCE)
    if library is None:
        raise ValueError("loops in C: expected a C++ compiler, found none; install one")
    called = getattr(library, function)
    called.restype = returns
    called.argtypes = [ctypes.c_void_p if isinstance(one, np.ndarray) else ctypes.c_int64 for one in arguments]
    return called(*(one.ctypes.data if isinstance(one, np.ndarray) else one for one in arguments))


def _histogram_python(samples: Array) -> Array:
    """The course's program: a list of counters, a sample at a time. Without its file, which takes most of its time."""
    counts = [0] * VALUES
    for value in samples.tolist():
        counts[value] += 1
    return np.array(counts, np.int64)


def _histogram_loop(samples: Array) -> Array:
    counts = np.zeros(VALUES, np.int64)
    _call("histogram_loop", samples, counts, samples.size)
    return counts


def _histogram_numpy(samples: Array) -> Array:
    return np.bincount(samples, minlength=VALUES)


def _add_loop(a: Array, b: Array) -> Array:
    out = np.empty_like(a)
    _call("add_float32", a, b, out, a.size)
    return out


def _sum_loop(samples: Array, op: str = "sum") -> Array:
    return np.array([_call("sum_float32", samples, samples.size, returns=ctypes.c_double)])


def _sum_numpy(samples: Array, op: str = "sum") -> Array:
    return np.array([samples.sum(dtype=np.float64)])


def _transpose_loop(array: Array) -> Array:
    out = np.empty(array.shape[::-1], array.dtype)
    _call("transpose_float32", array, out, *array.shape)
    return out


def _transpose_numpy(array: Array) -> Array:
    return np.ascontiguousarray(array.T)


def _product_loop(a: Array, b: Array) -> Array:
    out = np.empty((len(a), b.shape[1]), a.dtype)
    _call(f"product_{a.dtype}", a, b, out, *a.shape, b.shape[1])
    return out


def _product_blas(a: Array, b: Array) -> Array:
    product: Array = a @ b
    return product


def _baselines(*described: tuple[str, str, Any]) -> Mapping[str, Variant]:
    return by_name(*(Variant(name, idea, run, on_host=True) for name, idea, run in described))


# By job.
BASELINES: Mapping[str, Mapping[str, Variant]] = MappingProxyType({
    "histogram": _baselines(
        ("cpu_python", "a loop in Python", _histogram_python), ("cpu_loop", "a loop in C, one thread", _histogram_loop),
        ("cpu_numpy", "numpy.bincount", _histogram_numpy),
    ),
    "map": _baselines(("cpu_loop", "a loop in C, one thread", _add_loop), ("cpu_numpy", "numpy.add", np.add)),
    "reduce": _baselines(
        ("cpu_loop", "a loop in C, one thread, one accumulator in double", _sum_loop),
        ("cpu_numpy", "numpy.sum in double", _sum_numpy),
    ),
    "transpose": _baselines(
        ("cpu_loop", "two loops in C, one thread", _transpose_loop),
        ("cpu_numpy", "numpy.ascontiguousarray of the transpose", _transpose_numpy),
    ),
    "matmul": _baselines(
        ("cpu_loop", "three loops in C, one thread", _product_loop),
        ("cpu_blas", "NumPy's BLAS, as many threads as it takes", _product_blas),
    ),
})  # fmt: skip
