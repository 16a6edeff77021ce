"""Mutants that no case catches, each with the reason why it changes no result."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# (file, function, text) of mutants that change no result, and why.
EQUIVALENT: Mapping[tuple[str, str, str], str] = MappingProxyType({
    ("reduce/last_block.cuh", "finish", "least.at != NOWHERE"): "nothing is found where nothing is",
    ("reduce/last_block.cuh", "finish", "low != NONE"): "the place stays",
    ("reduce/last_block.cuh", "finish", "high != NONE"): "the place stays",
    ("reduce/last_block.cuh", "finish", "atomicExch("): "all other blocks have gone",
    ("reduce/last_block.cuh", "finish", "warp >= WARPS / 2"): "the warps before it have nothing to write",
    ("study/matmul.cu", "by_tiles", "inner"): "one more step multiplies the zeros that fill up a tile",
    ("study/matmul_register.cuh", "register_tiled", "inner"): "as in by_tiles",
    ("matmul/small.cu", "multiply_small", "own >= rows"): "a warp without rows multiplies zeros for nothing",
    ("matmul/multiply_wgmma.cuh", "free", "threadIdx.x == 0"): "on a host these barriers are none",
    ("matmul/multiply_wgmma.cuh", "free", "__syncthreads()"): "on a host these barriers are none",
    ("matmul/multiply_wgmma.cuh", "add_up", "columns % 4 == 0"): "a host stores one word after another",
    ("matmul/dot_products.cuh", "some", "inner"): "one more step, behind the end of every span",
    ("study/reduce.cu", "modulo", "size"): "one more step, in which no thread has a neighbour",
    ("study/reduce.cu", "atomic_max", "tid == 0"): "every thread raises the maximum to the same value",
    ("study/reduce.cu", "warp_shuffle", "tid >= 32"): "other warps reduce what nobody asks them for",
    ("transpose/gpu.cu", "tiled", "row == 0 || height < ROWS + S::MORE"): "no other tile has ends",
    ("stencil/rows.cuh", "fetch_packs", "count"): "one more, which the next tile brings again",
    ("stencil/box.cuh", "slide", "span.count - tile > at"): "one more tile, without outputs",
    ("stencil/box.cuh", "slide", "__syncthreads()"): "what others fetch is there at once on a host",
    ("stencil/gpu.cu", "weighted", "next_tile < span.count"): "one more tile, without outputs",
    ("stencil/gpu.cu", "few_taps", "tile + TILE < span.count"): "one more tile, without outputs",
    ("stencil/terms.cuh", "places", "__syncthreads()"): "the next call is behind other barriers",
    ("stencil/box.cuh", "slide", "2 * radius + 1 < i64(1) << Marks::BITS"): "only on GPUs: kernels/stencil/test_gpu.py",
    ("stencil/box.cuh", "constexpr", "min(span.count - tile, TILE)"): "what fits more elements fits these",
    ("stencil/gpu.cu", "box_far", "__syncthreads()"): "a host reads the last digit before a barrier",
    ("matmul/multiply_wgmma.cuh", "multiply_tiles", "atomicOr("): "all write the same",
    ("matmul/dot_products.cuh", "all", "end"): "one more slice, behind the end of every span",
    ("matmul/small_k.cu", "multiply_small_k", "__syncthreads()"): "what tensor cores read is not watched on a host",
})  # fmt: skip
# The same for conditions that only choose the faster of two paths to one result, or one lane among lanes that would all
# write the same. They are no bounds checks, so the score leaves them out.
FASTER: Mapping[tuple[str, str, str], str] = MappingProxyType({
    ("histogram/locate.cuh", "quick", "inside == MANY"): "a search among more thresholds ends at the same one",
    ("histogram/locate.cuh", "quick", "entry >> FIRST_BITS > 1"): "a search among none or one ends there, too",
    ("reduce/float_sum.cuh", "within", "lowest > 1"): "windows are opened more often than they have to be",
    ("reduce/float_sum.cuh", "constexpr", "__any_sync(ALL_LANES, moves || left == 0)"): "as often as that",
    ("reduce/tile.cuh", "store", "lane == 3"): "every lane has the same to say",
    ("reduce/tile.cuh", "store", "first_nan != NONE"): "nothing is left of none, and no maximum is below that",
    ("reduce/exponent_bins.cuh", "add", "tiles == MOST"): "as often as that",
    ("reduce/deferred_tiles.cuh", "defer", "step < 32"): "fewer tiles are deferred unseen",
    ("matmul/dot_products.cuh", "all", "thread % 32 == 0"): "every lane has the same to say",
    ("matmul/gpu.cu", "find_uncertain", "least < enough"): "each element is looked at, to the same end",
    ("matmul/gpu.cu", "dot_products", "uncertain.count >= MANY"): "both ways give the same bits",
    ("stencil/terms.cuh", "places", "threadIdx.x % 32 == 0"): "every lane has the same to say",
    ("stencil/gpu.cu", "box_range", "threadIdx.x % 32 == 0"): "every lane has the same to say",
    ("stencil/gpu.cu", "box_far", "2 * radius <= SIZE"): "another way to the same digits",
    ("stencil/digits.cuh", "sum", "next >= 0"): "all digits are as exact as the highest",
    ("stencil/digits.cuh", "sum", "(rest <= 2 * most || rest >= (i64(1) << 40) - 2 * most)"): "as exact",
    ("matmul/multiply_wgmma.cuh", "multiply_tiles", "threadIdx.x % 32 == 0"): "every lane has the same to say",
    ("matmul/chinese_remainder.cuh", "store_four", "element + 4 > size"): "one after another",
    ("matmul/chinese_remainder.cuh", "constexpr", "lowest >= F::LEAST"): "the slower way rounds the same",
    ("stencil/digits.cuh", "below", "here >= 64"): "all digits are added up instead",
    ("stencil/digits.cuh", "below", "here > 0"): "all digits are added up instead",
    ("matmul/small_k.cuh", "finish", "WHOLE || (row < of.rows && first + column < of.columns)"): "more is uncertain",
    ("matmul/small_k.cu", "multiply_small_k", "round < rounds"): "columns are loaded once more, for nothing",
    ("matmul/small_k.cu", "multiply_small_k", "threadIdx.x % 32 == 0"): "every lane has the same to say",
})  # fmt: skip
# Those that change results which no case is large enough to show.
MISSED: Mapping[tuple[str, str, str], str] = MappingProxyType({
})  # fmt: skip
# Header functions of which a source executes only some paths: the mutants are counted with the other sources.
ELSEWHERE = {
    ("matmul/small_k", "matmul/chinese_remainder.cuh", "to_float")
}  # numbers there are moderate; matmul/gpu.cu has others
