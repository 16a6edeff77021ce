"""Elements of products of floats by their definition, to the last bit: compiled, for many of them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import cxx
from kernels.common.row_tiles import on_tiles, tiles
from kernels.matmul.check_lines import TYPES, Array, Batch
from kernels.matmul.factors import Factors, of_batch
from kernels.matmul.formats import BITS, HALF_WAY, LOST, Format

SOURCE = Path(__file__).with_suffix(".cpp")

HELD = 2**21  # numbers of rows and columns that are held at a time
LINES, PLACES = 2**9, 2**12  # of a call
ELEMENTS = 2**17  # that are computed at a time

_terms = np.dtype([(name, np.int64) for name in ("high", "upper", "middle", "low", "leading")])
_facts = np.dtype([(name, np.int64) for name in ("moved", "first", "last", "size")])
_pointer, _size, _signed = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64


class Definition(ctypes.Structure):
    """What the definition needs of a format, as check_defined.hpp has it."""

    _fields_ = (
        *((name, _signed) for name in ("precision", "least", "kept", "bits", "lost", "half_way")),
        ("share", ctypes.c_double), ("infinity", ctypes.c_uint64), ("sign", ctypes.c_uint64),
    )  # fmt: skip

    @classmethod
    def of(cls, format: Format, inner: int) -> Definition:
        """Of sums of so many products."""
        of_bits = f"u{np.dtype(format.dtype).itemsize}"
        infinity, sign = (int(np.array(number, format.dtype).view(of_bits)) for number in (np.inf, -0.0))
        numbers = format.precision, format.least, format.kept, BITS, LOST, HALF_WAY
        return cls(*numbers, format.share(inner), infinity, sign)


class Support:
    """Which numbers of two matrices are not zero, as bits: whether a row and a column share a place.

    Attributes
    ----------
    rows, columns : uint64 arrays, shapes (M, words) and (N, words)
    """

    def __init__(self, factors: Factors) -> None:
        words = -(-factors.inner // 64)
        self._bits = [np.zeros((lines, 8 * words), np.uint8) for lines in (factors.rows, factors.columns)]
        self.rows, self.columns = (bits.view(np.uint64) for bits in self._bits)
        self._library = functions()

        def pack(inner: slice) -> None:
            blocks = factors.a(slice(0, factors.rows), inner), factors.b(inner).T
            for bits, block in zip(self._bits, blocks, strict=True):
                packed = np.packbits(np.ascontiguousarray(block != 0), axis=1)
                bits[:, inner.start // 8 : inner.start // 8 + packed.shape[1]] = packed

        on_tiles(pack, factors.parts(factors.rows + factors.columns))

    def disjoint(self, rows: Any, columns: Any, which: Array) -> Array:
        """Of some elements of a block, shape (rows, columns), those whose row and column share no place."""
        lines = [
            np.ascontiguousarray(bits[some])
            for bits, some in zip((self.rows, self.columns), (rows, columns), strict=True)
        ]
        out = np.ascontiguousarray(which)
        assert self._library is not None
        self._library.disjoint(*map(_at, lines), *out.shape, lines[0].shape[1], _at(out))
        return out


def defined(
    library: ctypes.CDLL, factors: Factors, exponents: Sequence[Array], places: Array, format: Format,
    batch: Batch = None,
) -> Array:  # fmt: skip
    """Elements of a product by its definition.

    Parameters
    ----------
    library
        Of `functions`.
    factors
        In the dtype of the product.
    exponents : int arrays, shapes (M,) and (N,)
        The least powers of two above the magnitudes of rows and columns.
    places : int array, shape (n, 2)
        Rows and columns, whose numbers are all finite.
    format
    batch
        Which matrix of a stack.

    Returns
    -------
    array of the dtype, shape (n,)
    """
    parts = [
        _defined(library, factors, exponents, places[part], format, batch) for part in tiles(len(places), ELEMENTS)
    ]
    return np.concatenate([np.empty(0, format.dtype), *parts])


def _defined(
    library: ctypes.CDLL, factors: Factors, exponents: Sequence[Array], places: Array, format: Format, batch: Batch
) -> Array:  # fmt: skip
    which, numbers = zip(*(np.unique(each, return_inverse=True) for each in places.T), strict=True)
    of_lines = [np.ascontiguousarray(of[lines], np.int64) for of, lines in zip(exponents, which, strict=True)]
    at = np.ascontiguousarray(np.stack(numbers, axis=-1), np.int32)
    definition, terms = Definition.of(format, factors.inner), np.zeros(len(at), _terms)
    facts = [np.full(len(lines), np.array((np.iinfo(np.int64).min, np.iinfo(np.int64).max, -1, 0), _facts))
             for lines in which]  # fmt: skip
    memory: list[Array] = []
    for start, lines in _lines(library, factors, which, batch):
        memory = memory or [np.empty(block.size, np.int64) for block in lines]
        integers = [_in(own, *block.shape) for own, block in zip(memory, lines, strict=True)]
        for block, of, out, own in zip(lines, of_lines, integers, facts, strict=True):

            def convert(
                part: slice,
                block: Array = block,
                of: Array = of,
                out: Array = out,
                own: Array = own,
                place: int = start,
            ) -> None:
                library.integers(_at(block[part]), part.stop - part.start, block.shape[1], _at(of[part]), place,
                                 ctypes.byref(definition), _at(out[part]), _at(own[part]))  # fmt: skip

            on_tiles(convert, tiles(len(block), LINES))

        def add(part: slice, integers: Sequence[Array] = integers) -> None:
            library.add(*map(_at, integers), integers[0].shape[1], _at(at[part]), part.stop - part.start,
                        ctypes.byref(definition), _at(terms[part]))  # fmt: skip

        on_tiles(add, tiles(len(at), PLACES))
    bits, certain = np.empty(len(at), np.uint64), np.empty(len(at), bool)
    library.settle(_at(terms), *map(_at, facts), *map(_at, of_lines), _at(at), len(at), factors.inner,
                   ctypes.byref(definition), _at(bits), _at(certain))  # fmt: skip
    elements = bits.astype(f"u{np.dtype(format.dtype).itemsize}").view(format.dtype)
    if not certain.all():
        elements[~certain] = _in_order(library, factors, exponents, places[~certain], format, batch)
    return elements


def _in_order(
    library: ctypes.CDLL, factors: Factors, exponents: Sequence[Array], places: Array, format: Format, batch: Batch,
    scaled: bool = False,
) -> Array:  # fmt: skip
    """Sums of products in order; where they are not finite, those of scaled numbers."""
    which, numbers = zip(*(np.unique(each, return_inverse=True) for each in places.T), strict=True)
    at, sums = np.ascontiguousarray(np.stack(numbers, axis=-1), np.int32), np.zeros(len(places))
    for _, lines in _lines(library, factors, which, batch):
        if scaled:
            lines = [np.ldexp(block, HALF_WAY - of[rows][:, None])
                     for block, of, rows in zip(lines, exponents, which, strict=True)]  # fmt: skip

        def add(part: slice, lines: list[Array] = lines) -> None:
            library.add_in_order(*map(_at, lines), lines[0].shape[1], _at(at[part]), part.stop - part.start,
                                 _at(sums[part]))  # fmt: skip

        on_tiles(add, tiles(len(at), PLACES))
    if scaled:
        rows, columns = (of[lines] for of, lines in zip(exponents, places.T, strict=True))
        sums = np.ldexp(sums, rows + columns - 2 * HALF_WAY)
    elements = sums.astype(format.dtype)
    if not scaled and (infinite := ~np.isfinite(sums)).any():
        elements[infinite] = _in_order(library, factors, exponents, places[infinite], format, batch, True)
    return elements


def sums_and_sizes(
    library: ctypes.CDLL, factors: Factors, scales: Sequence[Array], places: Array
) -> tuple[Array, Array]:
    """Sums of products in float64, and of their magnitudes, for some elements of a product of two matrices.

    Parameters
    ----------
    library
        Of `functions`.
    factors
    scales : int arrays, shapes (M,) and (N,)
        Rows and columns are divided by these powers of two.
    places : int array, shape (n, 2)
        Rows and columns, whose numbers are all finite.
    """
    which, numbers = zip(*(np.unique(each, return_inverse=True) for each in places.T), strict=True)
    at, sums = np.ascontiguousarray(np.stack(numbers, axis=-1), np.int32), np.zeros((len(places), 2))
    for _, lines in _lines(library, factors, which, None):
        for block, scale, some in zip(lines, scales, which, strict=True):
            block *= np.ldexp(1.0, -scale[some])[:, None]

        def add(part: slice, lines: list[Array] = lines) -> None:
            library.add_with_sizes(*map(_at, lines), lines[0].shape[1], _at(at[part]), part.stop - part.start,
                                   _at(sums[part]))  # fmt: skip

        on_tiles(add, tiles(len(at), PLACES))
    return sums[:, 0], sums[:, 1]


def _lines(
    library: ctypes.CDLL, factors: Factors, which: Sequence[Array], batch: Batch
) -> Iterator[tuple[int, list[Array]]]:
    """Some rows of A and columns of B, some of their numbers at a time, and the place of the first of these."""
    step = max(1, factors.within(HELD, 4) // max(1, sum(map(len, which))))
    memory = [np.empty(len(some) * min(step, factors.inner)) for some in which]
    for inner, blocks in zip(factors.slices, factors.slabs(), strict=True):
        a, b = (block if batch is None else of_batch(block, batch) for block in blocks)
        for part in tiles(a.shape[-1], step):
            yield (
                inner.start + part.start,
                [
                    _gathered(library, lines, some, out)
                    for lines, some, out in zip((a[:, part], b[part].T), which, memory, strict=True)
                ],
            )


def _gathered(library: ctypes.CDLL, lines: Array, which: Array, memory: Array) -> Array:
    """Some lines, as float64, in this memory."""
    out, strides = _in(memory, len(which), lines.shape[1]), [stride // lines.itemsize for stride in lines.strides]

    def gather(part: slice) -> None:
        library.gather(TYPES.index(lines.dtype.name), _at(lines), *strides, _at(which[part]), part.stop - part.start,
                       lines.shape[1], _at(out[part]))  # fmt: skip

    on_tiles(gather, tiles(len(which), LINES))
    return out


def _in(memory: Array, *shape: int) -> Array:
    """An array in memory that is used again: new pages take longer than what is done with them."""
    return memory[: math.prod(shape)].reshape(shape)


def _at(array: Array) -> int:
    return array.ctypes.data


def functions() -> ctypes.CDLL | None:
    """What is compiled; None without a C++ compiler."""
    library = cxx.library(SOURCE)
    if library is not None:
        library.gather.argtypes = ctypes.c_int, _pointer, _size, _size, _pointer, _size, _size, _pointer
        library.integers.argtypes = _pointer, _size, _size, _pointer, _signed, *[_pointer] * 3
        library.add.argtypes = *[_pointer] * 2, _size, _pointer, _size, *[_pointer] * 2
        library.add_in_order.argtypes = *[_pointer] * 2, _size, _pointer, _size, _pointer
        library.add_with_sizes.argtypes = library.add_in_order.argtypes
        library.settle.argtypes = *[_pointer] * 6, _size, _signed, *[_pointer] * 3
        library.disjoint.argtypes = *[_pointer] * 2, *[_size] * 3, _pointer
        for function in (
            library.disjoint,
            library.gather,
            library.integers,
            library.add,
            library.add_in_order,
            library.add_with_sizes,
            library.settle,
        ):
            function.restype = None
    return library
