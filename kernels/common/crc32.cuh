// The checksum of gzip (RFC 1952): CRC-32, of bytes that a group of lanes wrote.
#pragma once

#include "common/types.cuh"

constexpr u32 POLYNOMIAL = 0xedb88320, ONE = 1u << 31;  // of powers of x modulo it, the lowest is the highest bit

inline __device__ u32 times_x(u32 a) { return a >> 1 ^ (a & 1 ? POLYNOMIAL : 0); }

inline __device__ u32 product(u32 a, u32 b) {
    u32 sum = 0;
    for (; a; a <<= 1) {
        if (a & ONE) sum ^= b;
        b = times_x(b);
    }
    return sum;
}

// x to the power of 8 for each of so many bytes.
inline __device__ u32 power(u32 bytes) {
    u32 result = ONE;
    for (u32 square = ONE >> 8; bytes; bytes >>= 1) {
        if (bytes & 1) result = product(result, square);
        square = product(square, square);
    }
    return result;
}

// Each lane takes a part of the bytes, and multiplies its remainder by what stands for those behind it.
template <int LANES>
inline __device__ u32 crc32(const u8* data, u32 size, u32 lane, u32 group) {
    __syncwarp(group);
    const u32 part = size / LANES + 1, begin = min(lane * part, size), end = min(begin + part, size);
    u32 sum = lane ? 0 : ~0u;
    for (u32 i = begin; i < end; ++i) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; ++bit) sum = times_x(sum);
    }
    sum = product(sum, power(size - end));
    for (int apart = LANES / 2; apart; apart /= 2) sum ^= __shfl_xor_sync(group, sum, apart);
    return ~sum;
}
