"""Mutants that no case catches, each with the reason why it changes no result, or what it would take to see it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tests.emulator import survivors_common

# (file, function, text) of mutants that change no result, or none beyond what is promised, and why.
EQUIVALENT: Mapping[tuple[str, str, str], str] = MappingProxyType({
    **survivors_common.EQUIVALENT,
    ("quantile/gpu.cu", "quantile_few", "begins at 16 + 1"): "the other steps add up all lanes, as well",
    ("quantile/tiles.cuh", "scan_tiles", "min(n, misaligned ? PER_PACK - misaligned : i64(0))"):
        "of so few samples each is counted by itself",
    ("quantile/bracket.cu", "quantile_bracket", "zero != zero"): "counts the same NaN one by one",
    ("quantile/bracket.cu", "quantile_bracket", "half the width: upto += before"): "a warp keeps 512 samples at most",
    ("quantile/bracket.cu", "quantile_prove", "group + 1 < ranges"): "no key is beyond the last range",
    ("quantile/keys.cuh", "towards_zero", "plain < MINUS_INFINITY"): "both are in the slot of -infinity",
    ("histogram/grouped.cu", "regroup", "threadIdx.x % (32 + 1) == 0 && left_out"): "another thread of each warp",
    ("histogram/cpu.cpp", "take_turns", "i + (count - turn) <= n ? i + (count - turn) : n"):
        "of equal numbers either will do",
    ("histogram/cpu.cpp", "count", "n"): "one more piece, without samples",
    ("histogram/cpu.cpp", "count", "n - start <= PIECE ? n - start : PIECE"): "of equal numbers either will do",
    ("histogram/cpu.cpp", "map_holds", "line(high) + 1 < slot"): "the line rises: the first sample is as far below",
    ("histogram/cpu.cpp", "map_holds", "line(low) > slot"): "the line rises: the last sample is as far above",
    ("histogram/cpu.cpp", "searched", "ends at length - 1 (3)"): "what is left at the end is as many",
    ("histogram/rows.cu", "rows_in_runs", "bounds[middle] < at"): "a run that ends there is skipped",
    ("histogram/rows.cu", "scan_packs", "items"): "what is located beyond the last sample is not counted",
    ("histogram/rows.cu", "rows_in_runs", "copies"): "the first copy is zero by then",
    ("histogram/steps.cuh", "finish", "half the width: sum += words[row * COPIES + (threadIdx.x + k) % COPIES]"):
        "a block has fewer than 2^32 samples",
    ("histogram/steps.cuh", "rows", "all + mine * slots"): "no sample is counted beyond the last slot",
    ("map/gpu.cu", "elementwise", "i64(gridDim.x) * (THREADS + 1)"):
        "there are as many threads as single elements: no thread takes two",
    ("matmul/certificate.cuh", "add", "half the width: size += int(magnitude)"): "eight magnitudes of seven bits",
    ("matmul/digits.cuh", "round", "lowest | (low & ((1 << (OVER + 1)) - 1))"): "that bit is the last of `second`",
    ("matmul/digits.cuh", "round", "host_other_fma(double(upper >> OVER), 42949"):
        "a product by a power of two is exact",
    ("matmul/dot_products.cuh", "some", "inner"): "one more step, behind the end of every span",
    ("matmul/dot_products.cuh", "all", "end"): "one more slice, behind the end of every span",
    ("matmul/numbers.cuh", "reduced", "host_other_fma(float(sum), inverse, MAGIC)"):
        "tried with all sums and moduli: the rest is the same",
    ("matmul/recompute.cuh", "Known", "half the width: part.size += int(F::magnitude(whole)) + 1"):
        "at most 32 magnitudes of seven bits",
    ("matmul/recompute.cuh", "is_certain",
     "half the width: total += F::magnitude(whole_of_row(k)) * "
     "F::magnitude(whole_"):
        "elements with a sum above 2^16 are certain by its lower bound",
    ("matmul/residues.cuh", "residue", "host_other_fma(__uint_as_float(sum), table."):
        "tried with all sums: the residue is another one, or the same, of eight bits",
    ("matmul/small.cu", "multiply_small", "own >= rows"): "a warp without rows only multiplies zeros",
    ("matmul/small_k.cu", "multiply_small_k", "group % CONSUMERS != warpgroup"):
        "the warpgroups take turns in another order",
    ("quantile/gpu.cu", "cell", "half the width: cell += firsts[cell + half] <= key ? half : 0"):
        "there are fewer than 2^16 cells",
    ("quantile/gpu.cu", "operator()", "half the width: reached += ends[reached + step - 1] <= key ? step : 0"):
        "there are fewer than 2^16 ends",
    ("quantile/cpu_keys.hpp", "of", "((size ^ minus) - minus) - HALF"): "modulo 2^bits half is its own opposite",
    ("quantile/cpu_keys.hpp", "in_pieces", "n"): "one more piece, without samples",
    ("quantile/cpu_keys.hpp", "in_pieces", "n - start <= PIECE ? n - start : PIECE"): "of equal numbers either will do",
    ("quantile/cpu.cpp", "operator()", "half the width: cell += firsts[cell + half] <= key ? half : 0"):
        "there are fewer than 2^16 cells",
    ("quantile/cpu.cpp", "add", "length"): "one more group, without samples",
    ("quantile/cpu.cpp", "add", "length - start <= GROUP ? length : start + GRO"): "of equal numbers either will do",
    ("quantile/cpu.cpp", "add", "inside"): "one more slot, which is not counted",
    ("quantile/cpu.cpp", "gather", "n"): "one more key, behind those that are returned",
    ("quantile/cpu.cpp", "gather", "half the width: number += n"): "a block gathers fewer than 2^16 keys",
    ("quantile/cpu.cpp", "in_cells", "cells.number > FEW_CELLS"): "either way counts the same",
    ("quantile/cpu.cpp", "in_cells", "cells.number >= FEW_CELLS"): "either way counts the same",
    ("quantile/cpu.cpp", "around_few", "half the width: nan += keys[i] == static_cast<Key>(~Key(0))"):
        "a piece has 1024 samples",
    ("quantile/cpu.cpp", "around_many",
     "half the width: upto[i] += half & -static_cast<u32>(keys_of[upto[i] + half -"): "there are fewer than 2^15 keys",
    ("quantile/cpu.cpp", "around_many", "half the width: upto[i] += keys_of[upto[i]] <= keys[i]"):
        "there are fewer than 2^15 keys",
    ("quantile/cpu.cpp", "around_many", "half the width: slots[i] += keys[i] == static_cast<Key>(~Key(0))"):
        "there are fewer than 2^15 keys",
    ("reduce/cpu_float.hpp", "scan", "less <= smallest ? less : smallest"): "of equal numbers either will do",
    ("reduce/cpu_float.hpp", "scale_down", "samples[i] >= 0 ? POSITIVE : NEGATIVE"): "an infinity is no zero",
    ("reduce/cpu_float.hpp", "reduce_halves", "n"): "one more block, without samples",
    ("reduce/cpu_integer.hpp", "integer_sums", "sum <= 0 ? -sum : sum"): "zero is its own opposite",
    ("reduce/cpu_integer.hpp", "key_of", "static_cast<T>(-1) >= 0 && sizeof(T) == 8"): "no type has -1 for 0",
    ("reduce/cpu_partial.hpp", "finish", "parts | SQUARES"): "without squares their words are zero",
    ("reduce/cpu_partial.hpp", "first_equal", "i < n"): "the value is one of the samples",
    ("reduce/exact_sum.cuh", "add_to_first", "host_other_fma(a, b, before)"):
        "the remainder makes up for what the first level takes too much or too little",
    ("reduce/exponent_window.cuh", "add", "host_other_fma(value, value, total)"):
        "the square of half the bits is exact",
    ("reduce/exponent_window.cuh", "add", "host_other_fma(left[i], left[i], total)"):
        "the square of half the bits is exact",
    ("reduce/float_sum.cuh", "fit", "(top - RANGE <= least || top + RANGE <= 1 - F::BIAS)"):
        "`least` is no less than that: the first comparison holds, too",
    ("reduce/last_block.cuh", "finish", "atomicExch("): "all other blocks have ended",
    ("reduce/last_block.cuh", "finish", "atomicExch( (2)"): "all other blocks have ended",
    ("reduce/last_block.cuh", "finish", "least.at != NOWHERE"): "there is nothing to look up",
    ("reduce/last_block.cuh", "finish", "low != NONE"): "the place stays",
    ("reduce/last_block.cuh", "finish", "high != NONE"): "the place stays",
    ("reduce/last_block.cuh", "finish", "warp >= WARPS / 2 (2)"): "what earlier warps look up they do not write",
    ("stencil/tile.cuh", "put_marks", "in - mark"): "it only matters whether there are any",
    ("stencil/box.cuh", "slide", "span.count - tile > at"): "one more tile, without outputs",
    ("select/compact.cuh", "compact", "half the width: total += (rows & 0xffff) + (rows >> 16)"):
        "a warp keeps 2^12 samples at most",
    ("select/compact.cuh", "compact", "half the width: earlier += of_warp[w]"): "a tile has 2^15 samples at most",
    ("select/compact.cuh", "compact", "half the width: own += of_warp[w]"): "a tile has 2^15 samples at most",
    ("select/compact.cuh", "compact", "end"): "one more pack, without samples",
    ("stencil/cpu.cpp", "largest", "a >= b ? a : b"): "of equal numbers either will do",
    ("stencil/cpu.cpp", "largest_of", "size >= most ? size : most"): "of equal numbers either will do",
    ("stencil/cpu.cpp", "in_blocks", "length"): "one more block, without sums",
    ("stencil/cpu.cpp", "rounded", "first > least && !digits[first]"): "what is left of a sum of zero is zero, too",
    ("stencil/layers.cuh", "cut", "host_other_fma(x, scale, coarse) - coarse"): "a product by a power of two is exact",
    ("stencil/layers.cuh", "of", "size < limit ? host_other_fma(bound - fma(size, down, boun"):
        "a product by a power of two is exact",
    ("stencil/layers.cuh", "of", "bound - host_other_fma(size, down, bound)"): "a product by a power of two is exact",
    ("stencil/gpu.cu", "box_few", "span.count"): "one more tile, without outputs",
    ("stencil/gpu.cu", "weighted", "next_tile < span.count"): "one more tile, without outputs",
    ("stencil/gpu.cu", "few_taps", "tile + TILE < span.count"): "one more tile, without outputs",
    ("stencil/terms.cuh", "places", "__syncthreads() (2)"): "the next call is behind other barriers",
    ("stencil/terms.cuh", "result", "host_other_fma(double(high & ~i64(2047)), r"):
        "a product by a power of two is exact",
    ("study/failures.cu", "one_by_one", "clock64() - began > cycles"): "the launches that are right end in time",
    ("study/failures.cu", "one_by_one", "clock64() - began >= cycles"): "a cycle sooner or later",
    ("study/histogram.cu", "banks_if", "half the width: occurrences += value ^ held[i] ? 0 : 1"):
        "a block holds 1024 samples",
    ("study/histogram.cu", "banks", "half the width: occurrences[k] += sample == int(threadIdx.x) + k * STRIDE"):
        "a block holds 1024 samples",
    ("study/matmul.cu", "dot", "host_other_fma(row[k], column[k * stride],"): "the study allows both roundings",
    ("study/matmul.cu", "dot_unrolled", "host_other_fma(row[k], column[k * stride],"):
        "the study allows both roundings",
    ("study/matmul.cu", "by_tiles", "? a[row * inner + k_a] : T(0.0)"):
        "sums begin with +0, to which either zero adds nothing",
    ("study/matmul.cu", "shared_sums", "inner"): "one more step multiplies the zeros that fill up a tile",
    ("study/matmul.cu", "shared_sums", "0.0"): "sums begin with +0, to which either zero adds nothing",
    ("study/matmul.cu", "unrolled", "host_other_fma(a[row * inner + k], b[k * co"): "the study allows both roundings",
    ("study/matmul.cu", "by_tiles", "inner"): "one more step multiplies the zeros that fill up a tile",
    ("study/matmul.cu", "by_tiles", "0.0"): "sums begin with +0, to which either zero adds nothing",
    ("study/matmul.cu", "by_tiles", "host_other_fma(tile_a[threadIdx.y][k], tile"): "the study allows both roundings",
    ("study/matmul_register.cuh", "register_tiled", "0.0"): "sums begin with +0, to which either zero adds nothing",
    ("study/matmul_register.cuh", "register_tiled", "inner"): "one more step multiplies the zeros that fill up a tile",
    ("study/matmul_register.cuh", "register_tiled", "host_other_fma(of_a[i / PACK].item[i % PACK"):
        "the study allows both roundings: kernels/study/matmul.py, error_bound",
    ("study/reduce.cu", "modulo", "size"): "one more step, in which no thread has a neighbour",
    ("study/reduce.cu", "atomic_max", "tid == 0"): "every thread raises the maximum to the same value",
    ("study/reduce.cu", "warp_shuffle", "tid >= 32"): "nobody uses the results of other warps",
    ("reduce/visitor.cuh", "take_specials", "half the width: mine.negative += value == least"):
        "a tile has at most 32 samples",
    ("study/roofline.cu", "displace_cache", "i64(gridDim.x) * (THREADS + 1)"): "nothing is kept of what is only read",
    ("study/roofline.cu", "displace_cache", "i64(blockIdx.x) * (THREADS + 1) + threadIdx.x"):
        "nothing is kept of what is only read",
    ("study/roofline.cu", "displace_cache", "steps of 2 * (stride)"): "nothing is kept of what is only read",
    ("transpose/cpu.cpp", "least", "a <= b ? a : b"): "of equal numbers either will do",
    ("transpose/cpu.cpp", "transpose_matrix", "m.rows"): "one more tile, of no rows",
    ("transpose/cpu.cpp", "transpose_matrix", "m.columns"): "one more tile, of no columns",
    ("transpose/gpu.cu", "tiled", "row == 0 || height < ROWS + S::MORE"): "no other tile has ends",
    ("transpose/gpu.cu", "tiled", "row == 0 || height <= ROWS + S::MORE"): "no other tile has ends",
    ("transpose/tile.cuh", "store_packs", "COUNT % (THREADS + 1) && unit >= COUNT"):
        "where COUNT is a multiple of THREADS no unit is beyond it",
    ("transpose/unaligned.cu", "unaligned", "(rows + ROWS) / ROWS"):
        "where rows are a multiple of ROWS they are aligned, and the other kernel takes them",
    ("transpose/unaligned.cu", "unaligned", "behind < span ? 0 : span >= COLUMNS ? 1 : u32(behind) /"):
        "a span as wide as a tile ends with it",
})  # fmt: skip
# The same for conditions that only choose the faster of two paths to one result, or one lane among lanes that would all
# write the same. They are no bounds checks, so the score leaves them out.
FASTER: Mapping[tuple[str, str, str], str] = MappingProxyType({
    **survivors_common.FASTER,
    ("histogram/cpu.cpp", "operator()", "cast<double>(sample) * scale - offset"):
        "`holds` sees that the line is none: a search finds the same",
    ("histogram/cpu.cpp", "operator()", "static_cast<double>(sample) * (scale + 1) + offset"):
        "`holds` sees that the line is none: a search finds the same",
    ("histogram/cpu.cpp", "operator()", "place > 0"): "`holds` sees that the line is none: a search finds the same",
    ("histogram/cpu.cpp", "map_holds", "line(low) + 1 <= slot || line(low) > slot ||"):
        "a search instead finds the same",
    ("histogram/cpu.cpp", "map_holds", "low) + 1 < slot || line(low) >= slot || line(high) + 1 < slo"):
        "a search instead finds the same",
    ("histogram/cpu.cpp", "next_below", "__builtin_nextafter(value, __builtin_inf())"):
        "a search instead finds the same",
    ("histogram/cpu.cpp", "holds", "last + 1"): "a search instead finds the same",
    ("histogram/locate.cuh", "operator()", "entry < CROWDED"): "the threshold after the cell is not passed",
    ("histogram/locate.cuh", "operator()", "entry | MANY"): "a search finds the same",
    ("histogram/rows.cu", "rows_in_runs", "(length - head) / (PACK + 1)"): "more samples are counted one by one",
    ("matmul/chinese_remainder.cuh", "store_four", "element + 4 > size"): "one after another",
    ("reduce/gpu_powers.cu", "add", "u32(number.place - base) > u32(Type::SPAN)"):
        "a window that moves for every sample holds it, too",
    ("reduce/minmax.cuh", "rest", "__any_sync(ALL_LANES, valid && (upper(low) <= below || upper(high) >= above))"):
        "no sample of the tile is better: an update changes nothing",
    ("matmul/chinese_remainder.cuh", "constexpr", "lowest > F::LEAST"): "the slower way rounds the same",
    ("matmul/chinese_remainder.cuh", "constexpr", "lowest >= F::LEAST"): "the slower way rounds the same",
    ("matmul/chinese_remainder.cuh", "constexpr", "lowest > F::LEAST (2)"): "the slower way rounds the same",
    ("matmul/chinese_remainder.cuh", "constexpr", "lowest >= F::LEAST (2)"): "the slower way rounds the same",
    ("matmul/digits.cuh", "round", "head & u64(low & LAST)"): "it is never sure then: the slower way rounds the same",
    ("matmul/digits.cuh", "round", "fabsf(value) > 4294967296"): "the slower way rounds the same",
    ("matmul/dot_products.cuh", "all", "thread % 32 == 0"): "every lane has the same to say",
    ("matmul/gpu.cu", "find_uncertain", "least < enough"): "every element is examined, with the same result",
    ("matmul/gpu.cu", "dot_products", "uncertain.count >= MANY"): "both ways give the same bits",
    ("matmul/multiply_wgmma.cuh", "multiply_tiles", "threadIdx.x % 32 == 0"): "every lane has the same to say",
    ("matmul/small.cu", "multiply_small", "mn + Places<F>::column(j, n) <= columns)"): "more is examined",
    ("matmul/small_k.cu", "multiply_small_k", "threadIdx.x % 32 == 0"): "every lane has the same to say",
    ("matmul/small_k.cuh", "finish", "E || (row < of.rows && first - column < of.columns)"): "more is uncertain",
    ("matmul/small_k.cuh", "finish", "WHOLE || (row < of.rows && first + column < of.columns)"): "more is uncertain",
    ("reduce/cpu_float.hpp", "look_closely", "size < INFINITE"):
        "as if numbers were far apart: they are added one by one",
    ("reduce/cpu_float.hpp", "scale_down", "result.parts | SQUARES"): "added up though nobody asked",
    ("reduce/cpu_float.hpp", "reduce_block", "seen.largest >= Float<T>::INFINITE"): "looking closely finds the same",
    ("reduce/cpu_float.hpp", "reduce_block",
     "special || (result.parts & SUM && (scale || n % STEP || (!everything && seen.smallest < small - "
     "1)))"):
        "copied though it need not be",
    ("reduce/cpu_integer.hpp", "reduce_integers", "result.parts | SQUARES"): "added up though nobody asked",
    ("reduce/deferred_tiles.cuh", "defer", "step < 32"): "fewer tiles are deferred unseen",
    ("reduce/exponent_window.cuh", "narrow", "mallest >> 20) - 1023 >= top + 15"): "fewer tiles count as narrow",
    ("reduce/float_sum.cuh", "constexpr", "__any_sync(ALL_LANES, moves || left == 0)"):
        "windows are opened more often than necessary",
    ("reduce/float_sum.cuh", "within", "IAS) << F::SHIFT && smallest > (lowest > 1 ? u32(lowest) <<"):
        "windows are opened more often than necessary",
    ("reduce/float_sum.cuh", "within", "lowest > 1"): "windows are opened more often than necessary",
    ("reduce/tile.cuh", "store", "first_nan != NONE"): "nothing is left of none, and no maximum is below that",
    ("reduce/tile.cuh", "store", "lane == 3"): "every lane has the same to say",
    ("select/compact.cuh", "look_back", "lane == 0"): "every lane has the same to say",
    ("select/compact.cuh", "look_back", "lane == 0 (2)"): "every lane has the same to say",
    ("stencil/cpu.cpp", "largest", "a > b"): "shorter blocks",
    ("stencil/cpu.cpp", "reach", "exponent == 2047"): "more limbs than there is something in",
    ("stencil/cpu.cpp", "reach", "sample == 0"): "more limbs than there is something in",
    ("stencil/cpu.cpp", "in_cuts", "2 * (width + 1) - 1"): "a cut takes one bit less",
    ("stencil/cpu.cpp", "sum_rows", "2 * (width + 1)"): "longer blocks",
    ("stencil/box.cuh", "refine", "int(threadIdx.x) * COUNT + j < count"): "layers are made anew",
    ("stencil/box.cuh", "refine", "threadIdx.x % 32 == 0"): "every lane has the same to say",
    ("stencil/box.cuh", "constexpr", "ordered[own + j]) || own + j > count"): "an output that is not stored",
    ("stencil/box.cuh", "constexpr", "min(count, TILE)"): "layers of elements that no output has",
    ("stencil/gpu.cu", "box_range", "!true || !size_of(element)"):
        "as if there were large numbers: a coarser grid, or the slower way",
    ("stencil/gpu.cu", "box_range", "threadIdx.x % 32 == 0"): "every lane has the same to say",
    ("stencil/gpu.cu", "box_range", "thread / 32 * (32 + 1) * stride + thread % 32"): "another sample",
    ("stencil/terms.cuh", "places", "size_of(x) && true"):
        "as if there were large numbers: a coarser grid, or the slower way",
    ("stencil/terms.cuh", "places", "threadIdx.x % 32 == 0"): "every lane has the same to say",
    ("transpose/cpu.cpp", "transpose_matrix", "m.columns * SIZE < LINE"): "fewer are narrow",
    ("transpose/cpu.cpp", "transpose_matrix", "m.columns * SIZE <= LINE"):
        "narrow matrices are copied tile by tile, or all are narrow",
    ("transpose/gpu.cu", "tiled", "in - rows * columns * (gridDim.x"): "element by element, to the same end",
    ("transpose/gpu.cu", "tiled", "n && (behind + 15) / 16 * 16 < end)"): "element by element, to the same end",
})  # fmt: skip
# Those that change results on a GPU, but not on a host; or of larger inputs than the cases have.
MISSED: Mapping[tuple[str, str, str], str] = MappingProxyType({
    ("common/inflate.cu", "checksum", "half the width: sum += data[i]"): "takes a chunk of 128 MiB",
    ("common/counters.cuh", "stride", "COPIES * 4"): "a host counts words: a byte more is none",
    ("common/lz4.cu", "read", "next >= end"): "reads a byte far outside of shared memory, and does not use it",
    ("matmul/multiply_wgmma.cuh", "free", "threadIdx.x == 0"): "a host copies at once, and waits for nothing",
    ("matmul/multiply_wgmma.cuh", "free", "__syncthreads()"): "a host copies at once, and waits for nothing",
    ("matmul/multiply_wgmma.cuh", "add_up", "columns % 4 == 0"): "a host may store four words at any address",
    ("matmul/multiply_wgmma.cuh", "add_up", "nt == STRETCH && columns % 4 != 0"):
        "a host may store four words at any address",
    ("matmul/small_k.cu", "multiply_small_k", "__syncthreads()"): "what tensor cores read is not watched on a host",
    ("matmul/small_k.cu", "multiply_small_k", "without work.begin()"): "a host has no such barriers",
    ("matmul/small_k.cu", "multiply_small_k", "without __syncthreads()"):
        "what tensor cores read is not watched on a host",
    ("matmul/small_k_lines.cuh", "begin", "threadIdx.x == 0"): "a host has no such barriers",
    ("quantile/bracket.cu", "quantile_pick", "step >= search.steps()"): "the key stays as it is",
    ("quantile/bracket.cu", "quantile_prove", "threadIdx.x <= 2 * number + 1 && of_block[t"): "takes 16 keys",
    ("quantile/bracket.cu", "quantile_prove", "half the width: below += sums[2 * group + 1] + sums[2 * group + 2]"):
        "takes 2^32 samples",
    ("quantile/bracket.cu", "quantile_prove", "half the width: inside += sums[2 * group + 1]"): "takes 2^32 samples",
    ("quantile/descent.cuh", "rank_among", "half the width: below += counted.sums[2 * j]"): "takes 2^32 samples",
    ("quantile/descent.cuh", "rank_among", "half the width: kept += inside"): "takes 2^32 samples",
    ("stencil/box.cuh", "slide", "Terms::LAYERED || 2 * radius + 1 < i64(1) << Marks::BITS"):
        "takes a radius of 2^20: kernels/stencil/test_gpu.py",
    ("stencil/box.cuh", "slide", "__syncthreads() (4)"): "a host copies at once, and waits for nothing",
})  # fmt: skip
# Header functions of which a source executes only some paths: the mutants are counted with the other sources.
ELSEWHERE = {
    ("select/gpu", "common/types.cuh", "widen"),  # reduce/gpu.cu tells infinity from what is not below 100
    ("matmul/small_k", "matmul/chinese_remainder.cuh", "to_float"),  # numbers are moderate; matmul/gpu.cu has others
    *(
        ("quantile/gpu", "common/counters.cuh", name) for name in ("spread_pairs", "stride", "place")
    ),  # with histogram/gpu
    ("quantile/bracket", "common/stream.cuh", "scan_samples"),  # whole packs; quantile/gpu.cu has single samples
    ("histogram/gpu", "common/windows.cuh", "count_samples"),  # has no two windows; quantile/gpu.cu does
    ("histogram/grouped", "histogram/guess.cuh", "position_of"),  # with histogram/gpu.cu
    ("study/roofline", "common/stream.cuh", "scan_samples"),  # nothing is kept of what is only read
}
