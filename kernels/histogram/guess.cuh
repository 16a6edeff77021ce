// Guesses of a position from a sample: a linear map, rounded down.
//
// A guess never decreases from a sample to the next larger one, however its arithmetic rounds. So what the host finds for
// the samples on both sides of each threshold (guess.py, in the same arithmetic) holds for all between.
#pragma once

#include "common/stream.cuh"

// The type in which samples are compared: their own, except that 16-bit samples are widened exactly.
template <typename T>
struct Key {
    using type = T;
    static __device__ T of(T x) { return x; }
};
template <>
struct Key<i16> {
    using type = int;
    static __device__ int of(i16 x) { return x; }
};
template <>
struct Key<u16> {
    using type = int;
    static __device__ int of(u16 x) { return x; }
};
template <>
struct Key<float16> {
    using type = float;
    static __device__ float of(float16 x) { return widen(x); }
};

template <typename K>
struct Unsigned {
    using type = u32;
};
template <>
struct Unsigned<i64> {
    using type = u64;
};
template <>
struct Unsigned<u64> {
    using type = u64;
};

template <typename K>
__device__ typename Unsigned<K>::type distance(K x, K first) {
    using U = typename Unsigned<K>::type;
    return U(x) - U(first);
}

// The bits of 2^23. Floats are one apart there, so the low bits of a sum rounded down are its whole part.
constexpr int ORIGIN = 0x4b000000;
constexpr float FIRST_WHOLE = 8388608.0f;

// Their order is that of the numbers, if none is negative; those of negative numbers are smaller, those of NaN greater.
inline __device__ int bits_of(float sum) {
#if ON_GPU
    return __float_as_int(sum);  // GPU arithmetic returns every NaN as 0x7fffffff
#else
    return sum == sum ? __float_as_int(sum) : 0x7fffffff;
#endif
}

// ORIGIN plus the position: less for samples far before `start`, more for those far beyond and NaN.
inline __device__ int position_of(float far, float scale) { return bits_of(__fmaf_rd(far, scale, FIRST_WHOLE)); }
inline __device__ int position_of(double far, double scale) {
    return bits_of(__fadd_rd(__double2float_rd(far * scale), FIRST_WHOLE));
}

// 32-bit integers: by their distance, in float. Those before `start` are at 0.
template <typename K>
struct Guess {
    using Real = float;
    K start;
    Real scale;
    __device__ int operator()(K x) const { return position_of(Real(distance(max(x, start), start)), scale); }
};
template <>
struct Guess<float> {
    using Real = float;
    float start, scale;
    __device__ int operator()(float x) const { return position_of(x - start, scale); }
};
template <>
struct Guess<double> {
    using Real = double;
    double start, scale;
    __device__ int operator()(double x) const { return position_of(x - start, scale); }
};
template <typename K>
struct WideGuess {
    using Real = double;
    K start;
    Real scale;
    __device__ int operator()(K x) const { return position_of(Real(distance(max(x, start), start)), scale); }
};
template <>
struct Guess<i64> : WideGuess<i64> {};
template <>
struct Guess<u64> : WideGuess<u64> {};

// What the cells of a lookup table divide: the sample's value, or a float's rank among all floats, which separates
// thresholds of every magnitude.
template <typename K>
struct ByValue {
    using type = K;
    static __device__ K of(K x) { return x; }
};
template <typename K>
struct ByBits;
template <>
struct ByBits<float> {
    using type = u32;
    static __device__ u32 of(float x) {
        const int bits = bits_of(x + 0.0f);  // -0.0 becomes 0.0
        return u32(bits ^ (bits >> 31 | int(0x80000000)));
    }
};
template <>
struct ByBits<double> {
    using type = u64;
    static __device__ u64 of(double x) {
        const i64 bits = x == x ? __double_as_longlong(x + 0.0) : 0x7fffffffffffffff;  // NaN keeps its sign
        return u64(bits ^ (bits >> 63 | i64(0x8000000000000000)));
    }
};
