// Floats as integers times a power of two, for check.cpp.

#pragma once

#include "check_window.hpp"

namespace {

template <class F>
void count_special(const typename F::Word* x, size_t start, int64_t* partial, size_t& first_nan) {
    typedef typename F::Word Word;
    Word nan = 0, above = 0, below = 0;  // at most BLOCK, which fits any word
    for (size_t i = 0; i < BLOCK; ++i) {
        nan += F::size(x[i]) > F::INFINITE;
        above += x[i] == F::INFINITE;
        below += x[i] == static_cast<Word>(F::INFINITE | F::SIGN);
    }
    if (nan && !partial[NAN_COUNT]) first_nan = start;
    partial[NAN_COUNT] += nan, partial[POSITIVE] += above, partial[NEGATIVE] += below;
}

// Lowest and highest rank of a block with NaN; one of nothing else has none, its lowest is above its highest.
template <class F>
void find_ends_of_floats(const typename F::Word* x, typename F::Word& low, typename F::Word& high) {
    typedef typename F::Word Word;
    Word lowest = static_cast<Word>(-1), highest = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const Word u = F::rank(x[i]);
        const Word nan = bits_if<Word>(F::size(x[i]) > F::INFINITE);
        const Word below = u | nan, above = u & static_cast<Word>(~nan);
        lowest = below < lowest ? below : lowest;
        highest = above > highest ? above : highest;
    }
    low = lowest, high = highest;
}

// The bits of a finite sample or an infinity as those of a float64, without its sign.
template <class F>
u64 as_double(typename F::Word size) {
    if (size >= F::INFINITE) return Double::INFINITE;
    u64 integer = F::integer(size);
    if (!integer) return 0;
    const typename F::Word exponent = size >> F::FRACTION;
    const int top = 63 - __builtin_clzll(integer), power = (exponent ? exponent : 1) - 1 + F::LEAST;
    if (top + power < Double::LEAST + Double::FRACTION) return integer;  // subnormal, and a float64 already
    return (integer << (Double::FRACTION - top)) + (static_cast<u64>(top + power - Double::LEAST - Double::FRACTION) << Double::FRACTION);
}

// Of magnitudes the bits, from 0 up; for negative samples from -1 down.
template <class F>
int64_t key(typename F::Word rank) {
    if (rank >= F::SIGN) return static_cast<int64_t>(as_double<F>(static_cast<typename F::Word>(rank - F::SIGN)));
    return -1 - static_cast<int64_t>(as_double<F>(static_cast<typename F::Word>(F::SIGN - rank)));
}

template <class F>
int64_t place_of(const typename F::Word* samples, size_t at, typename F::Word rank) {
    while (F::rank(samples[at]) != rank) ++at;  // NaN have ranks of their own
    return 2 * static_cast<int64_t>(at) + (samples[at] == F::SIGN);
}

template <class F>
void reduce_floats(const void* data, size_t n, int parts, int64_t* partial, Sum& sum, Squares& squares) {
    typedef typename F::Word Word;
    const Word* samples = static_cast<const Word*>(data);
    Word copy[BLOCK];
    Ends<Word> ends;
    size_t first_nan = 0;
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t length = n - start < BLOCK ? n - start : BLOCK;
        const Word* block = filled(samples + start, length, samples[start], copy);
        const Sizes<F> sizes(block);
        if (parts & EXTREMES) {
            Word low = sizes.lowest, high = sizes.highest;
            if (sizes.most > F::INFINITE) find_ends_of_floats<F>(block, low, high);
            if (low <= high) ends.meet(low, high, start);
        }
        block = filled(samples + start, length, Word(0), copy);
        if (sizes.special()) count_special<F>(block, start, partial, first_nan);
        if (parts & SUM) add_block<F>(block, sizes, parts & SQUARES, sum, squares);
    }
    if (!(parts & EXTREMES)) return;
    if (partial[NAN_COUNT]) {
        while (F::size(samples[first_nan]) <= F::INFINITE) ++first_nan;
        partial[FIRST_NAN] = 2 * static_cast<int64_t>(first_nan);
    }
    if (!ends.known) return;
    partial[MIN_AT] = place_of<F>(samples, ends.low_at, ends.low);
    partial[MAX_AT] = place_of<F>(samples, ends.high_at, ends.high);
    partial[MIN_KEY] = key<F>(ends.low);
    partial[MAX_KEY] = key<F>(ends.high);
}

}  // namespace
