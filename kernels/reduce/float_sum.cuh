// Sums of floats and of their squares by windows of exponents in registers.
#pragma once

#include "reduce/tile_range.cuh"
#include "reduce/integer_sum.cuh"
#include "reduce/exponent_window.cuh"

// Upper bits of a float without its sign, ordered like the magnitudes, and their fields.
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
    // Of the lower word it only matters whether it is zero.
    static __device__ u32 magnitude(double x) {
        const u64 bits = u64(__double_as_longlong(x));
        return (u32(bits >> 32) & 0x7fffffffu) | (u32(bits) != 0);
    }
};

// A thread's sums. The window holds zero and magnitudes from 2^(top - RANGE) up to 2^top.
template <typename T, int PARTS> struct FloatSums {
    using F = Format<T>;
    static constexpr bool SQUARED = PARTS & SQUARES, ALWAYS = sizeof(T) == 2;
    static constexpr int RANGE = Window<T, PARTS>::RANGE;
    // Levels start at float64 numbers, and no last bit is below 2^-1074.
    static constexpr int HIGHEST = SQUARED ? (1022 - ROOM - 1) / 2 : 1022 - ROOM - 1;
    static constexpr int TOP = HIGHEST < F::BIAS + 1 ? HIGHEST : F::BIAS + 1;
    static constexpr int BOTTOM = SQUARED ? 52 + RANGE - 1074 / 2 : level_bits(2) - 1074;
    static constexpr int TILES = (1 << ROOM) / Tile<T>::SIZE;
    static_assert(RANGE > 8, "numbers of one tile differ in size");

    Window<T, PARTS> window;
    int top = TOP;
    int left = 0;

    __device__ FloatSums() { window.open(TOP); }

    static __device__ bool finite(T x) { return F::magnitude(x) < u32(2 * F::BIAS + 1) << F::SHIFT; }

    // Adds a finite number to the digits.
    static __device__ void one(T x, Counters<PARTS>& counters) {
        const double value = number(x);
        if (PARTS & SUM) counters.digits.add(value, SUM_PLACE - 1074);
        if (SQUARED) add_square(value, counters);
    }

    // Called by all lanes, with finite numbers (zeros in place of others): whether the windows, moved if need be, hold the
    // tile. If one lane's does not, the warp defers it. Afterwards `range` has the smallest magnitude except zero.
    __device__ bool holds(const Tile<T>& tile, TileRange<T, PARTS>& range, Counters<PARTS>& counters) {
        if constexpr (PARTS & SUM) {
            const bool held = ALWAYS || within(range.largest, range.smallest);
            if (!__any_sync(ALL_LANES, !held || left == 0)) return true;
            bool moves = false, skipped = false;
            if (!held) {
                range.smallest = smallest_but_zero(tile);
                int above;
                if (range.smallest && !within(range.largest, range.smallest))
                    skipped = !(moves = fit(range.largest, range.smallest, above));
            }
            if (__any_sync(ALL_LANES, skipped)) return false;
            if (__any_sync(ALL_LANES, moves || left == 0)) {
                empty(counters);
                const bool some = held || range.smallest;
                reopen(some ? range.largest : 0, some ? range.smallest : NONE, moves);
            }
        }
        return true;
    }

    // Adds a tile that the windows hold.
    __device__ void add(const Tile<T>& tile, const TileRange<T, PARTS>& range) {
        if constexpr (PARTS & SUM) {
            --left;
            window.add(tile, window.narrow(range.largest, range.smallest, top));
        }
    }

    // Called by all lanes.
    __device__ void close(Counters<PARTS>& counters) {
        if constexpr (PARTS & SUM) empty(counters);
    }

  private:
    // Called by all lanes. If the windows of a warp agree, as they mostly do, the lanes sum each level first and one lane
    // adds it to the digits; else each lane adds its own.
    __device__ void empty(Counters<PARTS>& counters) {
        constexpr int LEVELS = Window<T, PARTS>::LEVELS;
        static_assert(53 + 5 < 63, "an integer holds a level of 32 lanes");
        i64 value[LEVELS];
        int place[LEVELS];
        window.take(top, value, place);
        const bool same = ALWAYS || __all_sync(ALL_LANES, top == __shfl_sync(ALL_LANES, top, 0));
        if (same) {
#pragma unroll
            for (int k = 0; k < LEVELS; ++k)
#pragma unroll
                for (int lanes = 16; lanes > 0; lanes /= 2) value[k] += __shfl_xor_sync(ALL_LANES, value[k], lanes);
        }
#pragma unroll 1
        for (int j = 0; j < (same ? 1 : LEVELS); ++j) {
            const int chosen = same ? threadIdx.x % 32 : j;
            i64 sum = 0;
            int at = 0;
#pragma unroll
            for (int k = 0; k < LEVELS; ++k)
                if (k == chosen) sum = value[k], at = place[k];
            if (sum) counters.digits.add(u64(sum < 0 ? -sum : sum), 0, at, sum < 0);
        }
    }

    // Called by all lanes, with the tile at hand. Chooses one window for all of them if there is one.
    __device__ void reopen(u32 largest, u32 smallest, bool moves) {
        int above = top;
        if constexpr (!ALWAYS) {
            const u32 most = greatest_of_warp(largest), least = least_of_warp(smallest);
            int common;
            if (most && fit(most, least, common)) above = common;
            else if (moves) fit(largest, smallest, above);
        }
        open(above);
    }

    // Largest and smallest magnitude, zero included. The other bits follow from `top`, which saves a register.
    __device__ bool within(u32 largest, u32 smallest) const {
        const int lowest = top - RANGE + F::BIAS;
        return largest < u32(top + F::BIAS) << F::SHIFT && smallest >= (lowest > 1 ? u32(lowest) << F::SHIFT : 0);
    }

    static __device__ u32 smallest_but_zero(const Tile<T>& tile) {
        u32 smallest = ~0u;
#pragma unroll
        for (int i = 0; i < Tile<T>::SIZE; ++i) smallest = min(smallest, F::magnitude(tile.item[i]) - 1);
        return smallest + 1;
    }

    // Whether a window can hold a tile, and its top: most of the spare range is left below, where small numbers are.
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
    }

    static __device__ void add_square(double value, Counters<PARTS>& counters) {
        const u64 bits = u64(__double_as_longlong(value));
        const int exponent = int(bits >> 52) & 0x7ff;
        const u64 fraction = (bits & ((u64(1) << 52) - 1)) | (exponent ? u64(1) << 52 : 0);
        if (fraction)
            counters.digits.add(fraction * fraction, __umul64hi(fraction, fraction),
                                SQUARE_PLACE - 2 * 1074 + 2 * (max(exponent, 1) - 1), false);
    }
};

template <int PARTS> struct Sums<float16, PARTS> : FloatSums<float16, PARTS> {};
template <int PARTS> struct Sums<float, PARTS> : FloatSums<float, PARTS> {};
template <int PARTS> struct Sums<double, PARTS> : FloatSums<double, PARTS> {};
