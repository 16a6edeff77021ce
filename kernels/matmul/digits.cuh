// Scaled integers in digits of eight bits: cut for tensor cores, multiplied, recombined, rounded.
#pragma once

#include "matmul/certificate.cuh"

#if HAS_WIDE_MMA
#define BYTES_16(A, B)                                                                                            \
    asm("mma.sync.aligned.m16n8k16.row.col.s32." A "." B ".s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])                                               \
        : "r"(a[0]), "r"(a[1]), "r"(b))
#define BYTES_32(A, B)                                                                                                \
    asm("mma.sync.aligned.m16n8k32.row.col.s32." A "." B ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "          \
        "{%0, %1, %2, %3};"                                                                                           \
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])                                                   \
        : "r"(a[0]), "r"(a[1]), "r"(next_a[0]), "r"(next_a[1]), "r"(b), "r"(next_b))
#elif ON_GPU
#define BYTES_8(A, B, i)                                                                                \
    asm("mma.sync.aligned.m8n8k16.row.col.s32." A "." B ".s32 {%0, %1}, {%2}, {%3}, {%0, %1};"            \
        : "+r"(sums[2 * i]), "+r"(sums[2 * i + 1])                                                      \
        : "r"(a[i]), "r"(b))
#define BYTES_16(A, B) do { BYTES_8(A, B, 0); BYTES_8(A, B, 1); } while (0)
#endif

// Adds the products of 16 rows of A and 8 columns of B, of 16 bytes each, to 16 x 8 sums. With g = lane / 4 and t = lane % 4
// a lane holds four bytes of A from 4 t on of rows g and g + 8, the same bytes of column g of B, and the sums of columns 2 t
// and 2 t + 1 of rows g and g + 8. Whether bytes are signed is known at compile time.
__device__ inline void multiply_bytes(int (&sums)[4], const u32 (&a)[2], u32 b, bool signed_a, bool signed_b) {
#if ON_GPU
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

// The same with 32 bytes each.
__device__ inline void multiply_bytes(int (&sums)[4], const u32 (&a)[2], const u32 (&next_a)[2], u32 b, u32 next_b,
                                      bool signed_a, bool signed_b) {
#if HAS_WIDE_MMA
    if (signed_a && signed_b) BYTES_32("s8", "s8");
    else if (signed_a) BYTES_32("s8", "u8");
    else if (signed_b) BYTES_32("u8", "s8");
    else BYTES_32("u8", "u8");
#else
    multiply_bytes(sums, a, b, signed_a, signed_b);
    multiply_bytes(sums, next_a, next_b, signed_a, signed_b);
#endif
}

// Spreads the sign of each byte of a word over all of its bits.
__device__ inline u32 signs(u32 bytes) {
#if ON_GPU
    u32 spread;
    asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(spread) : "r"(bytes));  // __byte_perm has no sign mode
    return spread;
#else
    return (bytes >> 7 & 0x01010101) * 0xff;
#endif
}

// Scales numbers of a width by a multiplication and a conversion. A key orders magnitudes: their bits, or the first 31 of
// them, times two. Lines with moderate exponents need no special care, here or when they are rounded (Sum). For tiny lines the
// factor would overflow, unless all of their numbers are lifted first.
template <typename Of> __device__ bool moderate(u32 key, u32 low) {
    constexpr u32 FIRST = u32(Of::LEAST + Of::BIAS) << Of::FIELD, END = u32(Of::MOST + Of::BIAS + 1) << Of::FIELD;
    return key - FIRST < END - FIRST || !(key | low);
}
template <int BYTES> struct Scaling {
    using Bits = u32;
    using Whole = int;
    static constexpr int FIELD = 24, BIAS = 126, POWER = 127 + BIAS + KEPT_32, LIFT = 100;
    static constexpr int LEAST = -51, MOST = 92;  // moderate exponents
    static __device__ u32 key(Bits bits) { return bits << 1; }
    static __device__ bool is_moderate(u32 key, u32 low) { return moderate<Scaling>(key, low); }
    static __device__ float factor(u32 field) { return __uint_as_float(field << 23); }
    static __device__ Bits lift(Bits bits, int by) {
        return __float_as_uint(__uint_as_float(bits) * factor(u32(127 + by)));
    }
    static __device__ Whole whole(Bits bits, float factor) { return __float2int_rn(__uint_as_float(bits) * factor); }
};
template <> struct Scaling<8> {
    using Bits = u64;
    using Whole = i64;
    static constexpr int FIELD = 21, BIAS = 1022, POWER = 1023 + BIAS + KEPT_64, LIFT = 1000;
    static constexpr int LEAST = -456, MOST = 456;
    static __device__ u32 key(Bits bits) { return u32(bits >> 32) << 1; }
    static __device__ bool is_moderate(u32 key, u32 low) { return moderate<Scaling>(key, low); }
    static __device__ double factor(u32 field) { return __longlong_as_double(i64(u64(field) << 52)); }
    static __device__ Bits lift(Bits bits, int by) {
        return u64(__double_as_longlong(__longlong_as_double(i64(bits)) * factor(u32(1023 + by))));
    }
    static __device__ Whole whole(Bits bits, double factor) {
        return __double2ll_rn(__longlong_as_double(i64(bits)) * factor);
    }
};

// The bits of a number for Scaling; float16 becomes float32, which has other infinities.
template <typename F> __device__ auto bits_of(typename F::Storage value) {
    if constexpr (sizeof(value) == 2) {
        return F::nonfinite(value & (F::SIGN - 1)) ? u32(Float32::INFINITE) : __float_as_uint(float(F::real(value)));
    } else {
        return value;
    }
}

// The digits of a scaled integer, the lowest first; the last one is signed.
template <typename F> struct Digits {
    static constexpr int COUNT = (F::KEPT + 8) / 8, ALL = COUNT + 1;  // and the magnitude
    static constexpr int PLACES = 2 * COUNT - 1, PARTS = (PLACES + 3) / 4;  // of products of digits; four to a part

    static_assert(COUNT % 4 == 0 || ALL % 4 == 0, "`cut` writes digits in multiples of four");

    // Upper bound on the sum of products at a place, for each number that is added up.
    static constexpr i64 most(int place) {
        i64 sum = 0;
        for (int i = 0; i < COUNT; ++i)
            if (place - i >= 0 && place - i < COUNT)
                sum += i64(i == COUNT - 1 ? 128 : 255) * (place - i == COUNT - 1 ? 128 : 255);
        return sum;
    }
    // Whether the sums at a place and the next one, combined, fit into 32 bits with a carry of 16 bits.
    static constexpr bool narrow(int place, int inner) {
        return inner * (most(place) + 256 * most(place + 1)) < (i64(1) << 31) - (1 << 16);
    }

    // Digits of four integers, each digit of all four in one word; and as their magnitudes the top seven bits, for negative
    // integers those of the magnitude minus one: never too large.
    template <typename Whole> static __device__ void cut(const Whole (&wholes)[4], u32 (&digits)[ALL]) {
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
                digits[place] = __byte_perm(one, other, 0x5410);
                digits[place + 1] = __byte_perm(one, other, 0x7632);
            }
        }
        digits[COUNT] = digits[COUNT - 1] ^ signs(digits[COUNT - 1]);
    }
};

// Combines the sums of products of up to INNER numbers at a place and the next three, and a carry, in units of the first.
template <typename F, int PLACE, int INNER> __device__ i64 gathered(int carry, int a, int b, int c, int d) {
    using D = Digits<F>;
    i64 sum;
    if constexpr (D::narrow(PLACE, INNER)) sum = a + 256 * b + carry;
    else sum = i64(b) * 256 + a + carry;
    if constexpr (D::narrow(PLACE + 2, INNER)) return i64(c + 256 * d) * 65536 + sum;
    return i64(d) * (1 << 24) + (i64(c) * 65536 + sum);
}

// A sum of products, built part by part from the lowest places on and rounded by a conversion. `scale` turns the exponent of a
// line into the factor for that. The result of `round` may be wrong if it is not `sure`, or if an exponent is not moderate.
template <typename F, int INNER> struct Sum {
    static constexpr bool HALF = sizeof(typename F::Storage) == 2;
    static constexpr int TAIL = INNER > 64 ? 8 : 6;  // low bits, represented by one sticky bit
    static_assert(INNER <= 256, "a sum without its TAIL is below 2^62");
    static constexpr bool NARROW = Digits<F>::narrow(4, INNER);
    i64 low;                                   // from place 0 on
    typename WholeOf<!NARROW>::Type high = 0;  // from place 4 on, without `top`
    int top = 0;                               // from place 6 on

    // From the sums of four places, and of the others.
    __device__ void gather(const i64 (&words)[2]) {
        static_assert(!NARROW, "more than 64 products");
        low = words[0], high = words[1];
    }
    template <int PART> __device__ void add(int a, int b, int c, int d) {
        if constexpr (PART == 0) low = gathered<F, 0, INNER>(0, a, b, c, d);
        else if constexpr (NARROW) high = a + 256 * b, top = c;
        else high = gathered<F, 4, INNER>(0, a, b, c, 0);
    }
    static __device__ float scale(int exponent) {
        return HALF ? __int_as_float(exponent) : __int_as_float((exponent - (2 * F::KEPT - TAIL) / 2 + 127) * (1 << 23));
    }

    __device__ typename F::Storage round(float a, float b, bool& sure) const {
        if constexpr (HALF) return exactly(__float_as_int(a) + __float_as_int(b));
        // Without its TAIL, below 2^62; if a bit of that is set, a low bit of the head is set, too.
        constexpr int LAST = (1 << TAIL) - 1;
        const u64 head = u64((low >> TAIL) + i64(high) * (i64(1) << (32 - TAIL))) + (u64(u32(top) << (16 - TAIL)) << 32);
        const float value = float(i64(head | u64(low & LAST)));
        sure &= fabsf(value) >= 4294967296;
        return typename F::Storage(__float_as_uint(value * a * b));
    }

    // The correctly rounded sum for any exponents of both lines.
    __device__ typename F::Storage exactly(int exponents) const {
        const u64 upper = u64((low >> 32) + high + i64(top) * 65536);
        u32 words[3] = {u32(low), u32(upper), u32(upper >> 32)};
        return to_float<F>(words, exponents - 2 * F::KEPT);
    }

    // Whether `round` may not have been sure of this result, from the exponents of its lines.
    static __device__ bool unsure(typename F::Storage result, int exponents) {
        const u32 magnitude = result & (F::SIGN - 1);
        return !HALF && magnitude && magnitude < u32(exponents - 2 * F::KEPT + TAIL + 33 + 127) << 23;
    }
};
template <int INNER> struct Sum<Float64, INNER> {
    static constexpr int OVER = INNER > 128 ? 2 : 0, TAIL = 32 + OVER;  // OVER: bits of `upper` that do not fit in a float64
    static_assert(INNER <= 256, "sums are below 2^118");
    u32 lowest, low;
    i64 upper;

    // From the sums of four places, of the next four, and of the others.
    __device__ void gather(const i64 (&words)[3]) {
        const i64 second = words[1] + (words[0] >> 32);
        lowest = u32(words[0]), low = u32(second), upper = words[2] + (second >> 32);
    }
    template <int PART> __device__ void add(int a, int b, int c, int d) {
        if constexpr (PART == 3) {
            upper += i64(u64(u32(a)) << 32);
        } else {
            const i64 sum = gathered<Float64, 4 * PART, INNER>(PART ? int(upper >> 32) : 0, a, b, c, d);
            if constexpr (PART == 0) lowest = u32(sum);
            if constexpr (PART == 1) low = u32(sum);
            upper = sum;
        }
    }
    // Half of the exponent bits of a power of two; those of both lines add up to a float64.
    static __device__ int scale(int exponent) {
        return (exponent - (2 * Float64::KEPT - TAIL) / 2) * (1 << 20) + 1023 * (1 << 19);
    }

    // The first 85 bits of the sum, the last one sticky: 53 in one float64 and 32 in another.
    __device__ u64 round(int a, int b, bool& sure) const {
        const u32 second = OVER ? __funnelshift_r(low, u32(upper), OVER) : low;
        const u32 beyond = min(lowest | (low & ((1 << OVER) - 1)), 1u);
        const double rest = __longlong_as_double(i64(u64(0x43300000) << 32 | second | beyond)) - 4503599627370496.0;
        const double value = fma(double(upper >> OVER), 4294967296.0, rest);
        sure &= fabs(value) >= 36028797018963968.0;  // 2^55: 55 bits before the sticky one
        return u64(__double_as_longlong(value * __longlong_as_double(i64(u64(u32(a) + u32(b)) << 32))));
    }
    __device__ u64 exactly(int exponents) const {
        u32 words[4] = {lowest, low, u32(upper), u32(u64(upper) >> 32)};
        return to_float<Float64>(words, exponents - 2 * Float64::KEPT);
    }
    static __device__ bool unsure(u64 result, int exponents) {
        const u64 magnitude = result & (Float64::SIGN - 1);
        return magnitude && magnitude < u64(exponents - 2 * Float64::KEPT + TAIL + 56 + 1023) << 52;
    }
};

// Whether the sums of magnitudes alone show that elements are certain. A magnitude is counted one too low if its number is
// negative, and the bound on a line adds one for each nonzero number. Rounding moved no number of a line by more than
// 2^MOVED / 2 units of it (Line); if that is little, the largest possible lines are a good enough bound.
template <typename F> struct Nearness {
    static constexpr int MOVED = F::PRECISION - F::KEPT + BITS < 0 ? 0 : F::PRECISION - F::KEPT + BITS;

    // The figure of an element for `enough`, from its sum of products of magnitudes and both lines' sums of magnitudes.
    static __device__ int share(int total, int sizes, int inner) {
        return MOVED > 0 ? (inner - 1) * total - (sizes << (MOVED + 1)) : total;
    }
    static __device__ bool enough(int least, int inner) {
        if constexpr (MOVED > 0) return least > (inner << (MOVED + 3)) + 2;
        return least > 0 && i64(inner - 1) * least > (inner << (BITS + 2)) + 2;
    }
};
