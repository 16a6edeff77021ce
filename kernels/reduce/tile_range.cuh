// Range of a tile, found before it is summed: least and greatest sample, and magnitudes of floats.
#pragma once

#include "reduce/tile.cuh"

// Minima and maxima of pairs of 16-bit numbers, signed if T is.
template <typename T> __device__ u32 lower_pair(u32 a, u32 b) {
    return T(-1) < T(0) ? __vmins2(a, b) : __vminu2(a, b);
}
template <typename T> __device__ u32 upper_pair(u32 a, u32 b) {
    return T(-1) < T(0) ? __vmaxs2(a, b) : __vmaxu2(a, b);
}

// Least and greatest sample of a tile; for floats also what their sums need.
template <typename T, int PARTS> struct TileRange {
    using Value = typename Wide<T>::type;
    Value low, high;

    __device__ TileRange(const Tile<T>& tile) {
        if constexpr (!(PARTS & EXTREMES)) return;
        else if constexpr (sizeof(T) > 2) {
            low = high = tile.item[0];
#pragma unroll
            for (int i = 1; i < Tile<T>::SIZE; ++i) {
                low = min(low, tile.item[i]);
                high = max(high, tile.item[i]);
            }
        } else {
            // Two per instruction. Bytes as pairs, too: the upper one decides, and a shift moves the lower one up.
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

// Also whether all are finite and, for floats with windows, the largest and smallest magnitude. The smallest may be
// underestimated: a tile that seems to lie outside of the window is examined again.
template <int PARTS> struct TileRange<float16, PARTS> {
    int low, high;
    u32 largest, smallest;
    bool finite;

    // Bits order like the numbers for positive ones and the other way round for negative ones, which are lowest as signed
    // integers and highest as unsigned ones: three instructions per two numbers, and no conversion.
    __device__ TileRange(const Tile<float16>& tile) {
        constexpr int SIZE = Tile<float16>::WORDS;
        u32 first = tile.word[0], last = first, furthest = first, nearest = ~0u;
#pragma unroll
        for (int i = 0; i < SIZE; ++i) {
            if (PARTS & EXTREMES) first = __vmins2(first, tile.word[i]);
            last = __vmaxs2(last, tile.word[i]);
            furthest = __vmaxu2(furthest, tile.word[i]);
            if (PARTS & SQUARES) nearest = __vminu2(nearest, tile.word[i] & 0x7fff7fff);
        }
        const int least = min(int(i16(first)), int(first) >> 16), greatest = max(int(i16(last)), int(last) >> 16);
        const int most = int(max(furthest & 0xffff, furthest >> 16));
        finite = greatest < 0x7c00 && most < 0xfc00;
        largest = u32(max(greatest, most - 0x8000));
        smallest = min(nearest & 0xffff, nearest >> 16);
        low = most >= 0x8000 ? -(most & 0x7fff) : least;
        high = greatest >= 0 ? greatest : -(least & 0x7fff);
    }
};

// Extremes of the leading 32 bits of floats by integer minima and maxima, four instructions per two numbers. The greatest
// as signed integers is the largest positive number; the greatest as unsigned ones is the negative number furthest from
// zero; where one sign is missing, the number nearest to zero takes its place.
struct Signed {
    u32 furthest = 0, nearest = NONE;
    int last = -0x7fffffff - 1;

    __device__ void see(u32 bits) {
        furthest = max(furthest, bits);
        nearest = min(nearest, bits & 0x7fffffffu);
        last = max(last, int(bits));
    }
    __device__ u32 largest() const { return u32(max(last, int(furthest & 0x7fffffffu))); }
    __device__ u32 low() const { return furthest >> 31 ? furthest : nearest; }
    __device__ u32 high() const { return last >= 0 ? u32(last) : nearest | 0x80000000u; }
};

template <int PARTS> struct TileRange<float, PARTS> {
    float low, high;
    u32 largest = 0, smallest = NONE;
    bool finite;

    __device__ TileRange(const Tile<float>& tile) {
        if constexpr (PARTS & EXTREMES) {
            Signed bits;
#pragma unroll
            for (int i = Tile<float>::SIZE - 1; i >= 0; --i) bits.see(tile.word[i]);
            low = __uint_as_float(bits.low());
            high = __uint_as_float(bits.high());
            largest = bits.largest();
            smallest = bits.nearest;
        } else {
#pragma unroll
            for (int i = Tile<float>::SIZE - 1; i >= 0; --i) {
                largest = max(largest, tile.word[i] & 0x7fffffffu);
                smallest = min(smallest, tile.word[i] & 0x7fffffffu);
            }
        }
        finite = largest < 0x7f800000u;
    }
};

// Upper words only: lower words are compared where they matter (minmax.cuh).
template <int PARTS> struct TileRange<double, PARTS> {
    int least, greatest;  // upper words, ordered like the numbers
    u32 largest = 0, smallest = NONE;
    bool finite;

    static __device__ int ordered(u32 bits) { return int(bits) < 0 ? int(bits ^ 0x7fffffffu) : int(bits); }

    __device__ TileRange(const Tile<double>& tile) {
        if constexpr (PARTS & EXTREMES) {
            Signed bits;
#pragma unroll
            for (int i = Tile<double>::SIZE - 1; i >= 0; --i) bits.see(tile.word[2 * i + 1]);
            least = ordered(bits.low());
            greatest = ordered(bits.high());
            largest = bits.largest();
            smallest = bits.nearest;
        } else {
#pragma unroll
            for (int i = Tile<double>::SIZE - 1; i >= 0; --i) {
                largest = max(largest, tile.word[2 * i + 1] & 0x7fffffffu);
                smallest = min(smallest, tile.word[2 * i + 1] & 0x7fffffffu);
            }
        }
        finite = largest < 0x7ff00000u;
    }
};
