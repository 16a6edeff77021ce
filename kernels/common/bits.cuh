// Bits of a chunk in the DEFLATE format.
#pragma once

#include "common/types.cuh"

// The next bits of a chunk, from the least significant one of each byte. Zeros stand for what is behind it, and may stand
// for its last three bytes, which are of a checksum.
struct Bits {
    const u8* __restrict__ from;
    u32 size, at, number, ahead;  // bytes; those that were taken or are held; bits that are held; the next four bytes
    u64 held;

    __device__ u32 word(u32 place) const {
        if (place + 4 > size) return 0;
        return from[place] | u32(from[place + 1]) << 8 | u32(from[place + 2]) << 16 | u32(from[place + 3]) << 24;
    }
    __device__ void begin(u32 place) {
        at = place;
        number = 0;
        held = 0;
        ahead = word(at);
    }
    // Holds more than 32 bits.
    __device__ void fill() {
        if (number > 32) return;
        held |= u64(ahead) << number;
        number += 32;
        at += 4;
        ahead = word(at);
    }
    __device__ u32 next(u32 count) const { return u32(held) & ((1u << count) - 1); }
    __device__ u32 take(u32 count) {
        const u32 value = next(count);
        drop(count);
        return value;
    }
    __device__ void drop(u32 count) {
        held >>= count;
        number -= count;
    }
    __device__ u64 used() const { return 8ull * at - number; }
    __device__ u32 byte() const { return u32((used() + 7) / 8); }  // that begins behind what was used
    __device__ bool beyond() const { return used() > 8ull * size; }
};
