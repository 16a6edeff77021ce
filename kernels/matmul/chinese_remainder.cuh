// Integers from their residues by the Chinese remainder theorem, and from there numbers of a dtype.
#pragma once

#include "matmul/mma.cuh"

// Moduli are taken in pairs: two residues times factors add up to a number below 2^25, congruent to the integer modulo both.
// With M the product of all moduli, the integer is the sum of those numbers times weights, minus a multiple of M. Factors and
// weights are 1 modulo their own moduli and 0 modulo the other of the pair, or all others.
template <int COUNT> struct Weights {
    static_assert(COUNT >= 1 && COUNT <= MOST_MODULI, "no more moduli than there are");
    static constexpr int PAIRS = (COUNT + 1) / 2;
    static constexpr int WORDS = (8 * COUNT + 31) / 32 < 3 ? 3 : (8 * COUNT + 31) / 32;  // magnitudes are below M / 2
    u32 product[WORDS] = {};
    u32 factors[PAIRS] = {};  // two of 16 bits
    u32 weight[PAIRS][WORDS] = {};
    int top = 0;          // the highest nonzero word of M
    int shift = 0;        // bits of the word below it that are used to compare a sum with M
    double inverse = 0;  // of M in these units

    static constexpr void multiply(u32 (&number)[WORDS], u32 factor) {
        u64 carry = 0;
        for (int i = 0; i < WORDS; ++i) {
            carry += u64(number[i]) * factor;
            number[i] = u32(carry);
            carry >>= 32;
        }
    }
    static constexpr u32 inverse_of(u32 number, u32 modulus) {
        u32 inverse = 1;
        while (modulus > 1 && u64(number % modulus) * inverse % modulus != 1) ++inverse;
        return inverse;
    }
    static constexpr u32 modulus(int i) { return i < COUNT ? u32(MODULI[i]) : 1; }
    constexpr Weights() {
        product[0] = 1;
        for (int i = 0; i < COUNT; ++i) multiply(product, modulus(i));
        for (int i = 0; i < PAIRS; ++i) {
            const u32 one = modulus(2 * i), other = modulus(2 * i + 1), both = one * other;
            factors[i] = other * inverse_of(other, one) | (other > 1 ? one * inverse_of(one, other) : 0) << 16;
            u32 others = 1;
            weight[i][0] = 1;
            for (int j = 0; j < COUNT; ++j) {
                if (j / 2 == i) continue;
                multiply(weight[i], modulus(j));
                others = others * modulus(j) % both;
            }
            multiply(weight[i], inverse_of(others, both));
        }
        for (int i = 0; i < WORDS; ++i)
            if (product[i]) top = i;
        int bits = 0;
        while (bits < 32 && product[top] >> bits) ++bits;
        shift = top == 0 ? 0 : bits > 3 ? 35 - bits : 32;  // sums have up to 29 bits more
        double number = 0, unit = 1;
        for (int i = top; i >= 0 && i > top - 4; --i, unit /= 4294967296.0) number += product[i] * unit;
        inverse = 1 / (number * double(u64(1) << shift));
    }
};

// The integer in two's complement, from the sums of pairs times weights. It is below M / 2 by at least a 64th of M (moduli_for
// in formats.py), so that the leading 32 bits of M and of the sum determine the multiple of M to subtract.
template <int COUNT, int WORDS> __device__ void to_integer(const u64 (&sums)[WORDS], u32 (&words)[WORDS]) {
    constexpr Weights<COUNT> table;
    constexpr int TOP = table.top;
    u64 carry = 0, head = 0;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        carry += sums[i];
        words[i] = u32(carry);
        if (i == TOP) head = carry << table.shift | (table.shift ? u64(words[TOP ? TOP - 1 : 0]) >> (32 - table.shift) : 0);
        carry >>= 32;
    }
    const u32 multiple = u32(last_word(double(head) * table.inverse + ROUND));
    u64 borrow = 0;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        borrow += u64(table.product[i]) * multiple;
        const u32 less = u32(borrow);
        borrow = (borrow >> 32) + (words[i] < less);
        words[i] -= less;
    }
}

// Calls use(i, words) with the integer of each of four elements from `element` on.
template <int COUNT, typename Use>
__device__ void with_integers(const u8* products, i64 stride, i64 size, i64 element, Use use) {
    constexpr Weights<COUNT> table;
    constexpr int WORDS = Weights<COUNT>::WORDS;
    u32 residues[table.PAIRS * 2] = {};
    if (element + 4 <= size) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) residues[i] = *reinterpret_cast<const u32*>(products + i * stride + element);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
#pragma unroll 1
            for (int k = 0; element + k < size; ++k) residues[i] |= u32(products[i * stride + element + k]) << (8 * k);
    }
    u64 sums[4][WORDS] = {};
#pragma unroll
    for (int pair = 0; pair < table.PAIRS; ++pair) {
        const uint2 both = paired_bytes(residues[2 * pair], residues[2 * pair + 1]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 bytes = i < 2 ? both.x : both.y, factors = table.factors[pair];
            const u32 number = i % 2 ? __dp2a_hi(factors, bytes, 0u) : __dp2a_lo(factors, bytes, 0u);
#pragma unroll
            for (int k = 0; k < WORDS; ++k) sums[i][k] += u64(table.weight[pair][k]) * number;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (element + i >= size) return;
        u32 words[WORDS];
        to_integer<COUNT>(sums[i], words);
        use(i, words);
    }
}

// Stores four elements, those before `size`; the array is aligned to 16 bytes.
template <typename T> __device__ void store_four(T* results, i64 element, i64 size, const T (&values)[4]) {
    if (element + 4 > size) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (element + i < size) results[element + i] = values[i];
    } else if constexpr (sizeof(T) == 8) {
        auto* const to = reinterpret_cast<ulonglong2*>(results + element);
        to[0] = make_ulonglong2(u64(values[0]), u64(values[1]));
        to[1] = make_ulonglong2(u64(values[2]), u64(values[3]));
    } else if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<uint4*>(results + element) =
            make_uint4(u32(values[0]), u32(values[1]), u32(values[2]), u32(values[3]));
    } else {
        *reinterpret_cast<uint2*>(results + element) =
            make_uint2(values[0] | u32(values[1]) << 16, values[2] | u32(values[3]) << 16);
    }
}

// An integer times a power of two as the bits of a float, rounded once to nearest, ties to even.
template <typename F, int WORDS> __device__ typename F::Storage to_float(u32 (&words)[WORDS], int exponent) {
    const u32 negative = u32(int(words[WORDS - 1]) >> 31);
    u32 carry = negative & 1;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        words[i] = (words[i] ^ negative) + carry;
        carry = carry && words[i] == 0;
    }
    // Shift the highest nonzero word to the top.
    int last = 32 * WORDS - 64 + exponent;
#pragma unroll
    for (int step = 0; step < WORDS - 1; ++step) {
        if (words[WORDS - 1] == 0) {
#pragma unroll
            for (int i = WORDS - 1; i > 0; --i) words[i] = words[i - 1];
            words[0] = 0;
            last -= 32;
        }
    }
    if (words[WORDS - 1] == 0) return 0;
    const int zeros = __clz(int(words[WORDS - 1]));
    u64 head = (u64(words[WORDS - 1]) << 32 | words[WORDS - 2]) << zeros;
    head |= u64(words[WORDS - 3]) << zeros >> 32;
    u32 more = words[WORDS - 3] << zeros;
#pragma unroll
    for (int i = 0; i < WORDS - 3; ++i) more |= words[i];
    head |= more != 0;
    last -= zeros;
    // The number is head * 2^last; the last bit of head is sticky.
    const u64 sign = negative ? F::SIGN : 0, half = u64(1) << 63;
    if (last + 64 > F::TOP) return typename F::Storage(sign | F::INFINITE);
    const int lowest = last + 64 - F::PRECISION;
    if constexpr (sizeof(typename F::Storage) == 8) {
        if (lowest >= F::LEAST) return sign | (u64(__double_as_longlong(double(head))) + (u64(i64(last)) << 52));
    } else if constexpr (sizeof(typename F::Storage) == 4) {
        if (lowest >= F::LEAST) return u32(sign) | (__float_as_uint(float(head)) + (u32(last) << 23));
    }
    const int quantum = max(lowest, F::LEAST), dropped = quantum - last;
    if (dropped > 64) return typename F::Storage(sign);
    const u64 kept = dropped == 64 ? 0 : head >> dropped, rest = dropped == 64 ? head : head << (64 - dropped);
    const bool up = rest > half || (rest == half && kept & 1);
    return typename F::Storage(sign | ((u64(quantum - F::LEAST) << (F::PRECISION - 1)) + kept + up));
}

// The integer in another type; returns whether it fits.
template <typename T, int WORDS> __device__ bool to_fitting(const u32 (&words)[WORDS], T& value) {
    const u64 low = u64(words[1]) << 32 | words[0];
    value = T(low);
    const u32 above = value < 0 ? ~u32(0) : 0;
    bool fits = i64(value) == i64(low);
#pragma unroll
    for (int i = 2; i < WORDS; ++i) fits &= words[i] == above;
    return fits;
}
