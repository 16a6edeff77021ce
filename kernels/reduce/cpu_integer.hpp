// Integers: sums that the compiler may reorder, since none overflows within a block.

#pragma once

#include "cpu_partial.hpp"

namespace {

template <bool FIRST, class A, class B>
struct Choose {
    typedef A Type;
};
template <class A, class B>
struct Choose<false, A, B> {
    typedef B Type;
};

// Sum of squares of a block, below 2**140.
struct Wide {
    u128 low = 0;
    uint64_t high = 0;

    void add(u128 value) {
        low += value;
        high += low < value;
    }
};

template <class T, bool SQUARED>
void integer_sums(const T* samples, size_t n, Result& result) {
    constexpr bool SIGNED = static_cast<T>(-1) < 0;
    __int128 sum = 0;
    if constexpr (sizeof(T) <= 2) {  // the sum of a block, and a square, fit into 32 bits
        typedef typename Choose<sizeof(T) == 1, uint32_t, uint64_t>::Type Squares;
        int32_t total = 0;
        Squares squares = 0;
        for (size_t i = 0; i < n; ++i) {
            total += samples[i];
            uint32_t size = static_cast<uint32_t>(static_cast<int32_t>(samples[i]));
            if (SQUARED) squares += static_cast<Squares>(size * size);
        }
        sum = total;
        if (SQUARED) result.squares.add(squares, 0, false);
    } else if constexpr (sizeof(T) == 4) {
        typedef typename Choose<SIGNED, int64_t, uint64_t>::Type Long;
        int64_t total = 0;
        uint64_t low = 0, high = 0;
        for (size_t i = 0; i < n; ++i) {
            total += samples[i];
            if (SQUARED) {
                uint64_t square = static_cast<uint64_t>(static_cast<Long>(samples[i]) * static_cast<Long>(samples[i]));
                low += square & 0xffffffff;
                high += square >> 32;
            }
        }
        sum = total;
        if (SQUARED) result.squares.add((static_cast<u128>(high) << 32) + low, 0, false);
    } else {
        int64_t upper = 0;
        uint64_t lower = 0;
        for (size_t i = 0; i < n; ++i) {
            upper += static_cast<int64_t>(samples[i] >> 32);
            lower += static_cast<uint64_t>(samples[i]) & 0xffffffff;
        }
        sum = static_cast<__int128>(upper) * (int64_t(1) << 32) + lower;
        if (SQUARED) {
            Wide squares;
            for (size_t i = 0; i < n; ++i) {
                uint64_t value = static_cast<uint64_t>(samples[i]), size = samples[i] < 0 ? -value : value;
                squares.add(static_cast<u128>(size) * size);
            }
            result.squares.add(squares.low, 0, false);
            result.squares.add(squares.high, 128, false);
        }
    }
    result.sum.add(static_cast<u128>(sum < 0 ? -sum : sum), 0, sum < 0);
}

template <class T>
int64_t key_of(T value) {
    bool biggest = static_cast<T>(-1) > 0 && sizeof(T) == 8;
    uint64_t bits = static_cast<uint64_t>(value) - (biggest ? uint64_t(1) << 63 : 0);
    return static_cast<int64_t>(bits);
}

template <class T>
void reduce_integers(const T* samples, size_t n, Result& result) {
    Extremes<T> extremes;
    for (size_t start = 0; start < n; start += BLOCK) {
        const T* block = samples + start;
        size_t length = n - start < BLOCK ? n - start : BLOCK;
        if (result.parts & EXTREMES) {
            T lower = block[0], upper = block[0];
            for (size_t i = 0; i < length; ++i) {
                lower = block[i] < lower ? block[i] : lower;
                upper = block[i] > upper ? block[i] : upper;
            }
            extremes.meet(block, length, start, lower, upper);
        }
        if (result.parts & SQUARES)
            integer_sums<T, true>(block, length, result);
        else if (result.parts & SUM)
            integer_sums<T, false>(block, length, result);
    }
    if (!extremes.known) return;
    result.partial[MIN_AT] = 2 * static_cast<int64_t>(extremes.least_at);
    result.partial[MAX_AT] = 2 * static_cast<int64_t>(extremes.greatest_at);
    result.partial[MIN_KEY] = key_of(extremes.least);
    result.partial[MAX_KEY] = key_of(extremes.greatest);
}

}  // namespace
