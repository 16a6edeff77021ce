// Copies of bytes by a lane alone, or by all lanes of a group.
#pragma once

#include "common/types.cuh"

constexpr u32 AT_ONCE = 8, WORDS_AT_ONCE = 4;  // loads, whose latencies overlap; more words would need more registers

// The first `number` bytes, at most so many as `bytes` has.
template <u32 MOST>
inline __device__ void load_bytes(u8 (&bytes)[MOST], const u8* from, u32 number) {
#pragma unroll
    for (u32 k = 0; k < MOST; ++k) {
        if (k < number) bytes[k] = from[k];
    }
}
template <u32 MOST>
inline __device__ void store_bytes(u8* to, const u8 (&bytes)[MOST], u32 number) {
#pragma unroll
    for (u32 k = 0; k < MOST; ++k) {
        if (k < number) to[k] = bytes[k];
    }
}

// By one lane: bytes to places that none of them is in.
inline __device__ void copy_alone(u8* to, const u8* from, u32 number) {
    for (u32 i = 0; i < number; i += AT_ONCE) {
        u8 bytes[AT_ONCE];
        load_bytes(bytes, from + i, number - i);
        store_bytes(to + i, bytes, number - i);
    }
}

// By one lane: twice that; of the first bytes there are few.
inline __device__ void copy_both_alone(u8* to, const u8* from, u32 number, u8* other, const u8* from_other,
                                       u32 of_other) {
    constexpr u32 FEW = 4;
    u8 bytes[FEW], others[AT_ONCE];
    load_bytes(bytes, from, number);
    load_bytes(others, from_other, of_other);
    store_bytes(to, bytes, number);
    store_bytes(other, others, of_other);
    if (number > FEW) copy_alone(to + FEW, from + FEW, number - FEW);
    if (of_other > AT_ONCE) copy_alone(other + AT_ONCE, from_other + AT_ONCE, of_other - AT_ONCE);
}

// By one lane: bytes that repeat those of the period before them.
inline __device__ void repeat_alone(u8* to, u32 period, u32 number) {
    while (number) {
        const u32 some = min(min(period, AT_ONCE), number);
        u8 bytes[AT_ONCE];
        load_bytes(bytes, to - period, some);
        store_bytes(to, bytes, some);
        to += some;
        number -= some;
        if (some == period) period *= 2;  // of what is there now
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
    for (u32 i = lane; i < words; i += WORDS_AT_ONCE * LANES) {
        u32 some[WORDS_AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < WORDS_AT_ONCE; ++k) {
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
        for (u32 k = 0; k < WORDS_AT_ONCE; ++k) {
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
