// CRC-32 of bytes that a group of lanes reads: gzip's (RFC 1952), and CRC-32C (RFC 3720, 12.1); and how they are stored.
#pragma once

#include "common/types.cuh"

// Of powers of x modulo a polynomial, the lowest is the highest bit.
constexpr u32 ONE = 1u << 31, CRC32 = 0xedb88320, CRC32C = 0x82f63b78;

template <u32 POLYNOMIAL>
inline __device__ u32 times_x(u32 a) {
    return a >> 1 ^ (a & 1 ? POLYNOMIAL : 0);
}

template <u32 POLYNOMIAL>
inline __device__ u32 product(u32 a, u32 b) {
    u32 sum = 0;
    for (; a; a <<= 1) {
        if (a & ONE) sum ^= b;
        b = times_x<POLYNOMIAL>(b);
    }
    return sum;
}

// x to the power of 8 for each of so many bytes.
template <u32 POLYNOMIAL>
inline __device__ u32 power(u32 bytes) {
    u32 result = ONE;
    for (u32 square = ONE >> 8; bytes; bytes >>= 1) {
        if (bytes & 1) result = product<POLYNOMIAL>(result, square);
        square = product<POLYNOMIAL>(square, square);
    }
    return result;
}

// Each lane takes a part of the bytes, and multiplies its remainder by what stands for those behind it.
template <u32 POLYNOMIAL, int LANES>
inline __device__ u32 crc32(const u8* data, u32 size, u32 lane, u32 group) {
    const u32 part = size / LANES + 1, begin = min(lane * part, size), end = min(begin + part, size);
    u32 sum = lane ? 0 : ~0u;
    for (u32 i = begin; i < end; ++i) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; ++bit) sum = times_x<POLYNOMIAL>(sum);
    }
    sum = product<POLYNOMIAL>(sum, power<POLYNOMIAL>(size - end));
    for (int apart = LANES / 2; apart; apart /= 2) sum ^= __shfl_xor_sync(group, sum, apart);
    return ~sum;
}

// What four bytes store.
inline __device__ u32 little_endian(const u8* __restrict__ from) {
    return u32(from[3]) << 24 | u32(from[2]) << 16 | u32(from[1]) << 8 | from[0];
}
