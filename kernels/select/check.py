"""Which samples a condition keeps, for verification: compiled, and by another way than `mask.py`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.select.typed import Typed

SOURCE = Path(__file__).with_suffix(".cpp")
BLOCK = 1024  # samples of a lane, as in check.cpp

# Numbered as in check.cpp.
OPS = (
    "load", "number", "to_double", "add", "subtract", "multiply", "divide", "negative", "absolute", "sqrt", "less",
    "less_equal", "equal", "not_equal", "greater_equal", "greater", "logical_and", "logical_or", "logical_not",
)  # fmt: skip
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
         "bool")  # fmt: skip

Step = tuple[int, int, int, int]


class KeptCheck:
    """Finds the samples that a condition keeps.

    Parameters
    ----------
    functions
        Those of check.cpp.
    condition
    """

    def __init__(self, functions: ctypes.CDLL, condition: Typed) -> None:
        self._names: list[str] = []
        self._dtypes: list[np.dtype[Any]] = []
        self._steps = np.array(list(self._of(condition)), np.uint64)
        depth = int(np.cumsum([_growth(step) for step in self._steps[:, 0].tolist()]).max())
        self._lanes = np.empty((depth, BLOCK), np.uint64)
        self._function = functions.keep_samples
        pointer, word = ctypes.c_void_p, ctypes.c_size_t
        self._function.argtypes = pointer, word, pointer, word, pointer, pointer
        self._function.restype = word

    @staticmethod
    def of(condition: Typed) -> KeptCheck | None:
        """The check of a condition; None without a compiler."""
        functions = cxx.library(SOURCE)
        return None if functions is None else KeptCheck(functions, condition)

    def _of(self, part: Typed) -> Iterator[Step]:
        """The steps that put a part on the stack: its operands first."""
        own = TYPES.index(part.dtype.name)
        if part.op == "number":
            held = np.float64 if part.dtype.kind == "f" else np.int64 if part.dtype.kind == "i" else np.uint64
            yield OPS.index("number"), own, own, int(np.asarray(part.value).astype(held).view(np.uint64))
        elif part.op == "name":
            if part.value not in self._names:
                self._names.append(part.value)
                self._dtypes.append(part.dtype)
            yield OPS.index("load"), own, own, self._names.index(part.value)
        else:
            for arg, take in zip(part.args, part.takes, strict=True):
                yield from self._of(arg)
                if take.kind == "f" and arg.dtype.kind != "f":
                    yield OPS.index("to_double"), TYPES.index(arg.dtype.name), 0, 0
            first, last = (TYPES.index(take.name) for take in (part.takes[0], part.takes[-1]))
            yield OPS.index(part.op), first if part.dtype == bool else own, last, 0

    def numbers(self, values: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Numbers of the samples that are kept, ascending.

        Parameters
        ----------
        values : arrays of the native dtypes of the condition, shape (n,)
            Of each name in the condition; at least one.
        """
        samples = len(next(iter(values.values())))
        arrays = [np.require(values[name], dtype, ["C", "A"])
                  for name, dtype in zip(self._names, self._dtypes, strict=True)]  # fmt: skip
        pointers = (ctypes.c_void_p * max(len(arrays), 1))(*(array.ctypes.data for array in arrays))
        kept = np.empty(samples, np.int64)
        steps, lanes = self._steps, self._lanes
        number = self._function(steps.ctypes.data, len(steps), pointers, samples, lanes.ctypes.data, kept.ctypes.data)
        return kept[:number]


def _growth(op: int) -> int:
    """How many lanes more a step leaves on the stack."""
    name = OPS[op]
    return 1 if name in ("load", "number") else 0 if name in ("to_double", "negative", "absolute", "sqrt",
                                                              "logical_not") else -1  # fmt: skip
