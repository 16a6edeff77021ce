// Keys of samples, as keys.py describes them.
#pragma once

#include "common/types.cuh"

// Of integers whose least value is `LEAST` below zero, as unsigned numbers.
template <typename U, U LEAST>
struct IntegerKey {
    using type = U;
    static __device__ U of(U bits) { return U(bits + LEAST); }
};

// INFINITE: the bits of infinity. Negative numbers, whose bits ascend with their size, are mirrored at zero, of which there
// is one key.
template <typename U, typename Signed, U INFINITE>
struct FloatKey {
    using type = U;
    static __device__ U of(U bits) {
        constexpr U HALF = U(U(1) << (8 * sizeof(U) - 1));
        const U minus = U(Signed(bits) >> (8 * sizeof(U) - 1));  // all bits set, or none
        const U key = U((bits ^ (minus & (HALF - 1))) - minus + HALF);
        return U(bits << 1) > U(INFINITE << 1) ? U(~U(0)) : key;
    }
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
