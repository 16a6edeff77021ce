// Sums of floats and of their squares: by windows of exponents in registers, number by number where none fits.
#pragma once

#include "reduce_integer.cuh"

// Upper bits of a float without the sign, in the order of the magnitudes, and what they consist of.
template <typename T> struct Format;
template <> struct Format<float16> {
    static constexpr int PRECISION = 10, BIAS = 15, SHIFT = 10;
    static __device__ u32 magnitude(float16 x) { return x.bits & 0x7fffu; }
};
template <> struct Format<float> {
    static constexpr int PRECISION = 23, BIAS = 127, SHIFT = 23;
    static __device__ u32 magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
};
template <> struct Format<double> {
    static constexpr int PRECISION = 52, BIAS = 1023, SHIFT = 20;
    // The lower half only says whether it is zero.
    static __device__ u32 magnitude(double x) {
        const u64 bits = u64(__double_as_longlong(x));
        return (u32(bits >> 32) & 0x7fffffffu) | (u32(bits) != 0);
    }
};

// Of a thread. Its window holds numbers below 2^top, and of those the ones from 2^(top - RANGE) on, and zero.
template <typename T, int PARTS> struct FloatSums {
    using F = Format<T>;
    static constexpr bool SQUARED = PARTS & SQUARES, DOUBLE = sizeof(T) == 8;
    static constexpr int SUM_LEVELS = sizeof(T) == 2 ? 1 : DOUBLE && !SQUARED ? 3 : 2;
    static constexpr int SQUARE_LEVELS = sizeof(T) == 2 ? 2 : DOUBLE ? 4 : 3;
    // The last bits of a number and of a square have to be within what the levels take.
    static constexpr int SUM_RANGE = SUM_LEVELS * LEVEL_BITS - F::PRECISION;
    static constexpr int SQUARE_RANGE = SQUARE_LEVELS * LEVEL_BITS / 2 - F::PRECISION;
    static constexpr int RANGE = SQUARED && SQUARE_RANGE < SUM_RANGE ? SQUARE_RANGE : SUM_RANGE;
    // Grids are float64 numbers, and squares are, with what their rounding leaves.
    static constexpr int HIGHEST = SQUARED ? (1022 - ROOM) / 2 : 1022 - ROOM;
    static constexpr int TOP = HIGHEST < F::BIAS + 1 ? HIGHEST : F::BIAS + 1;
    static constexpr int BOTTOM = SQUARED ? (SQUARE_LEVELS * LEVEL_BITS - 1074) / 2 : SUM_LEVELS * LEVEL_BITS - 1074;
    static constexpr u32 INFINITE = u32(2 * F::BIAS + 1) << F::SHIFT;
    // Squares of float64 are two numbers each: half of the room.
    static constexpr int TILES = (1 << (ROOM - 1)) / Tile<T>::SIZE;
    static constexpr int SUM_PLACE = SUM_BITS - 1074, SQUARE_PLACE = SQUARE_BITS - 1074;
    static_assert(RANGE > 8, "numbers of one tile differ in size");

    Levels<SUM_LEVELS> sums;
    Levels<SQUARE_LEVELS> squares;
    u32 low = 0, high = 0;  // the window holds magnitudes below high, and those that are above low or zero
    int left = TILES;

    __device__ void one(T x, Counters<PARTS>& counters) {
        if (F::magnitude(x) >= INFINITE) {
            atomicAdd(&counters.special[is_nan(x) ? 0 : wide(x) > 0 ? 1 : 2], 1u);
            return;
        }
        const double value = number(x);
        if (PARTS & SUM) counters.sum.add(value, SUM_PLACE);
        if (SQUARED) add_square(value, counters);
    }

    // False, and nothing is counted, where some are not finite.
    __device__ bool tile(const T (&items)[Tile<T>::SIZE], const T* at, Counters<PARTS>& counters) {
        u32 largest = 0, smallest = ~0u;
#pragma unroll
        for (int i = 0; i < Tile<T>::SIZE; ++i) {
            const u32 magnitude = F::magnitude(items[i]);
            largest = max(largest, magnitude);
            smallest = min(smallest, magnitude - 1);  // zero is out of the way
        }
        if (largest >= INFINITE) return false;
        if (!(PARTS & SUM)) return true;
        int top = 0;
        const bool inside = largest < high && smallest >= low;
        if (!inside && !fit(largest, smallest, top)) {
#pragma unroll 1
            for (int i = 0; i < Tile<T>::SIZE; ++i) one(at[Tile<T>::offset(i)], counters);
            return true;
        }
        if (!inside || left == 0) {
            close(counters);
            left = TILES;
            if (!inside) open(top);
        }
        --left;
#pragma unroll
        for (int i = 0; i < Tile<T>::SIZE; ++i) {
            const double value = number(items[i]);
            sums.add(value);
            if constexpr (SQUARED) {
                const double square = value * value;
                squares.add(square);
                if constexpr (DOUBLE) squares.add(fma(value, value, -square), 1);
            }
        }
        return true;
    }

    __device__ void close(Counters<PARTS>& counters) {
        if constexpr (PARTS & SUM) sums.empty(counters.sum, SUM_PLACE);
        if constexpr (SQUARED) squares.empty(counters.squares, SQUARE_PLACE);
    }

  private:
    // Whether a window holds a tile, and its top: what is free stays below for the most part, where small numbers are.
    static __device__ bool fit(u32 largest, u32 smallest, int& top) {
        if (largest == 0) return false;
        const int most = max(int(largest >> F::SHIFT), 1) - F::BIAS + 1;
        const int least = max(int((smallest + 1) >> F::SHIFT), 1) - F::BIAS;
        const int room = RANGE - (most - least);
        top = min(max(most + min(8, room / 4), BOTTOM), TOP);
        return room >= 0 && top >= most && (top - RANGE <= least || top - RANGE <= 1 - F::BIAS);
    }

    __device__ void open(int top) {
        sums.open(top);
        squares.open(2 * top);
        high = u32(top + F::BIAS) << F::SHIFT;
        const int lowest = top - RANGE + F::BIAS;
        low = lowest > 1 ? (u32(lowest) << F::SHIFT) - 1 : 0;
    }

    static __device__ void add_square(double value, Counters<PARTS>& counters) {
        const u64 bits = u64(__double_as_longlong(value));
        const int exponent = int(bits >> 52) & 0x7ff;
        const u64 fraction = (bits & ((u64(1) << 52) - 1)) | (exponent ? u64(1) << 52 : 0);
        if (fraction)
            counters.squares.add(fraction * fraction, __umul64hi(fraction, fraction),
                                 SQUARE_BITS - 2 * 1074 + 2 * (max(exponent, 1) - 1), false);
    }
};

template <int PARTS> struct Sums<float16, PARTS> : FloatSums<float16, PARTS> {};
template <int PARTS> struct Sums<float, PARTS> : FloatSums<float, PARTS> {};
template <int PARTS> struct Sums<double, PARTS> : FloatSums<double, PARTS> {};
