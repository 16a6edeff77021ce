"""Which results of elementwise operations are wrong, by check.cpp: integer arithmetic, bit for bit.

It shares no code with what computes results: neither arithmetic nor conversions, promotion or broadcasting. Without a
C++ compiler NumPy's own operations decide.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.map.reference import elementwise_reference

SOURCE = Path(__file__).with_suffix(".cpp")

# Numbered as in check.cpp.
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
OPERATIONS = ("add", "subtract", "multiply", "multiply_add", "minimum", "maximum")

# Bytes of a result checked at a time, at most: few enough to stay in the L2 cache with their operands, many enough for
# a thread to spend its time in loops that do not hold the GIL.
CHUNK = 2**18

Vector = NDArray[Any]


def wrong_places(result: NDArray[Any], arrays: Sequence[NDArray[Any]], operation: str) -> NDArray[np.int64]:
    """Where a result differs in any bit from the right one.

    Parameters
    ----------
    result : array of the promoted dtype, of the broadcast shape
    arrays : two arrays (three for ``"multiply_add"``) of `TYPES` in native byte order, of shapes that broadcast
    operation
        One of `OPERATIONS`.

    Returns
    -------
    int64 array, one dimension
        Places in the flattened result, ascending; empty if everything is right. NaN has to be the one NaN of the job,
        quiet and positive.

    Raises
    ------
    TypeError
        If an array has another dtype or byte order, or the result not the promoted dtype.
    ValueError
        If the shape of the result is not the one that the arrays are broadcast to.
    """
    _check_dtypes(arrays)
    if result.dtype != (dtype := _promoted(arrays)):
        raise TypeError(f"result: expected {dtype}, got {result.dtype}")
    if result.shape != (shape := np.broadcast_shapes(*(array.shape for array in arrays))):
        raise ValueError(f"result: expected shape {shape}, got {result.shape}")
    words = np.ascontiguousarray(result).reshape(-1).view(f"u{dtype.itemsize}")
    if all(array.shape == shape for array in arrays):
        arrays, shape = [array.reshape(-1) for array in arrays], (result.size,)
    views = [np.broadcast_to(array, shape) for array in arrays]
    wrong, start = [np.empty(0, np.int64)], 0
    for box in _boxes(shape, max(1, CHUNK // dtype.itemsize)):
        parts = [_vector(view[box]) for view in views]
        right = right_results(parts, operation)
        if right is None:
            right = numpy_results(parts, operation)
        stop = start + right.size
        differ = right.view(words.dtype) != words[start:stop]
        if differ.any():
            wrong.append(np.flatnonzero(differ) + start)
        start = stop
    return np.concatenate(wrong)


def operands_at(
    places: NDArray[np.int64], shape: tuple[int, ...], arrays: Sequence[NDArray[Any]]
) -> list[NDArray[Any]]:
    """The operands of these places in a flattened result of a shape: arrays of their own dtypes, shape (places,)."""
    shape = shape or (1,)
    indices = np.unravel_index(places, shape)
    return [_vector(np.broadcast_to(array, shape)[indices]) for array in arrays]


def right_results(arrays: Sequence[Vector], operation: str) -> Vector | None:
    """The right results, by integer arithmetic; None on a machine without a C++ compiler.

    Parameters
    ----------
    arrays : two arrays (three for ``"multiply_add"``) of `TYPES` in native byte order, shape (n,)
    operation
        One of `OPERATIONS`.

    Returns
    -------
    array of the promoted dtype, shape (n,)
    """
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    if operation == "multiply_add" and _promoted(arrays[:2]) != _promoted(arrays):
        product = right_results(arrays[:2], "multiply")
        return None if product is None else right_results((product, arrays[2]), "add")
    _check_dtypes(arrays)
    dtype = _promoted(arrays)
    alike = [_converted(functions, _vector(array), dtype) for array in arrays]
    results = np.empty_like(alike[0])
    if any(array.shape != results.shape for array in alike):
        raise ValueError(f"expected arrays of one length, got {', '.join(str(array.size) for array in alike)}")
    function, number, address = functions.right_results, ctypes.c_int, ctypes.c_void_p
    function.argtypes = (number, number, address, address, address, address, ctypes.c_size_t)
    function.restype = None
    a, b, c = (array.ctypes.data for array in (alike[0], alike[1], alike[-1]))
    function(TYPES.index(dtype.name), OPERATIONS.index(operation), a, b, c, results.ctypes.data, results.size)
    return results


def numpy_results(arrays: Sequence[Vector], operation: str) -> Vector:
    """The same by NumPy's own operations, with the NaN of the job."""
    if operation == "multiply_add":
        return numpy_results((numpy_results(arrays[:2], "multiply"), arrays[2]), "add")
    dtype = _promoted(arrays)
    with np.errstate(invalid="ignore"):  # signalling NaN
        alike = [array.astype(dtype, copy=False) for array in arrays]
    results = elementwise_reference(*alike, operation=operation)
    if dtype.kind == "f":
        results[np.isnan(results)] = np.nan
    return results


def _promoted(arrays: Sequence[NDArray[Any]]) -> np.dtype[Any]:
    """The dtype of NumPy's a + b and a * b + c: of three arrays that of the first two, promoted with the third."""
    dtype = arrays[0].dtype
    for array in arrays[1:]:
        dtype = np.result_type(dtype, array.dtype)
    return dtype


def _check_dtypes(arrays: Sequence[NDArray[Any]]) -> None:
    for array in arrays:
        if array.dtype.name not in TYPES or not array.dtype.isnative:
            raise TypeError(f"expected integers or floats in native byte order, got {array.dtype.str}")


def _vector(array: NDArray[Any]) -> Vector:
    """The elements, aligned and one after another; copied only if they are not."""
    return np.require(array, requirements=["C", "A"]).reshape(-1)


def _converted(functions: ctypes.CDLL, array: Vector, dtype: np.dtype[Any]) -> Vector:
    """The array as a dtype that it is promoted to; integers are rounded to floats in integer arithmetic."""
    if array.dtype == dtype:
        return array
    out = np.empty(array.shape, dtype)
    function, number, address = functions.converted, ctypes.c_int, ctypes.c_void_p
    function.argtypes, function.restype = (number, number, address, address, ctypes.c_size_t), None
    types = TYPES.index(array.dtype.name), TYPES.index(dtype.name)
    function(*types, array.ctypes.data, out.ctypes.data, array.size)
    return out


def _boxes(shape: tuple[int, ...], elements: int) -> Iterator[tuple[slice | int, ...]]:
    """Parts of at most so many elements, in the order of the elements in memory."""
    if not shape or not prod(shape):
        yield ()
        return
    axis = 0
    while axis < len(shape) - 1 and prod(shape[axis + 1 :]) > elements:
        axis += 1
    parts = -(-prod(shape[axis:]) // elements)
    step = max(1, shape[axis] // parts)
    for outer in np.ndindex(shape[:axis]):
        for start in range(0, shape[axis], step):
            yield (*outer, slice(start, start + step))
