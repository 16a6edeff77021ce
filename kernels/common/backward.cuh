// Streams of bits that are read from their end, as Zstandard has them (RFC 8878, 4.1).
#pragma once

#include "common/types.cuh"

// Bits of a stream, from its last one on; a one that begins it is no bit. Those behind its first one mean nothing.
struct Backward {
    const u32* __restrict__ words;  // the first one has the first byte of the stream, and perhaps bytes before it
    int highest;                    // the word that has the last byte
    u32 last;                       // this word, without what is behind the stream
    int at, bottom;                 // bits of words that were not taken, and of those before the stream

    // False if there is no bit that begins the stream, before which there are 3 bytes or more.
    __device__ bool begin(const u8* __restrict__ stream, u32 size) {
        if (size == 0 || stream[size - 1] == 0) return false;
        const u32 before = u32(reinterpret_cast<u64>(stream) % 4), all = before + size;
        words = reinterpret_cast<const u32*>(stream - before);
        highest = int((all - 1) / 4);
        last = 0;
        for (u32 k = all; k > max(before, 4 * u32(highest)); --k) last = last << 8 | stream[k - 1 - before];
        if (highest == 0) last <<= 8 * before;
        at = int(8 * (all - 1)) + 31 - __clz(u32(stream[size - 1]));
        bottom = int(8 * before);
        return true;
    }
    __device__ u32 word(int k) const { return k == highest ? last : k < 0 ? 0 : words[k]; }
    // The next 32 bits.
    __device__ u32 top() const { return __funnelshift_r(word((at >> 5) - 1), word(at >> 5), u32(at)); }
    __device__ u32 take(u32 count) {
        const u32 value = top() >> 1 >> (31 - count);
        at -= int(count);
        return value;
    }
};
