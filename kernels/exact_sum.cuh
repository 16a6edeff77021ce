// Exact sums of float64 numbers, in registers where exponents are close, digit by digit in shared memory where not.
#pragma once

#include "stream.cuh"

constexpr int SUM_BITS = 1088, SQUARE_BITS = 2176;  // behind the binary point, as in exact_sum.py
constexpr int DIGIT_BITS = 28;
constexpr int SUM_DIGITS = (SUM_BITS + 1088 + DIGIT_BITS - 1) / DIGIT_BITS;
constexpr int SQUARE_DIGITS = (SQUARE_BITS + 2112 + DIGIT_BITS - 1) / DIGIT_BITS;

// A fixed-point number of a block as N digits in shared memory. A digit is the sum of all that was added at its place,
// whatever carries that leaves for later: a signed 64-bit counter in two halves, because the hardware adds 32 bits in
// shared memory. The lower half starts in the middle, so that the upper one follows only once in about 2^4 additions,
// and sums that stay around zero do not touch it. Lanes of a warp that add at one place find different copies.
template <int N> struct Digits {
    static constexpr int COPIES = 8;
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

    // Adds value * 2^(place + 1074): what is behind the binary point of a float64 number reaches 2^-1074.
    __device__ void add(double value, int place) {
        const i64 bits = __double_as_longlong(value);
        const int exponent = int(bits >> 52) & 0x7ff;
        const u64 fraction = u64(bits) & ((u64(1) << 52) - 1);
        if (exponent) add(fraction | u64(1) << 52, 0, place + exponent - 1, bits < 0);
        else if (fraction) add(fraction, 0, place, bits < 0);
    }

    // What the copies have counted, added to the digits of all blocks.
    __device__ void store(i64* digits) const {
        for (int i = threadIdx.x; i < N; i += blockDim.x) {
            i64 sum = 0;
            for (int k = 0; k < COPIES; ++k)
                sum += i64(u64(upper[i * COPIES + k]) << 32) + lower[i * COPIES + k] - MIDDLE;
            if (sum) atomicAdd(reinterpret_cast<u64*>(digits) + i, u64(sum));
        }
    }

  private:
    __device__ void count(int cell, u32 digit, bool negative) {
        const u32 before = atomicAdd(&lower[cell], negative ? 0 - digit : digit);
        const u32 after = negative ? before - digit : before + digit;
        if (negative ? after > before : after < before) atomicAdd(&upper[cell], negative ? ~0u : 1u);
    }
};

// log2 of the numbers that may be added to Levels before they are emptied. Each level takes LEVEL_BITS of a number.
constexpr int ROOM = 11;
constexpr int LEVEL_BITS = 53 - ROOM;

// The sum of a thread in K registers. Next to grid[k] the spacing of float64 numbers is 2^(ROOM - 52) times the largest
// number that the level is given: adding and subtracting it leaves so much of a number that 2^ROOM of them add up
// without rounding, and hands on a rest that is smaller by LEVEL_BITS. What the last level is given are multiples of
// 2^(top - K * LEVEL_BITS), or more was added than there is room for.
template <int K> struct Levels {
    double sum[K] = {};
    double grid[K] = {};  // the last one is not used

    // For numbers below 2^top; 1.5 keeps the spacing the same on both sides.
    __device__ void open(int top) {
#pragma unroll
        for (int k = 0; k < K - 1; ++k)
            grid[k] = __longlong_as_double((i64(top + ROOM - k * LEVEL_BITS + 1023) << 52) | (i64(1) << 51));
    }

    // `first`: the level whose numbers are as large as this one at most.
    __device__ void add(double value, int first = 0) {
#pragma unroll
        for (int k = first; k < K - 1; ++k) {
            const double kept = (value + grid[k]) - grid[k];
            sum[k] += kept;
            value -= kept;
        }
        sum[K - 1] += value;
    }

    template <int N> __device__ void empty(Digits<N>& digits, int place) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            digits.add(sum[k], place);
            sum[k] = 0;
        }
    }
};

// Digits with whatever carries they have left, to two's complement in words of 64 bits; one thread.
inline __device__ void to_words(const i64* digits, int count, u64* words, int size) {
    for (int i = 0; i < size; ++i) words[i] = 0;
    i64 carry = 0;
    for (int i = 0; i < count; ++i) {
        const i64 sum = digits[i] + carry;
        const u64 digit = u64(sum) & ((u64(1) << DIGIT_BITS) - 1);
        carry = sum >> DIGIT_BITS;
        const int word = i * DIGIT_BITS / 64, shift = i * DIGIT_BITS % 64;
        words[word] |= digit << shift;  // there are no more digits than the words hold
        if (shift > 64 - DIGIT_BITS && word + 1 < size) words[word + 1] |= digit >> (64 - shift);
    }
}

// Sum of two numbers in two's complement; one thread.
inline __device__ void add_words(const u64* a, const u64* b, u64* sum, int size) {
    u64 carry = 0;
    for (int i = 0; i < size; ++i) {
        const u64 first = a[i] + carry;
        carry = first < carry;
        sum[i] = first + b[i];
        carry += sum[i] < first;
    }
}
