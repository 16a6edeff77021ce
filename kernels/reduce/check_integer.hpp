// Integers as ranks, for check.cpp.

#pragma once

#include "check_buckets.hpp"

namespace {

void add_ranks(const uint8_t* x, uint8_t half, bool squared, u64& sum, Squares& squares) {
    u32 first = 0, second = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const u32 u = static_cast<uint8_t>(x[i] ^ half);
        first += u;
        second += u * u;
    }
    sum += first;
    if (squared) squares.add(second, 0);
}

void add_ranks(const uint16_t* x, uint16_t half, bool squared, u64& sum, Squares& squares) {
    u32 first = 0;
    u64 second = 0;
    if (squared)
        for (size_t i = 0; i < BLOCK; ++i) {
            const u32 u = static_cast<uint16_t>(x[i] ^ half);
            second += u * u;
        }
    for (size_t i = 0; i < BLOCK; ++i) first += static_cast<uint16_t>(x[i] ^ half);
    sum += first;
    if (squared) squares.add(second, 0);
}

void add_ranks(const u32* x, u32 half, bool squared, u64& sum, Squares& squares) {
    u64 first = 0, low = 0, high = 0;
    if (squared)
        for (size_t i = 0; i < BLOCK; ++i) {
            const u64 u = x[i] ^ half, square = u * u;
            low += static_cast<u32>(square);
            high += square >> 32;
        }
    for (size_t i = 0; i < BLOCK; ++i) first += x[i] ^ half;
    sum += first;
    if (squared) squares.add(low, 0), squares.add(high, 32);
}

// `sum` in units of 2**32, `rest` below.
void add_ranks(const u64* x, u64 half, bool squared, u64& sum, u64& rest, Squares& squares) {
    u64 low = 0, high = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        low += static_cast<u32>(x[i]);
        high += (x[i] ^ half) >> 32;
    }
    sum += high;
    rest += low;
    if (!squared) return;
    u64 parts[6] = {};
    for (size_t i = 0; i < BLOCK; ++i) {
        const u64 a = static_cast<u32>(x[i]), b = (x[i] ^ half) >> 32, aa = a * a, ab = a * b, bb = b * b;
        parts[0] += static_cast<u32>(aa), parts[1] += aa >> 32;
        parts[2] += static_cast<u32>(ab), parts[3] += ab >> 32;
        parts[4] += static_cast<u32>(bb), parts[5] += bb >> 32;
    }
    for (int k = 0; k < 6; ++k) squares.add(parts[k], 32 * (k / 2 + k % 2) + (k == 2 || k == 3));
}

template <class Word>
void find_ends(const Word* x, Word half, Word& low, Word& high) {
    Word lowest = static_cast<Word>(-1), highest = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const Word u = x[i] ^ half;
        lowest = u < lowest ? u : lowest;
        highest = u > highest ? u : highest;
    }
    low = lowest, high = highest;
}

// Whether each is signed: `half`, of the range of ranks, is 0 if not.
template <class Word>
void reduce_integers(const void* data, size_t n, int parts, Word half, int64_t* partial, Sum& total, Squares& squares) {
    const Word* samples = static_cast<const Word*>(data);
    Word copy[BLOCK];
    Ends<Word> ends;
    u64 sum = 0, rest = 0;  // of fewer than 2**32 samples
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t length = n - start < BLOCK ? n - start : BLOCK;
        const Word* block = samples + start;
        if (parts & EXTREMES) {
            Word low, high;
            find_ends(filled(block, length, block[0], copy), half, low, high);
            ends.meet(low, high, start);
        }
        if (!(parts & SUM)) continue;
        block = filled(block, length, half, copy);  // rank 0
        if constexpr (sizeof(Word) == 8)
            add_ranks(block, half, parts & SQUARES, sum, rest, squares);
        else
            add_ranks(block, half, parts & SQUARES, sum, squares);
    }
    if (parts & SUM) {
        constexpr int BITS = 8 * sizeof(Word);
        const int128 ranks = sizeof(Word) == 8 ? (static_cast<int128>(sum) << 32) + rest : sum;
        total.add(ranks - static_cast<int128>(half) * n, 0);
        if (half) squares.add(-ranks, BITS), squares.add(n, 2 * BITS - 2);
    }
    if (parts & EXTREMES) {
        while ((samples[ends.low_at] ^ half) != ends.low) ++ends.low_at;
        while ((samples[ends.high_at] ^ half) != ends.high) ++ends.high_at;
        partial[MIN_AT] = 2 * static_cast<int64_t>(ends.low_at);
        partial[MAX_AT] = 2 * static_cast<int64_t>(ends.high_at);
        // Keys are signed integers; those of uint64 are less by 2**63.
        const u64 less = sizeof(Word) == 8 ? u64(1) << 63 : half;
        partial[MIN_KEY] = static_cast<int64_t>(ends.low - less);
        partial[MAX_KEY] = static_cast<int64_t>(ends.high - less);
    }
}

}  // namespace
