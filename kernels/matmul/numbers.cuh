// Formats of numbers, their scaled integers and what rounding moved, and arithmetic modulo small numbers.
#pragma once

#include "common/types.cuh"

// formats.py reads these constants. Moduli are pairwise coprime.
constexpr int MODULI[] = {256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223,
                          217, 211, 199, 197, 193, 191, 181, 179, 173, 167};
constexpr int BITS = 7, LOST = 512, HALF_WAY = 497;
constexpr int KEPT_16 = 31, KEPT_32 = 31, KEPT_64 = 55;  // of Float16, Float32, Float64
constexpr int MOST_MODULI = sizeof(MODULI) / sizeof(MODULI[0]);

__device__ inline double power_of_two(int exponent) { return __longlong_as_double(i64(exponent + 1023) << 52); }

template <bool LONG> struct WholeOf { using Type = int; };
template <> struct WholeOf<true> { using Type = i64; };

// A float64 of this magnitude has no fraction bits: adding it rounds to the nearest integer, in the low bits of the sum.
constexpr double ROUND = 6755399441055744;
__device__ inline int last_word(double sum) { return int(u32(u64(__double_as_longlong(sum)))); }
__device__ inline int first_word(double value) { return int(u32(u64(__double_as_longlong(value)) >> 32)); }

// A binary format, as in formats.py. KEPT: bits that the largest number of a row or column is rounded to.
template <typename Bits, typename Large_, int PRECISION_, int LEAST_, int KEPT_> struct Float {
    using Storage = Bits;
    using Large = Large_;  // a magnitude, of a type that atomics support
    using Whole = typename WholeOf<(KEPT_ > 31)>::Type;
    static constexpr int PRECISION = PRECISION_, LEAST = LEAST_, KEPT = KEPT_, TOP = 3 - PRECISION - LEAST;
    static constexpr int BYTES = (KEPT + 8) / 8;
    static constexpr u64 BIAS = u64(1) << KEPT;
    static constexpr bool SCALED = true;
    static constexpr u64 SIGN = u64(1) << (8 * sizeof(Bits) - 1), FRACTION = (u64(1) << (PRECISION - 1)) - 1;
    static constexpr u64 INFINITE = SIGN - 1 - FRACTION, NOT_A_NUMBER = INFINITE + (FRACTION + 1) / 2;

    // Whether a magnitude is infinity or NaN.
    static __device__ bool nonfinite(u64 magnitude) { return magnitude >= INFINITE; }

    // The exponent e with 2^(e-1) <= magnitude < 2^e; 0 for zero.
    static __device__ int exponent(u64 magnitude) {
        const int field = int(magnitude >> (PRECISION - 1));
        if (field) return field - 1 + LEAST + PRECISION;
        return magnitude ? 64 - __clzll(i64(magnitude)) + LEAST : 0;
    }

    // Factors that scale the numbers of a line, applied one after the other: together 2^(KEPT - exponent).
    struct Scale {
        double first, second;
        __device__ explicit Scale(int exponent)
            : first(power_of_two((KEPT - exponent) / 2)),
              second(power_of_two(KEPT - exponent - (KEPT - exponent) / 2)) {}
    };

    // A number scaled and rounded to an integer, ties to even; `moved` is the high word of the rounding error, and zero only
    // if there is none. Numbers so small that scaling itself rounds them become zero; they moved by less than LOST can tell.
    static __device__ Whole whole(Storage bits, const Scale& scale, int& moved) {
        const double scaled = real(bits) * scale.first * scale.second;
        double rest = scaled;
        Whole upper = 0;
        if constexpr (KEPT > 31) {
            const double high = scaled * power_of_two(-28) + ROUND;
            rest = scaled - (high - ROUND) * power_of_two(28);
            upper = Whole(last_word(high)) * (1 << 28);
        }
        const double low = rest + ROUND;
        const Whole whole = upper + last_word(low);
        moved = first_word(rest - (low - ROUND)) & 0x7fffffff;
        if (whole == 0 && bits & (SIGN - 1)) moved = max(moved, 1);
        return whole;
    }
    static __device__ u64 biased(Whole whole) { return u64(i64(whole)) + BIAS; }

    // From the largest such word in a line: the least e with an error below 2^e, in units of the line (certificate.cuh), at
    // least 1 - LOST, plus LOST; zero where nothing moved.
    static __device__ int lost(int moved) { return moved ? max((moved >> 20) - 1022 - KEPT + BITS, 1 - LOST) + LOST : 0; }

    // The top BITS of KEPT bits of such an integer.
    static __device__ u32 magnitude(Whole whole) {
        if constexpr (KEPT > 31) return u32(u64(whole < 0 ? -whole : whole) >> (KEPT - BITS));
        else return u32(whole < 0 ? 0 - u32(whole) : u32(whole)) >> (KEPT - BITS);
    }

    // A finite number as float64, exactly.
    static __device__ double real(Storage bits) {
        if constexpr (sizeof(Storage) == 8) {
            return __longlong_as_double(i64(bits));
        } else if constexpr (sizeof(Storage) == 4) {
            return double(__uint_as_float(bits));
        } else {
            const u64 magnitude = bits & (SIGN - 1);
            const int field = int(magnitude >> (PRECISION - 1));
            const double significand = double(i64(field ? (magnitude & FRACTION) + FRACTION + 1 : magnitude));
            const double value = significand * power_of_two((field ? field - 1 : 0) + LEAST);
            return bits & SIGN ? -value : value;
        }
    }
};
using Float16 = Float<u16, u32, 11, -24, KEPT_16>;
using Float32 = Float<u32, u32, 24, -149, KEPT_32>;
using Float64 = Float<u64, u64, 53, -1074, KEPT_64>;

template <typename T> struct Integer {
    using Storage = T;
    using Large = u32;  // there are no scales
    using Whole = T;
    static constexpr bool SCALED = false;
    static constexpr int BYTES = sizeof(T);
    static __device__ int exponent(u64) { return 0; }
    static constexpr u64 BIAS = T(-1) < T(0) ? u64(1) << (8 * BYTES - 1) : 0;
    static __device__ u64 biased(T value) {
        const u64 bits = u64(i64(value)) + BIAS;
        return BYTES == 8 ? bits : bits & ((u64(1) << (8 * BYTES % 64)) - 1);
    }
};

// A float32 of this magnitude has no fraction bits: adding it rounds to the nearest integer, in the low bits of the sum.
constexpr float MAGIC = 12582912;

// A sum of products of residues, below 2^28, modulo a modulus; not negative.
__device__ inline u32 reduced(int sum, int modulus, float inverse) {
    const int quotient = int(__float_as_uint(fma(float(sum), inverse, MAGIC)) - __float_as_uint(MAGIC));
    const u32 rest = u32(sum - quotient * modulus);
    return min(rest, rest + u32(modulus));  // a negative rest is a large u32
}

// Saturates.
__device__ inline u32 limited_sum(u32 a, u32 b) { return a + b < a ? ~u32(0) : a + b; }
