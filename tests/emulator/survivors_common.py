"""Survivors among the mutants of `kernels/common/`, for `survivors.py`."""

from __future__ import annotations

from collections.abc import Mapping

EQUIVALENT: Mapping[tuple[str, str, str], str] = {
    ("common/lz4.cu", "next", "chunk.size <= 4"): "a stream without a byte is refused anyway",
    ("common/bits.cuh", "fill", "half the width: number += 32"): "64 bits are held at most",
    ("common/checksums.cu", "agrees", "begins at LANES / 2 + 1"): "lanes 17, 8, 4, 2 and 1 apart meet all others, too",
    ("common/inflate.cu", "inflated", "length >= size - at - 4 || length > ro"): "a checksum has to follow",
    ("common/huffman.cuh", "read_huffman", "nbytes"): "one more weight, which is not counted",
    ("common/huffman.cuh", "read_huffman", "number (2)"): "one more turn, without symbols",
    ("common/codes.cuh", "read_codes", "symbols"): "one more share, of no symbol",
    ("common/copies.cuh", "copy_alone", "number"): "one more turn, without bytes",
    ("common/copies.cuh", "copy_apart", "words"): "one more turn, without words",
    ("common/copies.cuh", "move_down", "number"): "one more turn, without bytes",
    ("common/sequences.cuh", "next", "half the width: literal += field(more)"): "a code has 512 states at most",
    ("common/sequences.cuh", "next", "half the width: literal += take(more)"): "a code has 512 states at most",
    ("common/zstd.cu", "read_literals", "own <= 6 || number < 6"): "no bit begins streams without a byte",
    ("common/counters.cuh", "total", "half the width: sum += words[at * COPIES + (threadIdx.x + k) % COPIES]"):
        "a block has fewer than 2^32 samples",
    ("common/counters.cuh", "stride", "COPIES * 4"): "what is added is zero",
    ("common/stream.cuh", "scan_samples", "NEXT != Next::IN_TURNS"): "either way loads the same samples ahead",
    ("common/turns_check.cpp", "give", "from > to"): "a check is given no samples",
    ("common/turns_check.cpp", "give", "half the width: t.samples[row] += static_cast<uint64_t>(to - from)"):
        "a row of a part has fewer than 2^32 samples",
    ("common/turns_check.cpp", "transpose", "turns"): "one more tile, without samples",
    ("common/turns_check.cpp", "transpose", "turn + high <= turns ? turn + high : turns"):
        "of equal numbers either will do",
}  # fmt: skip
FASTER: Mapping[tuple[str, str, str], str] = {
    ("common/copies.cuh", "copy_apart", "(j == 0 || j + 1 == words)"): "words are made of single bytes",
    ("common/execute.cuh", "execute", "own || (mine.length && needed_end > made)"): "matches come later",
    ("common/execute.cuh", "execute", "rest & big | (1u << first)"): "all lanes copy what one could",
    ("common/execute.cuh", "execute", "rest | big & (1u << first)"): "all lanes copy what one could",
    ("common/execute.cuh", "execute", "| (mine.length && needed_end >= made)"): "matches come later",
    ("common/lz4.cu", "read", "behind >= end || (length == 15 && !ext"): "a sequence takes two windows",
    ("common/lz4.cu", "read", "ls > FEW_LITERALS || (behind >= end && k == 0 && !open)"):
        "a sequence takes two windows",
    ("common/lz4.cu", "lz4", "state == State::UNDER_WAY"): "groups without a chunk decompress the last one, too",
    ("common/sequences.cuh", "execute_some", "made > u32(out.literals - out.to)"): "one sequence after another",
    ("common/sequences.cuh", "end", "rest != out.literals"): "bytes are moved to where they are",
    ("common/turns_check.cpp", "transpose", "TILE / (t.rows * (SIZE + 1)) + 1"): "a smaller tile",
    ("common/turns_check.cpp", "transpose", "TILE / (t.rows * SIZE)"): "a smaller tile",
    ("common/turns_check.cpp", "add_turns", "first != t.end"): "checks are given fewer samples at a time",
    ("common/turns_check.cpp", "add_turns", "column == t.capacity"): "checks are given fewer samples at a time",
    ("common/turns_check.cpp", "add_turns", "row || n < t.rows"): "samples are moved one by one",
    ("common/turns_check.cpp", "add_turns", "row || n <= t.rows"): "a turn is moved sample by sample",
}  # fmt: skip
