// What conditions are made of: operations as NumPy defines them for each dtype. Calls of these, one for each part of a
// condition, are what generated.py writes.
//
// float16 is computed as NumPy computes it: as float32, rounded to half precision after each operation.
#pragma once

#include "common/types.cuh"

// What values of a dtype are computed in.
template <typename T> struct Computed { using type = T; };
template <> struct Computed<float16> { using type = float; };
template <typename T> using value = typename Computed<T>::type;

template <typename T> constexpr bool IS_FLOAT = false;
template <> constexpr bool IS_FLOAT<float16> = true;
template <> constexpr bool IS_FLOAT<float> = true;
template <> constexpr bool IS_FLOAT<double> = true;

// Integers are computed without a sign, so that they wrap, in as many bits as they have or more.
template <int BYTES> struct Wrapping { using type = u32; };
template <> struct Wrapping<8> { using type = u64; };

template <typename T> inline __device__ T number(T x) { return x; }
inline __device__ float number(float16 x) { return widen(x); }

// The nearest number of half precision, ties to even.
inline __device__ float rounded_to_half(float x) {
#if ON_GPU
    asm("{ .reg .b16 half; cvt.rn.f16.f32 half, %1; cvt.f32.f16 %0, half; }" : "=f"(x) : "f"(x));
    return x;
#else
    const u32 bits = __float_as_uint(x);
    const float size = fabsf(x);
    if (!(size < 65520.0f)) return size >= 65520.0f ? __uint_as_float((bits & 0x80000000u) | 0x7f800000u) : x;
    // 2^23 units in the last place of half precision, whose least exponent is -14: a sum has no digits below its unit.
    const float units = max(__uint_as_float(bits & 0x7f800000u), 6.103515625e-5f) * 8192.0f;
    const u32 rounded = __float_as_uint((size + units) - units);
    return __uint_as_float((bits & 0x80000000u) | rounded);
#endif
}

template <typename T>
inline __device__ value<T> rounded(value<T> x) {
    if constexpr (sizeof(T) == 2) return rounded_to_half(x);
    else return x;
}

// A value as one of dtype T, to which NumPy promotes it. To half precision that is only done with what it can hold.
template <typename T, typename A> inline __device__ value<T> to(A x) { return value<T>(x); }

// The last bits of a word. Not a conversion alone: NVIDIA's compiler would compute in 16 bits, and its assembler (13.0)
// compares -x of the least number as if it were positive.
template <typename T, typename Word>
inline __device__ T wrapped(Word word) {
#if ON_GPU
    if constexpr (sizeof(T) == 2 && T(-1) < T(0)) asm("bfe.s32 %0, %1, 0, 16;" : "=r"(word) : "r"(word));
#endif
    return T(word);
}

#define ARITHMETIC(name, sign)                                            \
    template <typename T>                                                 \
    inline __device__ value<T> name(value<T> a, value<T> b) {             \
        if constexpr (IS_FLOAT<T>) {                                      \
            return rounded<T>(a sign b);                                  \
        } else {                                                          \
            using Word = typename Wrapping<sizeof(T)>::type;              \
            return wrapped<T>(Word(Word(a) sign Word(b)));                \
        }                                                                 \
    }
ARITHMETIC(add, +)
ARITHMETIC(subtract, -)
ARITHMETIC(multiply, *)

template <typename T> inline __device__ value<T> divide(value<T> a, value<T> b) { return rounded<T>(a / b); }

template <typename T>
inline __device__ value<T> negative(value<T> x) {
    if constexpr (IS_FLOAT<T>) return -x;
    else return subtract<T>(T(0), x);
}

// Without the instructions for it: after `abs.f32` NVIDIA's assembler holds |x| >= 0 to be true for NaN as well (13.0 to
// 13.5), and `abs.s16` of the least number is not defined.
template <typename T>
inline __device__ value<T> absolute(value<T> x) {
#if ON_GPU
    if constexpr (IS_FLOAT<T> && sizeof(T) == 8) {
        i64 size;
        asm("and.b64 %0, %1, 0x7fffffffffffffff;" : "=l"(size) : "l"(__double_as_longlong(x)));
        return __longlong_as_double(size);
    } else if constexpr (IS_FLOAT<T>) {
        u32 size;
        asm("and.b32 %0, %1, 0x7fffffff;" : "=r"(size) : "r"(__float_as_uint(x)));
        return __uint_as_float(size);
    } else if constexpr (sizeof(T) < 8) {
        int minus;
        asm("neg.s32 %0, %1;" : "=r"(minus) : "r"(int(x)));
        return x < T(1) ? T(minus) : x;
    } else {
        i64 minus;
        asm("neg.s64 %0, %1;" : "=l"(minus) : "l"(i64(x)));
        return x < T(1) ? T(minus) : x;
    }
#else
    if constexpr (IS_FLOAT<T>) return sizeof(T) == 8 ? fabs(x) : fabsf(x);
    else return x < T(1) ? subtract<T>(T(0), x) : x;
#endif
}

template <typename T>
inline __device__ value<T> square_root(value<T> x) {
#if ON_GPU
    if constexpr (sizeof(T) == 8) return __dsqrt_rn(x);
    else return rounded<T>(__fsqrt_rn(x));
#else
    if constexpr (sizeof(T) == 8) return __builtin_sqrt(x);
    else return rounded<T>(__builtin_sqrtf(x));
#endif
}

// Of one dtype, or of int64 and uint64, which compare as integers do: what is negative is less.
#define COMPARISON(name, sign)                                                                              \
    template <typename T> inline __device__ bool name(T a, T b) { return a sign b; }                        \
    inline __device__ bool name(i64 a, u64 b) { return a < 0 ? -1 sign 0 : u64(a) sign b; }                 \
    inline __device__ bool name(u64 a, i64 b) { return b < 0 ? 0 sign -1 : a sign u64(b); }
COMPARISON(less, <)
COMPARISON(less_equal, <=)
COMPARISON(equal, ==)
COMPARISON(not_equal, !=)
COMPARISON(greater_equal, >=)
COMPARISON(greater, >)
