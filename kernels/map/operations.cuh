// Operations on two or three elements, with the bits that NumPy gives.
//
// Integers wrap. Floating-point results are rounded once per operation: multiply-add twice, as in NumPy's a * b + c.
// Minimum and maximum give NaN where an operand is NaN, and -0.0 counts as less than 0.0. Where NumPy has a NaN so has
// the result; machines differ in its sign and payload, so the kernel of the job always gives the same one.

#pragma once

#include "common/types.cuh"

// The type in which arithmetic is done: unsigned for integers, because signed overflow is undefined.
template <typename T> struct Ring { using type = T; };
template <> struct Ring<i8> { using type = u32; };
template <> struct Ring<u8> { using type = u32; };
template <> struct Ring<i16> { using type = u32; };
template <> struct Ring<u16> { using type = u32; };  // integer promotion would make it int
template <> struct Ring<int> { using type = u32; };
template <> struct Ring<i64> { using type = u64; };

struct Add {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        using R = typename Ring<T>::type;
        return T(R(a) + R(b));
    }
};
struct Subtract {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        using R = typename Ring<T>::type;
        return T(R(a) - R(b));
    }
};
struct Multiply {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        using R = typename Ring<T>::type;
        return T(R(a) * R(b));
    }
};
struct MultiplyAdd {
    static constexpr int OPERANDS = 3;
    template <typename T> static __device__ T of(T a, T b, T c) { return Add::of(Multiply::of(a, b, c), c, c); }
};

template <typename T> __device__ bool is_negative(T) { return false; }  // of two equal integers either will do
__device__ bool is_negative(float x) { return __float_as_int(x) < 0; }  // also of -0.0
__device__ bool is_negative(double x) { return __double_as_longlong(x) < 0; }

template <typename T> __device__ T one_nan(T x) { return x; }
__device__ float one_nan(float x) { return x != x ? __int_as_float(0x7fc00000) : x; }
__device__ double one_nan(double x) { return x != x ? __longlong_as_double(0x7ff8000000000000) : x; }

// The first operand where it is less, where it is NaN, and where both are zero and it is negative. `|` and `&` evaluate
// both sides, without a branch.
struct Minimum {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        return (a < b) | ((a == b) & is_negative(a)) | (a != a) ? a : b;
    }
};
struct Maximum {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        return (a > b) | ((a == b) & !is_negative(a)) | (a != a) ? a : b;
    }
};
