// Sums of floats in registers, exact for numbers of a window of exponents.
#pragma once

#include "reduce/tile.cuh"

// A thread's registers for sums within the current window, by dtype. `take` returns each as an integer and its place in
// the block's digits.
template <typename T, int PARTS> struct Window;

template <int K> __device__ void take_sums(const Levels<K>& levels, int top, i64* value, int* place) {
    levels.take(top, value, place);
#pragma unroll
    for (int k = 0; k < K; ++k) place[k] += SUM_PLACE;
}

template <int K> __device__ void take_squares(const Levels<K>& levels, int top, i64* value, int* place, int twice = 0) {
    levels.take(top, value, place);
#pragma unroll
    for (int k = 0; k < K; ++k) place[k] += SQUARE_PLACE + twice;
}

// One window for all of float16: a number has 40 bits, a square 80.
template <int PARTS> struct Window<float16, PARTS> {
    static constexpr int SIZE = Tile<float16>::SIZE;
    static constexpr int TOP = 16, RANGE = 2 * TOP, LOG_SIZE = 5;
    static_assert(SIZE <= 1 << LOG_SIZE, "so many squares add up");
    Levels<2> squares;
    Levels<1> sums;
    static_assert(level_bits(1) >= 40 && level_bits(2) >= 80, "every float16 fits");

    __device__ void open(int) {
        sums.open(TOP);
        if (PARTS & SQUARES) squares.open(2 * TOP);
    }
    static constexpr int LEVELS = PARTS & SQUARES ? 3 : 1;
    __device__ void take(int, i64* value, int* place) const {
        take_sums(sums, TOP, value, place);
        if constexpr (PARTS & SQUARES) take_squares(squares, 2 * TOP, value + 1, place + 1);
    }
    // Whether exponents are so close that float64 sums the squares of a tile exactly.
    static __device__ bool narrow(u32 largest, u32 smallest, int) {
        return int(largest >> 10) - int(smallest >> 10) <= (53 - LOG_SIZE - 22) / 2;
    }
    __device__ void add(const Tile<float16>& tile, bool narrow) {
        if (!(PARTS & SQUARES) || narrow) {
            double total = 0;
#pragma unroll
            for (int i = 0; i < SIZE; ++i) {
                const double value = widened(tile.word[i / 2], i % 2);
                sums.add(value);
                if (PARTS & SQUARES) total = fma(value, value, total);
            }
            if (PARTS & SQUARES) squares.add(total);
        } else {
#pragma unroll
            for (int i = 0; i < SIZE; ++i) {
                const double value = widened(tile.word[i / 2], i % 2);
                sums.add(value);
                squares.add_product(value, value);
            }
        }
    }
};

template <int PARTS> struct Window<float, PARTS> {
    static constexpr int SIZE = Tile<float>::SIZE;
    static constexpr int SUM_RANGE = level_bits(2) - 23, SQUARE_RANGE = level_bits(3) / 2 - 23;
    static constexpr int RANGE = PARTS & SQUARES ? SQUARE_RANGE : SUM_RANGE;
    static constexpr int LOG_SIZE = 4;
    static_assert(SIZE <= 1 << LOG_SIZE, "so many numbers add up");
    Levels<2> sums;
    Levels<3> squares;

    __device__ void open(int top) {
        sums.open(top);
        if (PARTS & SQUARES) squares.open(2 * top);
    }
    static constexpr int LEVELS = PARTS & SQUARES ? 5 : 2;
    __device__ void take(int top, i64* value, int* place) const {
        take_sums(sums, top, value, place);
        if constexpr (PARTS & SQUARES) take_squares(squares, 2 * top, value + 2, place + 2);
    }
    // Whether exponents are so close that float64 sums a tile exactly, and the remainders of its squares after the first
    // level: 16 times half a unit of that level is less than 2^53 times the last bit of the smallest square.
    static __device__ bool narrow(u32 largest, u32 smallest, int top) {
        return !largest || (int(largest >> 23) - int(smallest >> 23) <= 53 - LOG_SIZE - 24 &&
                            (!(PARTS & SQUARES) || int(smallest >> 23) - 127 >= top - (105 - LOG_SIZE - ROOM - 46) / 2));
    }
    __device__ void add(const Tile<float>& tile, bool narrow) {
        if (narrow) {
            double total = 0, left = 0;
#pragma unroll
            for (int i = 0; i < SIZE; ++i) {
                const double value = tile.item[i];
                total += value;
                if (PARTS & SQUARES) left += squares.add_to_first(value, value);
            }
            sums.add(total);
            if (PARTS & SQUARES) squares.add(left, 1);
        } else {
#pragma unroll
            for (int i = 0; i < SIZE; ++i) {
                const double value = tile.item[i];
                sums.add(value);
                if (PARTS & SQUARES) squares.add_product(value, value);
            }
        }
    }
};

// The first level's part of a number and the remainder have about half of its bits each: products of them make the
// square.
template <int PARTS> struct Window<double, PARTS> {
    static constexpr int SIZE = Tile<double>::SIZE;
    static constexpr int RANGE = PARTS & SQUARES ? 32 : level_bits(2) - 52;
    Levels<2> sums, upper, mixed, lower;
    static constexpr int CUT = LEVEL_BITS;  // the remainder is at most 2^(top - CUT)

    __device__ void open(int top) {
        sums.open(top);
        if (PARTS & SQUARES) {
            upper.open(2 * top);
            mixed.open(2 * top - CUT);
            lower.open(2 * top - 2 * CUT);
        }
    }
    static constexpr int LEVELS = PARTS & SQUARES ? 8 : 2;
    __device__ void take(int top, i64* value, int* place) const {
        take_sums(sums, top, value, place);
        if constexpr (PARTS & SQUARES) {
            take_squares(upper, 2 * top, value + 2, place + 2);
            take_squares(mixed, 2 * top - CUT, value + 4, place + 4, 1);
            take_squares(lower, 2 * top - 2 * CUT, value + 6, place + 6);
        }
    }
    static __device__ bool narrow(u32, u32 smallest, int top) {
        return !(PARTS & SQUARES) || int(smallest >> 20) - 1023 >= top - 15;
    }
    __device__ void add(const Tile<double>& tile, bool narrow) {
        double left[SIZE], of_upper = 0, of_mixed = 0;
#pragma unroll
        for (int i = 0; i < SIZE; ++i) {
            const double value = tile.item[i], kept = sums.add(value);
            left[i] = value - kept;
            if (PARTS & SQUARES) {
                of_upper += upper.add_to_first(kept, kept);
                of_mixed += mixed.add_to_first(kept, left[i]);
            }
        }
        if (PARTS & SQUARES) {
            upper.add(of_upper, 1);
            mixed.add(of_mixed, 1);
            if (narrow) {
                double total = 0;
#pragma unroll
                for (int i = 0; i < SIZE; ++i) total = fma(left[i], left[i], total);
                lower.add(total);
            } else {
#pragma unroll
                for (int i = 0; i < SIZE; ++i) lower.add_product(left[i], left[i]);
            }
        }
    }
};
