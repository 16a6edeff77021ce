// Exact sums of float64 numbers: in registers where exponents are close, else digit by digit in shared memory.
#pragma once

#include "common/stream.cuh"

constexpr int SUM_BITS = 1088, SQUARE_BITS = 2176;  // behind the binary point, as in exact_sum.py
constexpr int DIGIT_BITS = 28;
constexpr int SUM_DIGITS = (SUM_BITS + 1088 + DIGIT_BITS - 1) / DIGIT_BITS;
constexpr int SQUARE_DIGITS = (SQUARE_BITS + 2112 + DIGIT_BITS - 1) / DIGIT_BITS;

// A block's fixed-point number as N digits in shared memory. A digit sums everything added at its place; carries are
// resolved at the end. It is a signed 64-bit counter in two halves, because shared-memory atomics add 32 bits. The lower
// half starts in the middle of its range, so that the upper one changes only once in about 2^4 additions, and not at all
// for sums that stay around zero. Lanes of a warp that add at the same place use different copies.
template <int N> struct Digits {
    static constexpr int COPIES = N > SUM_DIGITS ? 4 : 8;
    static constexpr u32 MIDDLE = 1u << 31, MASK = (1u << DIGIT_BITS) - 1;
    u32 lower[N * COPIES], upper[N * COPIES];

    __device__ void clear() {
        for (int i = threadIdx.x; i < N * COPIES; i += blockDim.x) lower[i] = MIDDLE, upper[i] = 0;
    }

    // Adds (high * 2^64 + low) * 2^place, or subtracts it.
    __device__ void add(u64 low, u64 high, int place, bool negative) {
        const int shift = place % DIGIT_BITS;
        int cell = place / DIGIT_BITS * COPIES + threadIdx.x % COPIES, width = DIGIT_BITS - shift;
        u32 digit = u32(low << shift) & MASK;
        while (true) {
            if (digit) count(cell, digit, negative);
            low = low >> width | high << (64 - width);
            high >>= width;
            if (!(low | high)) return;
            digit = u32(low) & MASK;
            width = DIGIT_BITS;
            cell += COPIES;
        }
    }

    // Adds value * 2^(place + 1074); the last bit of a float64 number is 2^-1074 at least.
    __device__ void add(double value, int place) {
        const i64 bits = __double_as_longlong(value);
        const int exponent = int(bits >> 52) & 0x7ff;
        const u64 fraction = u64(bits) & ((u64(1) << 52) - 1);
        if (exponent) add(fraction | u64(1) << 52, 0, place + exponent - 1, bits < 0);
        else if (fraction) add(fraction, 0, place, bits < 0);
    }

    // Digit i, summed over its copies.
    __device__ i64 digit(int i) const {
        i64 sum = 0;
        for (int k = 0; k < COPIES; ++k)
            sum += i64(u64(upper[i * COPIES + k]) << 32) + lower[i * COPIES + k] - MIDDLE;
        return sum;
    }

  private:
    __device__ void count(int cell, u32 digit, bool negative) {
        const u32 before = atomicAdd(&lower[cell], negative ? 0 - digit : digit);
        const u32 after = negative ? before - digit : before + digit;
        if (negative ? after > before : after < before) atomicAdd(&upper[cell], negative ? ~0u : 1u);
    }
};

// log2 of the additions to Levels before they must be emptied. Each level takes LEVEL_BITS of a number.
constexpr int ROOM = 10;
constexpr int LEVEL_BITS = 52 - ROOM;

// Bits, from the top of the numbers to their last bit, that K levels hold.
constexpr int level_bits(int levels) { return levels * LEVEL_BITS + 1; }

// A thread's sum in K registers. All but the last start at 1.5 * 2^e and stay between 2^e and 2^(e + 1), where float64
// numbers are evenly spaced: an addition rounds the number to that spacing, the change of the sum is the part it took,
// and the remainder, LEVEL_BITS smaller, goes to the next level. Nothing is lost; a level takes three operations.
template <int K> struct Levels {
    double sum[K] = {};

    // For numbers of at most 2^top.
    __device__ void open(int top) {
#pragma unroll
        for (int k = 0; k < K - 1; ++k) sum[k] = start(top, k);
        sum[K - 1] = 0;
    }

    // Returns the part that the first level took.
    __device__ double add(double value, int first = 0) {
        double kept = 0;
#pragma unroll
        for (int k = first; k < K - 1; ++k) {
            const double after = sum[k] + value, part = after - sum[k];
            sum[k] = after;
            value -= part;
            if (k == first) kept = part;
        }
        sum[K - 1] += value;
        return kept;
    }

    // For products longer than a float64 number, provided the remainder after the first level is not.
    __device__ void add_product(double a, double b) { add(add_to_first(a, b), 1); }

    // Returns the remainder of a * b after the first level.
    __device__ double add_to_first(double a, double b) {
        const double before = sum[0];
        sum[0] = fma(a, b, before);
        return fma(a, b, before - sum[0]);
    }

    // Contents as integers in units of 2^place; `top` as when they were opened. A level that stays between two powers of
    // two is its bits less those it started with; the last is a whole number of last bits, scaled in two steps because
    // 2^-place alone may over- or underflow.
    __device__ void take(int top, i64* value, int* place) const {
#pragma unroll
        for (int k = 0; k < K - 1; ++k) {
            value[k] = __double_as_longlong(sum[k]) - __double_as_longlong(start(top, k));
            place[k] = top + ROOM + 1 - k * LEVEL_BITS - 52;
        }
        place[K - 1] = top - level_bits(K);
        const int half = -place[K - 1] / 2;
        value[K - 1] = i64(sum[K - 1] * power(half) * power(-place[K - 1] - half));
    }

  private:
    static __device__ double power(int exponent) { return __longlong_as_double(i64(exponent + 1023) << 52); }
    static __device__ double start(int top, int level) {
        return __longlong_as_double((i64(top + ROOM + 1 - level * LEVEL_BITS + 1023) << 52) | (i64(1) << 51));
    }
};

// Digits with unresolved carries to two's complement in 64-bit words; one warp. A lane takes the 16 digits that make 7
// words, and passes its carry on until none is left.
template <int COUNT, int SIZE> __device__ void to_words(const i64* digits, u64* words) {
    constexpr int TAKEN = 16, MADE = 7;
    static_assert(TAKEN * DIGIT_BITS == MADE * 64 && COUNT <= 32 * TAKEN, "whole words, and a lane for each");
    const int lane = threadIdx.x % 32;
    i64 digit[TAKEN], carry = 0;
#pragma unroll
    for (int i = 0; i < TAKEN; ++i) digit[i] = lane * TAKEN + i < COUNT ? digits[lane * TAKEN + i] : 0;
    u64 made[MADE] = {};
#pragma unroll
    for (int i = 0; i < TAKEN; ++i) {
        const i64 sum = digit[i] + carry;
        const u64 low = u64(sum) & ((u64(1) << DIGIT_BITS) - 1);
        carry = sum >> DIGIT_BITS;
        const int word = i * DIGIT_BITS / 64, shift = i * DIGIT_BITS % 64;
        made[word] |= low << shift;
        if (shift > 64 - DIGIT_BITS) made[word + 1] |= low >> (64 - shift);
    }
    while (true) {
        const i64 passed = __shfl_up_sync(0xffffffff, carry, 1), arrived = lane ? passed : 0;
        if (!__any_sync(0xffffffff, arrived != 0)) break;
        carry = arrived;
#pragma unroll
        for (int i = 0; i < MADE; ++i) {
            made[i] += u64(carry);
            carry = i64(made[i] < u64(carry)) - (carry < 0);
        }
    }
#pragma unroll
    for (int i = 0; i < MADE; ++i)
        if (lane * MADE + i < SIZE) words[lane * MADE + i] = made[i];
}

// Adds two numbers in two's complement; one thread.
inline __device__ void add_words(const u64* a, const u64* b, u64* sum, int size) {
    u64 carry = 0;
    for (int i = 0; i < size; ++i) {
        const u64 first = a[i] + carry;
        carry = first < carry;
        sum[i] = first + b[i];
        carry += sum[i] < first;
    }
}
