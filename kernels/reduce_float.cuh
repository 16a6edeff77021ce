// Sums of floats and of their squares: by windows of exponents in registers, in columns of cells where none fits.
#pragma once

#include "reduce_extent.cuh"
#include "reduce_integer.cuh"
#include "reduce_wide.cuh"
#include "reduce_window.cuh"

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
    static constexpr bool SQUARED = PARTS & SQUARES, ALWAYS = sizeof(T) == 2;
    static constexpr int RANGE = Window<T, PARTS>::RANGE;
    // Levels begin at float64 numbers, and no last bit is below 2^-1074.
    static constexpr int HIGHEST = SQUARED ? (1022 - ROOM - 1) / 2 : 1022 - ROOM - 1;
    static constexpr int TOP = HIGHEST < F::BIAS + 1 ? HIGHEST : F::BIAS + 1;
    static constexpr int BOTTOM = SQUARED ? 52 + RANGE - 1074 / 2 : level_bits(2) - 1074;
    static constexpr int TILES = (1 << ROOM) / Tile<T>::SIZE;
    static constexpr int SUM_PLACE = SUM_BITS - 1074, SQUARE_PLACE = SQUARE_BITS - 1074;
    static_assert(RANGE > 8, "numbers of one tile differ in size");

    Window<T, PARTS> window;
    int top = TOP;
    u32 low = 0, high = 0;  // magnitudes that the window holds: from low on, below high, and zero
    int left = TILES, scattered = 0;

    __device__ FloatSums() { window.open(TOP); }

    __device__ void one(T x, Counters<PARTS>& counters) {
        if (F::magnitude(x) >= u32(2 * F::BIAS + 1) << F::SHIFT) {
            atomicAdd(&counters.special[is_nan(x) ? 0 : wide(x) > 0 ? 1 : 2], 1u);
            return;
        }
        const double value = number(x);
        if (PARTS & SUM) counters.sum.add(value, SUM_PLACE);
        if (SQUARED) add_square(value, counters);
    }

    // False, and nothing is counted, where some are not finite.
    __device__ bool tile(const Tile<T>& tile, const T* at, const Extent<T, PARTS>& extent, Counters<PARTS>& counters) {
        if (!extent.finite) return false;
        if constexpr (PARTS & SUM) {
            u32 smallest = extent.smallest;
            if constexpr (!ALWAYS) {
                if (!holds(extent.largest, smallest)) {
                    smallest = smallest_but_zero(tile);
                    if (smallest == 0) return true;
                    if (!holds(extent.largest, smallest)) {
                        int above = 0;
                        if (!fit(extent.largest, smallest, above)) {
                            scatter(tile, at, counters);
                            return true;
                        }
                        empty(counters);
                        open(above);
                    }
                }
            }
            if (left == 0) {
                empty(counters);
                window.open(top);
                left = TILES;
            }
            --left;
            window.add(tile, window.narrow(extent.largest, smallest, top));
        }
        return true;
    }

    __device__ void close(Counters<PARTS>& counters) {
        if constexpr (PARTS & SUM && !ALWAYS)
            if (scattered) Columns<T, PARTS>::empty(counters);
        empty(counters);
    }

  private:
    __device__ void empty(Counters<PARTS>& counters) {
        if constexpr (PARTS & SUM) window.close(top, counters.sum, counters.squares, SUM_PLACE, SQUARE_PLACE);
    }

    // What no window holds.
    __device__ void scatter(const Tile<T>& tile, const T* at, Counters<PARTS>& counters) {
        using Wide = Columns<T, PARTS>;
        if constexpr (Wide::CELLS == 0) {
#pragma unroll 1
            for (int i = 0; i < Tile<T>::SIZE; ++i) one(at[Tile<T>::offset(i)], counters);
            return;
        }
        if (scattered == Wide::MOST / Tile<T>::SIZE) {
            Wide::empty(counters);
            scattered = 0;
        }
        ++scattered;
#pragma unroll
        for (int i = 0; i < Tile<T>::SIZE; ++i) Wide::add(tile.item[i]);
    }

    __device__ bool holds(u32 largest, u32 smallest) const { return largest < high && smallest >= low; }

    static __device__ u32 smallest_but_zero(const Tile<T>& tile) {
        u32 smallest = ~0u;
#pragma unroll
        for (int i = 0; i < Tile<T>::SIZE; ++i) smallest = min(smallest, F::magnitude(tile.item[i]) - 1);
        return smallest + 1;
    }

    // Whether a window holds a tile, and its top: what is free stays below for the most part, where small numbers are.
    static __device__ bool fit(u32 largest, u32 smallest, int& top) {
        const int most = max(int(largest >> F::SHIFT), 1) - F::BIAS + 1;
        const int least = max(int(smallest >> F::SHIFT), 1) - F::BIAS;
        const int room = RANGE - (most - least);
        top = min(max(most + min(4, room / 4), BOTTOM), TOP);
        return room >= 0 && top >= most && (top - RANGE <= least || top - RANGE <= 1 - F::BIAS);
    }

    __device__ void open(int above) {
        top = above;
        window.open(top);
        left = TILES;
        high = u32(top + F::BIAS) << F::SHIFT;
        const int lowest = top - RANGE + F::BIAS;
        low = lowest > 1 ? u32(lowest) << F::SHIFT : 0;
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
