"""Writes a condition as CUDA C++: a call of a function of `arithmetic.cuh` for each of its parts.

Nothing of the text that a user wrote gets there: names are those of parameters, numbers are bit patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels.common.dtypes import C_TYPES
from kernels.select.tree import ARITHMETIC, COMPARISONS
from kernels.select.typed import Typed

VALUES = {"bool": "bool", **C_TYPES}  # types in which parts are computed
STORED = {**VALUES, "bool": "u8"}
OPERATORS = {"logical_and": "({} && {})", "logical_or": "({} || {})", "logical_not": "!{}"}
FUNCTIONS = {**{op: op for op in ARITHMETIC}, "sqrt": "square_root"}


def condition_text(condition: Typed, parameters: Mapping[str, np.dtype[Any]], name: str = "keep") -> str:
    """A device function that says whether a sample is kept.

    Parameters
    ----------
    condition
    parameters
        Dtypes of its parameters in their order, by what they are called in the condition; the first two are the sample
        and its index.
    name
        Of the function.
    """
    numbered = {own: f"v{number}" for number, own in enumerate(parameters)}
    declared = ", ".join(f"{STORED[dtype.name]} {numbered[own]}" for own, dtype in parameters.items())
    return (f'#include "select/arithmetic.cuh"\n\ninline __device__ bool {name}({declared}) {{\n'
            f"    return {_expression(condition, numbered)};\n}}\n")  # fmt: skip


def _expression(part: Typed, numbered: Mapping[str, str]) -> str:
    if part.op == "name":
        return f"({numbered[part.value]} != 0)" if part.dtype.kind == "b" else f"number({numbered[part.value]})"
    if part.op == "number":
        return _number(part)
    args = []
    for arg, take in zip(part.args, part.takes, strict=True):
        own = _expression(arg, numbered)
        args.append(own if arg.dtype == take else f"to<{VALUES[take.name]}>({own})")
    if part.op in OPERATORS:
        return OPERATORS[part.op].format(*args)
    if part.op in COMPARISONS:
        return f"{part.op}({', '.join(args)})"
    return f"{FUNCTIONS[part.op]}<{VALUES[part.dtype.name]}>({', '.join(args)})"


def _number(part: Typed) -> str:
    """Exactly this number, infinities and the sign of a zero included."""
    if part.dtype.kind == "b":
        return "true" if part.value else "false"
    if part.dtype.kind == "f":
        double = part.dtype.itemsize == 8
        bits = int(np.asarray(part.value).astype(np.float64 if double else np.float32).view("u8" if double else "u4"))
        return f"__longlong_as_double(i64({bits:#x}ull))" if double else f"__uint_as_float({bits:#x}u)"
    return f"{VALUES[part.dtype.name]}({int(part.value) % 2**64:#x}ull)"
