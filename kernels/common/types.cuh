// Integers by their size, and half precision.
#pragma once

#include "common/arch.cuh"

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// IEEE binary16 by its bits.
struct float16 {
    u16 bits;
};

// The same number, exactly.
inline __device__ float widen(float16 x) {
#if ON_GPU
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
#else
    const u32 magnitude = (x.bits & 0x7fffu) << 13;
    // Moving the exponent by a multiplication keeps subnormals exact; 2^112 is the difference of the biases.
    float value = __uint_as_float(magnitude) * 5.192296858534828e33f;
    if (magnitude >= 0x0f800000u) value = __uint_as_float(magnitude | 0x7f800000u);  // infinity and NaN
    return (x.bits & 0x8000u) ? -value : value;
#endif
}
