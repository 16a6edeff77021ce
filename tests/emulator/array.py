"""The emulator's device array: it has an address, and NumPy's functions reject it as they reject CuPy arrays."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

Host = np.ndarray[Any, Any]
POISON = 0xCB  # every byte of memory that was allocated and not written
ALIGNED = 256  # bytes, as allocations on a device are


class Memory:
    """An allocation, with a written flag per byte."""

    def __init__(self, nbytes: int, written: bool) -> None:
        room = np.full(nbytes + ALIGNED, POISON, np.uint8)
        self.bytes = room[-room.ctypes.data % ALIGNED :][:nbytes]
        self.has_value = np.full(max(1, nbytes), written, np.uint8)

    def offset(self, array: Host) -> int:
        """Offset of an array within it, in bytes."""
        return int(array.ctypes.data - self.bytes.ctypes.data)


class DeviceArray(NDArrayOperatorsMixin):
    """A view of an allocation. Other attributes are those of the NumPy array; results are on the device again."""

    __module__ = "cupy"  # how code recognises CuPy arrays
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, host: Host, memory: Memory) -> None:
        self.host, self.memory = host, memory

    @property
    def data(self) -> Any:
        """The address and what it is of, in CuPy's form."""
        return SimpleNamespace(
            ptr=int(self.host.ctypes.data), mem=self.memory, copy_from_host_async=self._copy,
            copy_from_device_async=lambda source, nbytes, stream: self._copy(source.ptr, nbytes),
        )  # fmt: skip

    @property
    def has_value(self) -> Host:
        """Whether each byte was written; contiguous arrays only."""
        assert self.host.flags.c_contiguous
        return self.memory.has_value[self.memory.offset(self.host) :][: self.host.nbytes]

    def get(self) -> Host:
        """A copy on the host.

        Raises
        ------
        AssertionError
            If an element was allocated but never written.
        """
        if self.host.flags.c_contiguous and self.host.size:
            missing = np.flatnonzero(self.has_value == 0)
            assert not len(missing), f"element {missing[0] // self.host.itemsize} of {self.host.shape} has no value"
        return self.host.copy()

    def fill(self, value: Any) -> None:
        """Set every element."""
        self[...] = value

    def __getitem__(self, key: Any) -> Any:
        return self._wrap(self.host[unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.host[key] = unwrap(value)
        part = self._wrap(self.host[key])
        if part.memory is self.memory and part.host.size:
            part.has_value[:] = 1

    def _copy(self, address: int, nbytes: int) -> None:
        ctypes.memmove(self.host.ctypes.data, address, nbytes)
        self.has_value[:] = 1

    def __len__(self) -> int:
        return len(self.host)

    def __bool__(self) -> bool:
        return bool(self.host)

    def __int__(self) -> int:
        return int(self.host)

    def __float__(self) -> float:
        return float(self.host)

    def __index__(self) -> int:
        return self.host.__index__()

    def __repr__(self) -> str:
        return f"device {self.host!r}"

    def __array__(self, *_: Any, **__: Any) -> Host:
        raise TypeError("expected an array on the host, got one on a device; call get()")

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.host, name)
        if not callable(attribute):
            return self._wrap(attribute)
        return lambda *arguments, **options: self._wrap(attribute(*map(unwrap, arguments), **options))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        for value in inputs:
            if isinstance(value, np.ndarray) and value.ndim:
                raise TypeError("expected arrays on one device, got one on the host")
        result = getattr(ufunc, method)(*map(unwrap, inputs), **options)
        if not out:
            return self._wrap(result)
        out[0][...] = result
        return out[0]

    def _wrap(self, value: Any) -> Any:
        """A device array: a view of the same allocation where the result is one, otherwise a new allocation."""
        if not isinstance(value, np.ndarray | np.generic):
            return value
        if isinstance(value, np.ndarray) and np.may_share_memory(value, self.memory.bytes):
            return DeviceArray(value, self.memory)
        return to_device(np.asarray(value))


def unwrap(value: Any) -> Any:
    """The value with NumPy arrays in place of device arrays, also in tuples and lists."""
    if isinstance(value, tuple | list):
        return type(value)(map(unwrap, value))
    return value.host if isinstance(value, DeviceArray) else value


def allocate(shape: Any, dtype: Any, written: bool) -> DeviceArray:
    """An uninitialised array: every byte is `POISON`, which shows in any result."""
    dtype = np.dtype(dtype)
    memory = Memory(int(np.prod(shape, dtype=object)) * dtype.itemsize, written)
    return DeviceArray(memory.bytes.view(dtype).reshape(shape), memory)


def to_device(values: Host) -> DeviceArray:
    """A copy on the device."""
    array = allocate(values.shape, values.dtype, True)
    np.copyto(array.host, values, casting="no")
    return array
