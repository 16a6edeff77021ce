// Residues of integers modulo small numbers.
#pragma once

#include "matmul/mma.cuh"

// A number is at most eight unsigned bytes: the sum of bytes times their weights modulo a modulus m, minus the bias that
// made all numbers positive. That sum, up to 2^19 in magnitude, is added to a multiple of m and 256 between 2^23 and 2^24,
// where a float32 has no fraction bits; after subtracting the nearest multiple of m, the low eight bits are the residue
// nearest to zero, no less than -128.
template <int BYTES, u64 BIAS> struct Divisors {
    u32 low[MOST_MODULI] = {}, high[MOST_MODULI] = {};  // weights of bytes, between -128 and 127
    u32 start[MOST_MODULI] = {};                        // the bits of the float32 to start from
    float inverse[MOST_MODULI] = {}, offset[MOST_MODULI] = {};

    constexpr Divisors() {
        for (int i = 0; i < MOST_MODULI; ++i) {
            const int modulus = MODULI[i];
            int worth = 1;
            for (int byte = 0; byte < BYTES; ++byte) {
                const u32 centred = u32(2 * worth > modulus ? worth - modulus : worth) & 0xff;
                (byte < 4 ? low : high)[i] |= centred << 8 * (byte % 4);
                worth = worth * 256 % modulus;
            }
            const int multiple = ((1 << 23) + (1 << 19)) / (256 * modulus) + 1;
            start[i] = 0x4b000000 + u32(256 * modulus * multiple - (1 << 23)) - u32(BIAS % u64(modulus));
            // At least 1 / m: errors then make quotients too large, so that a remainder of 128 becomes -127.
            const float nearest = 1.0f / float(modulus);
            inverse[i] = double(nearest) * modulus < 1 ? float(nearest * (1 + 0.7 / (1 << 23))) : nearest;
            offset[i] = MAGIC - float(256 * multiple);
        }
    }
};

// The low byte is a residue of the number.
template <typename F> __device__ u32 residue(u32 low, u32 high, int i) {
    constexpr Divisors<F::BYTES, F::BIAS> table;
    u32 sum = dot_bytes(low, table.low[i], table.start[i]);
    if constexpr (F::BYTES > 4) sum = dot_bytes(high, table.high[i], sum);
    const float quotient = fma(__uint_as_float(sum), table.inverse[i], table.offset[i]) - MAGIC;
    return __float_as_uint(fma(quotient, -float(MODULI[i]), __uint_as_float(sum)));
}
