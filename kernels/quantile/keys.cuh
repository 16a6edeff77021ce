// Keys of samples, as keys.py describes them, and what is cheaper to count by: bits that ascend or descend with the keys.
#pragma once

#include "common/types.cuh"

// Kinds of samples; U: their bits.
//
//   of       the key
//   upper    the bits by whose upper 16, or by all of narrower samples, a first pass counts
//   slot     to which slot of the keys belong samples with these upper bits; `shift`: how many lower ones there are
//   plain    bits in whose order, or against it, are the keys of samples of one sign
//   bits     those of the sample of a key: of both zeros 0.0
//   FIRST, LAST   the least and the greatest key of a number

// Integers whose least value is `LEAST` below zero: keys are unsigned numbers.
template <typename U, U LEAST>
struct IntegerKey {
    using type = U;
    static __device__ U of(U bits) { return U(bits + LEAST); }
    static __device__ U upper(U bits) { return bits; }
    static __device__ u32 slot(u32 upper, int shift) { return upper ^ u32(LEAST >> shift); }
    static __device__ U plain(U bits) { return bits; }
    static __device__ U bits(U key) { return U(key - LEAST); }
    static constexpr U FIRST = 0, LAST = U(~U(0));
};

// The float of these bits, with 0.0 for -0.0, and a quiet NaN for NaN.
inline __device__ u32 without_minus_zero(u32 bits) { return __float_as_uint(__uint_as_float(bits) + 0.0f); }
inline __device__ u64 without_minus_zero(u64 bits) {
    return u64(__double_as_longlong(__longlong_as_double(i64(bits)) + 0.0));
}
inline __device__ u16 without_minus_zero(u16 bits) { return bits; }

// The same, and finite negative numbers one step towards zero: less than any difference is added, the sum rounded down in
// size.
#if ON_GPU
inline __device__ u32 towards_zero(u32 bits) {
    const float least = __uint_as_float(1u);
    return __float_as_uint(__fmaf_rz(least, least, __uint_as_float(bits)));
}
inline __device__ u64 towards_zero(u64 bits) {
    const double least = __longlong_as_double(1);
    return u64(__double_as_longlong(__fma_rz(least, least, __longlong_as_double(i64(bits)))));
}
#else
template <typename U>
U towards_zero(U bits) {
    const U plain = without_minus_zero(bits);
    constexpr U MINUS_INFINITY = sizeof(U) == 4 ? U(0xff800000u) : U(0xfff0000000000000ull);
    return plain > U(~U(0)) / 2 && plain < MINUS_INFINITY ? U(plain - 1) : plain;
}
#endif
inline __device__ u16 towards_zero(u16 bits) { return bits; }

// INFINITE: the bits of infinity. Negative numbers, whose bits ascend with their size, are mirrored at zero, of which there
// is one key.
template <typename U, typename Signed, U INFINITE>
struct FloatKey {
    using type = U;
    static constexpr U HALF = U(U(1) << (8 * sizeof(U) - 1));

    static __device__ U of(U bits) {
        const U minus = U(Signed(bits) >> (8 * sizeof(U) - 1));  // all bits set, or none
        const U key = U((bits ^ (minus & (HALF - 1))) - minus + HALF);
        return U(bits << 1) > U(INFINITE << 1) ? U(~U(0)) : key;
    }
    // A negative number whose lower bits are all zero is the last of its slot, not the first. One step towards zero puts that
    // right, by one instruction of a unit that has nothing else to do.
    static __device__ U upper(U bits) { return towards_zero(bits); }
    static __device__ u32 slot(u32 upper, int shift) {
        if (sizeof(U) == 2) return of(U(upper));
        constexpr u32 INFINITY_AT = u32(INFINITE >> (8 * sizeof(U) - 16));
        const u32 size = upper & 0x7fff;
        if (size > INFINITY_AT) return 0xffff;  // NaN
        return upper & 0x8000 ? 0x7fff - min(size, INFINITY_AT - 1) : 0x8000 + size;  // -infinity has not moved
    }
    static __device__ U plain(U bits) { return without_minus_zero(bits); }
    static __device__ U bits(U key) { return key < HALF ? U(HALF | (HALF - key)) : U(key - HALF); }
    static constexpr U FIRST = U(HALF - INFINITE), LAST = U(HALF + INFINITE);
};

template <typename T>
struct Key;
template <>
struct Key<i8> : IntegerKey<u8, 0x80> {};
template <>
struct Key<u8> : IntegerKey<u8, 0> {};
template <>
struct Key<i16> : IntegerKey<u16, 0x8000> {};
template <>
struct Key<u16> : IntegerKey<u16, 0> {};
template <>
struct Key<int> : IntegerKey<u32, 0x80000000u> {};
template <>
struct Key<u32> : IntegerKey<u32, 0> {};
template <>
struct Key<i64> : IntegerKey<u64, 0x8000000000000000ull> {};
template <>
struct Key<u64> : IntegerKey<u64, 0> {};
template <>
struct Key<float16> : FloatKey<u16, i16, 0x7c00> {};
template <>
struct Key<float> : FloatKey<u32, int, 0x7f800000u> {};
template <>
struct Key<double> : FloatKey<u64, i64, 0x7ff0000000000000ull> {};
