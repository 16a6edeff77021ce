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

// A number of 53 bits is two of 52, of which 2^11 add up. With squares, for which there is no room, all goes to the
// digits.
template <int PARTS> struct Columns<double, PARTS> {
    static constexpr int BITS = 52, CELLS = ROOMY && PARTS & SUM && !(PARTS & SQUARES) ? 2045 / BITS + 2 : 0, MOST = 1 << 11;

    __device__ static void clear() {
        for (int i = 0; i < CELLS; ++i) cell<double, i64>(i) = 0;
    }

    __device__ static void add(double x) {
        const u64 bits = u64(__double_as_longlong(x)), below = (u64(1) << BITS) - 1;
        const u32 exponent = u32(bits >> 52) & 0x7ff, place = exponent ? exponent - 1 : 0;
        const u64 fraction = (bits & below) | u64(exponent != 0) << 52;
        const int first = place / BITS, shift = place % BITS;
        const i64 sign = i64(bits) >> 63;
        cell<double, i64>(first) += (i64((fraction << shift) & below) ^ sign) - sign;
        cell<double, i64>(first + 1) += (i64(fraction >> (BITS - shift)) ^ sign) - sign;
    }

    __device__ static void empty(Counters<PARTS>& counters) {
#pragma unroll 1
        for (int i = 0; i < CELLS; ++i) {
            const i64 sum = cell<double, i64>(i);
            counters.digits.add(u64(sum < 0 ? -sum : sum), 0, SUM_PLACE - 1074 + i * BITS, sum < 0);
            cell<double, i64>(i) = 0;
        }
    }
};

// Integers fit into registers, and so does float16.
template <typename T, int PARTS> struct Columns {
    static constexpr int CELLS = 0;
    __device__ static void clear() {}
};
