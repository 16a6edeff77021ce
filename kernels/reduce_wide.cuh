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

// Sixteen exponents share a sum in float64, which rounds none of 2^14 numbers.
template <int PARTS> struct Columns<float, PARTS> {
    static constexpr int CELLS = ROOMY && PARTS & SUM && !(PARTS & SQUARES) ? 16 : 0, MOST = 1 << 14;

    __device__ static void clear() {
        for (int i = 0; i < CELLS; ++i) cell<float, double>(i) = 0;
    }

    __device__ static void add(float x) { cell<float, double>((__float_as_uint(x) & 0x7fffffffu) >> 27) += x; }

    __device__ static void empty(Counters<PARTS>& counters) {
#pragma unroll 1
        for (int i = 0; i < CELLS; ++i) {
            counters.digits.add(cell<float, double>(i), SUM_PLACE - 1074);
            cell<float, double>(i) = 0;
        }
    }
};

// Fifty exponents share two integers of 64 bits: a number is rounded to a multiple of the upper one's unit by a number so
// large that float64 has no finer spacing there, and what is left is a multiple of the lower one's; how far such a sum is
// from where it began its bits say. 2^10 times at most 2^52 units add up.
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

// With squares, columns for each thread would leave no room. The warps of a block share them, by atomic operations which
// return nothing: digits of 20 bits in 32, for the sum and for the squares, each lane number its own. Between two pauses
// each lane adds at most 2^11 numbers, so that none overflows.
template <typename T> struct Lanes {
    static constexpr int WIDTH = 20, MOST = 1 << (31 - WIDTH);
    static constexpr int PRECISION = sizeof(T) == 4 ? 24 : 53, TOP = sizeof(T) == 4 ? 253 : 2045;
    static constexpr int UNIT = sizeof(T) == 4 ? 149 : 1074;  // bits behind the binary point
    static constexpr int OF_SUM = (PRECISION + 2 * WIDTH - 2) / WIDTH, OF_SQUARE = (2 * PRECISION + 2 * WIDTH - 2) / WIDTH;
    static constexpr int SUMS = TOP / WIDTH + OF_SUM, CELLS = SUMS + 2 * TOP / WIDTH + OF_SQUARE;

    __device__ static u32* own() {
        extern __shared__ u64 columns[];
        return reinterpret_cast<u32*>(columns) + threadIdx.x % 32;
    }

    __device__ static void clear() {
        for (int i = threadIdx.x / 32; i < CELLS; i += REDUCE_THREADS / 32) own()[32 * i] = 0;
    }

    // A finite number.
    __device__ static void add(T x) {
        u32 exponent;
        u64 fraction;
        i64 value;
        if constexpr (sizeof(T) == 4) {
            const u32 bits = __float_as_uint(x);
            exponent = bits >> 23 & 0xff;
            fraction = (bits & 0x7fffffu) | u32(exponent != 0) << 23;
            value = int(bits) < 0 ? -int(fraction) : int(fraction);
        } else {
            const u64 bits = u64(__double_as_longlong(x));
            exponent = u32(bits >> 52) & 0x7ff;
            fraction = (bits & ((u64(1) << 52) - 1)) | u64(exponent != 0) << 52;
            value = i64(bits) < 0 ? -i64(fraction) : i64(fraction);
        }
        const u32 place = max(exponent, 1u) - 1, sign = u32(value >> 63);
        const u32 number[] = {u32(value), u32(u64(value) >> 32), sign, sign, 0};
        const u64 low = fraction * fraction, high = sizeof(T) == 4 ? 0 : __umul64hi(fraction, fraction);
        const u32 square[] = {u32(low), u32(low >> 32), u32(high), u32(high >> 32), 0};
        deposit<OF_SUM>(number, place, 0);
        deposit<OF_SQUARE>(square, 2 * place, SUMS);
    }

    // All threads, behind a barrier. A lane for each of eight cells.
    template <typename C> __device__ static void empty(C& counters) {
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int first = threadIdx.x / 32 * 8; first < CELLS; first += REDUCE_THREADS / 32 * 8) {
            i64 mine = 0;
#pragma unroll 1
            for (int k = 0; k < min(8, CELLS - first); ++k) {
                const int digit = int(own()[32 * (first + k)]);
                own()[32 * (first + k)] = 0;
                const i64 sum = 0x10000ll * int(sum_of_warp(u32(digit >> 16))) + sum_of_warp(u32(digit) & 0xffff);
                if (lane == k) mine = sum;
            }
            const int cell = first + lane;
            const int at = cell < SUMS ? SUM_PLACE - UNIT + WIDTH * cell : SQUARE_PLACE - 2 * UNIT + WIDTH * (cell - SUMS);
            if (mine) counters.digits.add(u64(mine < 0 ? -mine : mine), 0, at, mine < 0);
        }
    }

  private:
    // Adds word * 2^place, of which COUNT digits take all; the highest one has the sign.
    template <int COUNT> __device__ static void deposit(const u32 (&word)[5], u32 place, int from) {
        const u32 first = place / WIDTH, shift = place - first * WIDTH;
        u32* const at = own() + 32 * (from + first);
        u32 shifted[5] = {word[0] << shift};
#pragma unroll
        for (int k = 1; k < 5; ++k) shifted[k] = u32((u64(word[k]) << 32 | word[k - 1]) << shift >> 32);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const int begin = k * WIDTH;
            const u32 digit = u32((u64(shifted[begin / 32 + 1]) << 32 | shifted[begin / 32]) >> begin % 32);
            atomicAdd(&at[32 * k], k < COUNT - 1 ? digit & ((1u << WIDTH) - 1) : digit);
        }
    }
};
