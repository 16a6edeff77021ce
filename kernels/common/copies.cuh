// Copies of bytes by a lane alone, or by all lanes of a group.
#pragma once

#include "common/types.cuh"

constexpr u32 AT_ONCE = 8;  // loads, whose latencies overlap

// By one lane: bytes to places that none of them is in.
inline __device__ void copy_alone(u8* to, const u8* from, u32 number) {
    for (u32 i = 0; i < number; i += AT_ONCE) {
        u8 bytes[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (k < number - i) bytes[k] = from[i + k];
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (k < number - i) to[i + k] = bytes[k];
        }
    }
}

// By one lane: twice that.
inline __device__ void copy_both_alone(u8* to, const u8* from, u32 number, u8* other, const u8* from_other,
                                       u32 of_other) {
    for (u32 i = 0; i < max(number, of_other); i += AT_ONCE) {
        u8 bytes[AT_ONCE], others[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (i + k < number) bytes[k] = from[i + k];
            if (i + k < of_other) others[k] = from_other[i + k];
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (i + k < number) to[i + k] = bytes[k];
            if (i + k < of_other) other[i + k] = others[k];
        }
    }
}

// By one lane: bytes that repeat those of the period before them.
inline __device__ void repeat_alone(u8* to, u32 period, u32 number) {
    const u8* const from = to - period;
    for (u32 i = 0, place = 0; i < number; i += AT_ONCE) {
        u8 bytes[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (k < number - i) bytes[k] = from[place];
            if (++place == period) place = 0;
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (k < number - i) to[i + k] = bytes[k];
        }
    }
}

// By a group: bytes to places that none of them is in.
template <u32 LANES>
inline __device__ void copy_apart(u8* to, const u8* from, u32 number, u32 lane) {
    constexpr u32 WORD = 4;
    const u32 head = min(u32(0 - reinterpret_cast<u64>(to)) % WORD, number), words = (number - head) / WORD;
    if (lane < head) to[lane] = from[lane];
    to += head;
    from += head;
    const u32 shift = u32(reinterpret_cast<u64>(from) % WORD), rest = number - head - WORD * words;
    const u32* const source = reinterpret_cast<const u32*>(from - shift);
    for (u32 i = lane; i < words; i += AT_ONCE * LANES) {
        u32 some[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            const u32 j = i + k * LANES;
            if (j >= words) continue;
            if (shift && (j == 0 || j + 1 == words)) {  // others of the source's words are not to be read
                some[k] = 0;
                for (u32 byte = 0; byte < WORD; ++byte) some[k] |= u32(from[WORD * j + byte]) << 8 * byte;
            } else {
                some[k] = shift ? __funnelshift_r(source[j], source[j + 1], 8 * shift) : source[j];
            }
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (i + k * LANES < words) reinterpret_cast<u32*>(to)[i + k * LANES] = some[k];
        }
    }
    if (lane < rest) to[WORD * words + lane] = from[WORD * words + lane];
}

// By a group: bytes that repeat those of the period before them.
template <u32 LANES>
inline __device__ void repeat_apart(u8* to, u32 period, u32 number, u32 lane, u32 group) {
    while (number) {
        const u32 some = min(period, number);
        __syncwarp(group);
        copy_apart<LANES>(to, to - period, some, lane);
        to += some;
        number -= some;
        period *= 2;  // of what is there now
    }
}

// By a group: bytes to a place before theirs, which they may overlap.
template <u32 LANES>
inline __device__ void move_down(u8* to, const u8* from, u32 number, u32 lane, u32 group) {
    for (u32 i = lane; i - lane < number; i += AT_ONCE * LANES) {
        u8 bytes[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (i + k * LANES < number) bytes[k] = from[i + k * LANES];
        }
        __syncwarp(group);
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (i + k * LANES < number) to[i + k * LANES] = bytes[k];
        }
    }
}
