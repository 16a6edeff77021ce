// Scaled integers in digits of eight bits: cut as tensor cores take them, multiplied, put together, rounded.
#pragma once

#include "modular_tensor.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define BYTES_16(A, B)                                                                                            \
    asm("mma.sync.aligned.m16n8k16.row.col.s32." A "." B ".s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])                                               \
        : "r"(a[0]), "r"(a[1]), "r"(b))
#define BYTES_32(A, B)                                                                                                \
    asm("mma.sync.aligned.m16n8k32.row.col.s32." A "." B ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "          \
        "{%0, %1, %2, %3};"                                                                                           \
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])                                                   \
        : "r"(a[0]), "r"(a[1]), "r"(next_a[0]), "r"(next_a[1]), "r"(b), "r"(next_b))
#elif defined(__CUDA_ARCH__)
#define BYTES_8(A, B, i)                                                                                \
    asm("mma.sync.aligned.m8n8k16.row.col.s32." A "." B ".s32 {%0, %1}, {%2}, {%3}, {%0, %1};"            \
        : "+r"(sums[2 * i]), "+r"(sums[2 * i + 1])                                                      \
        : "r"(a[i]), "r"(b))
#define BYTES_16(A, B) BYTES_8(A, B, 0), BYTES_8(A, B, 1)
#endif

// Adds the products of 16 rows of A and 8 columns of B, of 16 bytes each, to 16 x 8 sums. With g = lane / 4 and t = lane % 4
// a lane holds of A the bytes 4 t of rows g and g + 8, of B the same bytes of column g, and of the sums the columns 2 t and
// 2 t + 1 of rows g and g + 8. Bytes are signed or not: which is known when this is compiled.
__device__ inline void multiply_bytes(int (&sums)[4], const u32 (&a)[2], u32 b, bool signed_a, bool signed_b) {
#if defined(__CUDA_ARCH__)
    if (signed_a && signed_b) BYTES_16("s8", "s8");
    else if (signed_a) BYTES_16("s8", "u8");
    else if (signed_b) BYTES_16("u8", "s8");
    else BYTES_16("u8", "u8");
#else
    const int lane = int(threadIdx.x) % 32, row = lane / 4, column = 2 * (lane % 4);
    for (int i = 0; i < 4; ++i) {
        const u64 rows = __shfl_sync(~0u, u64(a[1]) << 32 | a[0], 4 * row + i);
        for (int j = 0; j < 2; ++j) {
            const u32 other = __shfl_sync(~0u, b, 4 * (column + j) + i);
            for (int byte = 0; byte < 32; byte += 8) {
                const int factor = signed_b ? int(i8(other >> byte)) : int(u8(other >> byte));
                for (int k = 0; k < 2; ++k) {
                    const u64 own = rows >> (32 * k + byte);
                    sums[2 * k + j] += (signed_a ? int(i8(own)) : int(u8(own))) * factor;
                }
            }
        }
    }
#endif
}

// The same of 32 bytes each.
__device__ inline void multiply_bytes(int (&sums)[4], const u32 (&a)[2], const u32 (&next_a)[2], u32 b, u32 next_b,
                                      bool signed_a, bool signed_b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (signed_a && signed_b) BYTES_32("s8", "s8");
    else if (signed_a) BYTES_32("s8", "u8");
    else if (signed_b) BYTES_32("u8", "s8");
    else BYTES_32("u8", "u8");
#else
    multiply_bytes(sums, a, b, signed_a, signed_b);
    multiply_bytes(sums, next_a, next_b, signed_a, signed_b);
#endif
}

// How numbers of a width are scaled where that takes a product and a conversion. A key orders magnitudes: their bits, or the
// first 31 of them, times two. For lines that are tiny the factor is no number, unless all of their numbers are lifted first.
template <int BYTES> struct Scaling {
    using Bits = u32;
    using Whole = int;
    static constexpr int FIELD = 24, BIAS = 126, WILD = 255, POWER = 284, LIFT = 100;  // 284 = 127 + BIAS + KEPT
    static __device__ bool tiny(u32 key) { return key >> FIELD < POWER - WILD + 1; }
    static __device__ u32 key(Bits bits) { return bits << 1; }
    static __device__ float factor(u32 field) { return __uint_as_float(field << 23); }
    static __device__ Bits lift(Bits bits, int by) {
        return __float_as_uint(__uint_as_float(bits) * factor(u32(127 + by)));
    }
    static __device__ Whole whole(Bits bits, float factor) { return __float2int_rn(__uint_as_float(bits) * factor); }
};
template <> struct Scaling<8> {
    using Bits = u64;
    using Whole = i64;
    static constexpr int FIELD = 21, BIAS = 1022, WILD = 2047, POWER = 2100, LIFT = 1000;  // 2100 = 1023 + BIAS + KEPT
    static __device__ bool tiny(u32 key) { return key >> FIELD < POWER - WILD + 1; }
    static __device__ u32 key(Bits bits) { return u32(bits >> 32) << 1; }
    static __device__ double factor(u32 field) { return __longlong_as_double(i64(u64(field) << 52)); }
    static __device__ Bits lift(Bits bits, int by) {
        return u64(__double_as_longlong(__longlong_as_double(i64(bits)) * factor(u32(1023 + by))));
    }
    static __device__ Whole whole(Bits bits, double factor) {
        return __double2ll_rn(__longlong_as_double(i64(bits)) * factor);
    }
};

// The digits of an integer of a format, the lowest first; the last one has the sign.
template <typename F> struct Digits {
    static constexpr int COUNT = (F::KEPT + 8) / 8, ALL = COUNT + 1;  // and one of magnitudes
    static constexpr int PLACES = 2 * COUNT - 1;                      // of products of digits
    static constexpr int PARTS = (PLACES + 3) / 4, WORDS = PARTS < 3 ? 3 : PARTS;

    // How large the sum of products at a place can be, for each of the numbers that are added up.
    static constexpr i64 most(int place) {
        i64 sum = 0;
        for (int i = 0; i < COUNT; ++i)
            if (place - i >= 0 && place - i < COUNT)
                sum += i64(i == COUNT - 1 ? 128 : 255) * (place - i == COUNT - 1 ? 128 : 255);
        return sum;
    }
    // Whether two neighbouring places fit into 32 bits together.
    static constexpr bool narrow(int inner) {
        for (int place = 0; place < PLACES; ++place)
            if (inner * (most(place) + 256 * most(place + 1)) >= i64(1) << 31) return false;
        return true;
    }

    // Of four integers, each digit of all in one word, and no more than their magnitudes: the first seven bits of those, for
    // negative ones of the magnitude less one.
    template <typename Whole> static __device__ void cut(const Whole (&wholes)[4], u32 (&found)[ALL]) {
#pragma unroll
        for (int word = 0; word < (COUNT + 3) / 4; ++word) {
            u32 part[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) part[i] = u32(i64(wholes[i]) >> 32 * word);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int place = 4 * word + 2 * half;
                const u32 one = __byte_perm(part[0], part[1], half ? 0x7362 : 0x5140);
                const u32 other = __byte_perm(part[2], part[3], half ? 0x7362 : 0x5140);
                if (place < COUNT) found[place] = __byte_perm(one, other, 0x5410);
                if (place + 1 < COUNT) found[place + 1] = __byte_perm(one, other, 0x7632);
            }
        }
        found[COUNT] = found[COUNT - 1] ^ __byte_perm(found[COUNT - 1], 0, 0xba98);  // their signs, in all bits
    }
};

// An integer in two's complement times 2^(exponent - 2 KEPT), where a conversion rounds it: whether that is sure to be right.
template <typename F> struct Rounding {
    static __device__ bool round(const u32 (&words)[3], int exponent, typename F::Storage& result) {
        if constexpr (sizeof(typename F::Storage) == 2) {
            u32 copy[3] = {words[0], words[1], words[2]};
            result = to_float<F>(copy, exponent - 2 * F::KEPT);
            return true;
        }
        // Without the last six bits it is below 2^62; where one of those is set, so is one of the last six that are left.
        const u64 upper = u64(words[2]) << 32 | words[1];
        const i64 head = i64(upper << 26 | words[0] >> 6 | (words[0] & 63));
        const u32 bits = __float_as_uint(float(head)), magnitude = bits & 0x7fffffff;
        const u32 scaled = magnitude + (u32(exponent + 6 - 2 * F::KEPT) << 23);
        result = typename F::Storage(magnitude ? scaled | (bits & 0x80000000) : 0);
        // Neither next to nothing, nor subnormal, nor too large.
        return (magnitude >= (127u + 32) << 23 && scaled - (1u << 23) < 254u << 23) || !magnitude;
    }
    static __device__ bool round(const u32 (&words)[4], int exponent, typename F::Storage& result) {
        const i64 upper = i64(u64(words[3]) << 32 | words[2]);
        const u64 lower = u64(words[1]) << 32 | words[0], beginning = u64(upper ^ upper >> 63);
        const int shift = max(__clzll(i64(beginning)) - 1, 0) & 63;
        const u64 head = u64(upper) << shift | lower >> 1 >> (63 - shift);
        const double value = double(i64(head | (lower << shift != 0)));
        const int power = exponent + 64 - 2 * F::KEPT - shift;
        const u64 scaled = u64(__double_as_longlong(value)) + (u64(i64(power)) << 52);
        const bool some = upper != 0 || lower != 0;
        result = typename F::Storage(some ? scaled : 0);
        // The value is between 2^62 and 2^63.
        return (beginning != 0 && u32(power + 62 + 1022) <= 2044) || !some;
    }
};
