// Sums of any floats, kept as digits by each thread of a block.
#pragma once

#include "stencil/rows.cuh"

// Words of shared memory that Digits takes per thread, by element type.
constexpr int FLOAT_WORDS = 14, DOUBLE_WORDS = 71;

// Digits of 32 bits in 64-bit words, with carries not yet propagated, of the sum of at most 2^31 finite elements; and a
// mask of those that are not zero.
template <typename T, int BLOCK> struct Digits {
    static constexpr int COUNT = (Float<T>::PLACES + Float<T>::BITS + 31) / 32 + 2, WORDS = (COUNT + 63) / 64;
    static constexpr int NANS = COUNT, ABOVE = COUNT + 1, BELOW = COUNT + 2, ALL = COUNT + 3;
    static_assert(sizeof(T) == 2 || ALL == (sizeof(T) == 4 ? FLOAT_WORDS : DOUBLE_WORDS));
    i64* digits;  // and the counts of NaN, infinities and negative infinities
    u64 some[WORDS];

    __device__ i64& operator[](int digit) const { return digits[digit * BLOCK + threadIdx.x]; }
    __device__ void set(int digit, i64 value) {
        (*this)[digit] = value;
#pragma unroll
        for (int k = 0; k < WORDS; ++k) {
            const u64 bit = u64(digit / 64 == k) << digit % 64;
            some[k] = value ? some[k] | bit : some[k] & ~bit;
        }
    }
    __device__ void clear() {
        for (int k = 0; k < ALL; ++k) (*this)[k] = 0;
#pragma unroll
        for (int k = 0; k < WORDS; ++k) some[k] = 0;
    }

    // Calls `apply(index, digit)` for each digit of an element. `sign` is 1 or -1.
    template <typename Apply> static __device__ void split(T x, int sign, Apply apply) {
        if (!is_finite(x)) return apply(Float<T>::fraction(x) ? NANS : Float<T>::negative(x) ? BELOW : ABOVE, sign);
        const int place = place_of(x) - 1, shift = place % 32;
        const u64 size = size_of(x), low = size << shift;
        if (Float<T>::negative(x)) sign = -sign;
        apply(place / 32, sign * i64(u32(low)));
        apply(place / 32 + 1, sign * i64(low >> 32));
        if (Float<T>::BITS > 32 && shift) apply(place / 32 + 2, sign * i64(size >> (64 - shift)));
    }
    // An element enters (1) or leaves (-1).
    __device__ void add(T x, int sign) {
        split(x, sign, [&](int digit, i64 by) { set(digit, (*this)[digit] + by); });
    }

    // Index of the highest nonzero digit below `digit`; -1 if there is none.
    __device__ int below(int digit) const {
        int index = -1;
#pragma unroll
        for (int k = 0; k < WORDS; ++k) {
            const int here = digit - 64 * k;
            const u64 those = here >= 64 ? some[k] : here > 0 ? some[k] & ((u64(1) << here) - 1) : 0;
            if (those) index = 64 * k + 63 - __clzll(i64(those));
        }
        return index;
    }
    __device__ Wide wide(int digit) const {
        const i64 value = (*this)[digit];
        return {u64(value), value < 0 ? ~u64(0) : 0};
    }

    // The sum, of at most `most` elements. All digits below some digit add up to less than 2 * `most` of its units:
    // where that cannot move the leading 95 bits across a rounding boundary, they are not needed.
    __device__ double sum(i64 most) const {
        if ((*this)[NANS] || (*this)[ABOVE] || (*this)[BELOW])
            return not_finite((*this)[NANS], (*this)[ABOVE], (*this)[BELOW]);
        int last = below(COUNT);
        if (last < 0) return 0;
        Wide high = wide(last);
        int next = below(last);
        while (next >= 0 && !((high.high ^ u64(i64(high.high) >> 63)) >> 30)) {
            last = high.high | high.low ? last - 1 : next;
            high = {high.low << 32, high.high << 32 | high.low >> 32};
            if (last == next) high = high + wide(next), next = below(next);
        }
        const bool negative = i64(high.high) < 0;
        const Wide size = negative ? Wide{} - high : high;
        const i64 rest = i64(size.low & ((u64(1) << 40) - 1));
        if (next >= 0 && (rest <= 2 * most || rest >= (i64(1) << 40) - 2 * most)) return carried();
        const double result = rounded(size.high, size.low, false, 32 * last + 1 + Float<T>::BIAS);
        return negative ? -result : result;
    }

    // The same from all digits, the lowest first.
    __device__ double carried() const {
        i64 carry = 0;
        for (int k = 0; k < COUNT; ++k) carry = ((*this)[k] + carry) >> 32;
        const bool negative = carry < 0;
        carry = 0;
        u64 high = 0, low = 0, top_high = 0, top_low = 0;  // the last four digits, and those at the highest nonzero one
        bool rest = false, top_rest = false;
        int top = 0;
        for (int k = 0; k < COUNT; ++k) {
            carry += negative ? -(*this)[k] : (*this)[k];
            rest = rest || u32(low);
            low = high << 32 | low >> 32, high = u64(u32(carry)) << 32 | high >> 32;
            if (u32(carry)) top = k, top_high = high, top_low = low, top_rest = rest;
            carry >>= 32;
        }
        const double result = rounded(top_high, top_low, top_rest, 32 * (top - 3) + 1 + Float<T>::BIAS);
        return negative ? -result : result;
    }
};
