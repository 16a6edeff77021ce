// What a tile is like, before it is added up: least and greatest sample, and of floats the magnitudes.
#pragma once

#include "reduce_tile.cuh"

// Pairs of 16-bit numbers, signed or not as T is: the lesser ones, the greater ones.
template <typename T> __device__ u32 lower_pair(u32 a, u32 b) {
    return T(-1) < T(0) ? __vmins2(a, b) : __vminu2(a, b);
}
template <typename T> __device__ u32 upper_pair(u32 a, u32 b) {
    return T(-1) < T(0) ? __vmaxs2(a, b) : __vmaxu2(a, b);
}

// Least and greatest sample of a tile, and for floats what their sums need to know of it.
template <typename T, int PARTS> struct Extent {
    using Value = typename Wide<T>::type;
    Value low, high;

    __device__ Extent(const Tile<T>& tile) {
        if constexpr (!(PARTS & EXTREMES)) return;
        else if constexpr (sizeof(T) > 2) {
            low = high = tile.item[0];
#pragma unroll
            for (int i = 1; i < Tile<T>::SIZE; ++i) {
                low = min(low, tile.item[i]);
                high = max(high, tile.item[i]);
            }
        } else {
            // Two to one instruction. Bytes in pairs, too: the upper one decides, and a shift brings the lower one up.
            u32 least = tile.word[0], greatest = least;
#pragma unroll
            for (int i = 0; i < Tile<T>::WORDS; ++i) {
                least = lower_pair<T>(least, tile.word[i]);
                greatest = upper_pair<T>(greatest, tile.word[i]);
                if constexpr (sizeof(T) == 1) {
                    least = lower_pair<T>(least, tile.word[i] << 8);
                    greatest = upper_pair<T>(greatest, tile.word[i] << 8);
                }
            }
            constexpr int UNUSED = 16 - 8 * sizeof(T);
            low = min(Value(T(least << 16 >> 16 + UNUSED)), Value(T(least >> 16 + UNUSED)));
            high = max(Value(T(greatest << 16 >> 16 + UNUSED)), Value(T(greatest >> 16 + UNUSED)));
        }
    }
};

// Besides the extremes of a tile: whether all are finite, and, of floats with windows, the largest and the smallest
// magnitude. The smallest may be less than Format has it: what lies outside of a window is looked at again.
template <int PARTS> struct Extent<float16, PARTS> {
    int low, high;
    u32 largest, smallest;
    bool finite;

    // The order of the bits is that of the numbers for positive ones, the opposite for negative ones, which are below
    // as signed integers and above as unsigned ones: three instructions for two numbers, and no conversion.
    __device__ Extent(const Tile<float16>& tile) {
        constexpr int SIZE = Tile<float16>::WORDS;
        u32 first = tile.word[0], last = first, furthest = first, nearest = ~0u;
#pragma unroll
        for (int i = 0; i < SIZE; ++i) {
            if (PARTS & EXTREMES) first = __vmins2(first, tile.word[i]);
            last = __vmaxs2(last, tile.word[i]);
            furthest = __vmaxu2(furthest, tile.word[i]);
            if (PARTS & SQUARES) nearest = __vminu2(nearest, tile.word[i] & 0x7fff7fff);
        }
        const int least = min(int(short(first)), int(first) >> 16), greatest = max(int(short(last)), int(last) >> 16);
        const int most = int(max(furthest & 0xffff, furthest >> 16));
        finite = greatest < 0x7c00 && most < 0xfc00;
        largest = u32(max(greatest, most - 0x8000));
        smallest = min(nearest & 0xffff, nearest >> 16);
        low = most >= 0x8000 ? -(most & 0x7fff) : least;
        high = greatest >= 0 ? greatest : -(least & 0x7fff);
    }
};

template <int PARTS> struct Extent<float, PARTS> {
    float low, high;
    u32 largest, smallest;
    bool finite;

    __device__ Extent(const Tile<float>& tile) {
        constexpr int SIZE = Tile<float>::SIZE;
        low = high = PARTS & EXTREMES ? tile.item[0] : 0;
        float least = fabsf(tile.item[0]), odd = 0;
#pragma unroll
        for (int i = 0; i < SIZE; ++i) {
            const float x = tile.item[i];
            if (PARTS & EXTREMES) low = min(low, x);
            high = max(high, PARTS & EXTREMES ? x : fabsf(x));
            if (PARTS & SUM) least = min(least, fabsf(x));
            odd = fmaf(x, 0, odd);  // NaN where x is not finite; minimum and maximum pass over it
        }
        largest = __float_as_uint(PARTS & EXTREMES ? max(fabsf(low), fabsf(high)) : high);
        smallest = __float_as_uint(least);
        finite = odd == 0;
    }
};

template <int PARTS> struct Extent<double, PARTS> {
    double low, high;
    u32 largest, smallest;
    bool finite;

    __device__ Extent(const Tile<double>& tile) {
        constexpr int SIZE = Tile<double>::SIZE;
        low = high = tile.item[0];
        largest = 0, smallest = ~0u;
#pragma unroll
        for (int i = 0; i < SIZE; ++i) {
            const double x = tile.item[i];
            if (PARTS & EXTREMES) {
                // One comparison each; min and max are longer for NaN, with which low and high are not used.
                low = x < low ? x : low;
                high = x > high ? x : high;
            }
            const u32 magnitude = tile.word[2 * i + 1] & 0x7fffffffu;
            largest = max(largest, magnitude);
            if (PARTS & SUM) smallest = min(smallest, magnitude);
        }
        finite = largest < 0x7ff00000u;
    }
};
