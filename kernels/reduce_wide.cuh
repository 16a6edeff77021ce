// Sums of floats whose exponents lie anywhere: each thread has cells of shared memory to itself, by exponent.
#pragma once

#include "reduce_tile.cuh"

// A thread's cells are a column of the block's: lanes that go to different ones never meet in a bank. Nothing is atomic
// and nothing is waited for, which the digits of the block cannot say.
template <typename T, typename C> __device__ C& cell(int number) {
    extern __shared__ u64 columns[];
    return reinterpret_cast<C&>(columns[number * REDUCE_THREADS + threadIdx.x]);
}

template <typename T, int PARTS> struct Columns;

// Where a block may have no more than 64 KiB of shared memory, there are none.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool ROOMY = false;
#else
constexpr bool ROOMY = true;
#endif

// Sixteen exponents share a sum in float64, which rounds none of 2^14 numbers. A square of 48 bits becomes two numbers
// of 48, of which 2^15 add up.
template <int PARTS> struct Columns<float, PARTS> {
    static constexpr int SUMS = ROOMY && PARTS & SUM ? 16 : 0, SQUARE_BITS_OF_CELL = 48;
    static constexpr int SQUARED = ROOMY && PARTS & SQUARES ? 2 * 254 / SQUARE_BITS_OF_CELL + 2 : 0;
    static constexpr int CELLS = SUMS + SQUARED, MOST = 1 << 14;

    __device__ static void clear() {
        for (int i = 0; i < SUMS; ++i) cell<float, double>(i) = 0;
        for (int i = 0; i < SQUARED; ++i) cell<float, u64>(SUMS + i) = 0;
    }

    __device__ static void add(float x) {
        const u32 magnitude = __float_as_uint(x) & 0x7fffffffu;
        cell<float, double>(magnitude >> 27) += x;
        if (PARTS & SQUARES) {
            const u32 exponent = magnitude >> 23, place = 2 * (exponent ? exponent - 1 : 0);
            const u32 fraction = (magnitude & 0x7fffffu) | (exponent ? 0x800000u : 0);
            const u64 square = u64(fraction) * fraction;
            const int first = place / SQUARE_BITS_OF_CELL, shift = place % SQUARE_BITS_OF_CELL;
            cell<float, u64>(SUMS + first) += (square << shift) & ((u64(1) << SQUARE_BITS_OF_CELL) - 1);
            cell<float, u64>(SUMS + first + 1) += square >> (SQUARE_BITS_OF_CELL - shift);
        }
    }

    __device__ static void empty(Counters<PARTS>& counters) {
#pragma unroll 1
        for (int i = 0; i < SUMS; ++i) {
            counters.digits.add(cell<float, double>(i), SUM_PLACE - 1074);
            cell<float, double>(i) = 0;
        }
#pragma unroll 1
        for (int i = 0; i < SQUARED; ++i) {
            counters.digits.add(cell<float, u64>(SUMS + i), 0, SQUARE_PLACE - 2 * 149 + i * SQUARE_BITS_OF_CELL, false);
            cell<float, u64>(SUMS + i) = 0;
        }
    }
};

// Fifty exponents share two integers of 64 bits: a number is rounded to a multiple of the upper one's unit by a number so
// large that float64 has no finer spacing there, and what is left is a multiple of the lower one's; how far such a sum is
// from where it began its bits say. 2^10 times at most 2^52 units add up. With squares, for which there is no room, all
// goes to the digits.
template <int PARTS> struct Columns<double, PARTS> {
    static constexpr int BITS = 50, BINS = 2046 / BITS + 1, LARGE = BITS * (BINS - 1), MOST = 1 << 10;
    static constexpr int CELLS = ROOMY && PARTS & SUM && !(PARTS & SQUARES) ? BINS + 1 : 0;
    static constexpr u32 MIDDLE = 1 << 19;  // of the upper half of a number: 1.5 times a power of two
    static_assert(BITS == 50, "as add divides by it");
    static_assert(LARGE + BITS + 1 > 2045 && LARGE + 1 < 2045, "only of large numbers there is no larger one");

    __device__ static double from_halves(u32 upper, u32 lower) {
        return __longlong_as_double(i64(u64(upper) << 32 | lower));
    }

    __device__ static void clear() {
        for (int i = 0; i < CELLS; ++i) cell<double, i64>(i) = 0;
    }

    __device__ static void add(double x) {
        const u64 bits = u64(__double_as_longlong(x));
        const u32 head = u32(bits >> 32), exponent = head >> 20 & 0x7ff, first = exponent * 1311 >> 16;
        const u32 middle = exponent >= LARGE ? MIDDLE - (2 * BITS << 20) : MIDDLE;
        const u32 lower = first * (BITS << 20) + middle, upper = lower + (BITS + 1 << 20);
        const double scaled = from_halves(head - MIDDLE + middle, u32(bits)), far = from_halves(upper, 0);
        const double high = scaled + far, low = scaled - (high - far) + from_halves(lower, 0);
        u64& at_lower = cell<double, u64>(first);
        u64& at_upper = cell<double, u64>(first + 1);
        at_lower = at_lower + u64(__double_as_longlong(low)) - (u64(lower) << 32);
        at_upper = at_upper + 2 * u64(__double_as_longlong(high)) - (u64(2 * upper) << 32);
    }

    __device__ static void empty(Counters<PARTS>& counters) {
#pragma unroll 1
        for (int i = 0; i < CELLS; ++i) {
            const i64 sum = cell<double, i64>(i);
            counters.digits.add(u64(sum < 0 ? -sum : sum), 0, SUM_PLACE - 1075 + i * BITS + (i == 0), sum < 0);
            cell<double, i64>(i) = 0;
        }
    }
};

// Integers fit into registers, and so does float16.
template <typename T, int PARTS> struct Columns {
    static constexpr int CELLS = 0;
    __device__ static void clear() {}
};
