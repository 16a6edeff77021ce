// XXH64 with a seed of 0 (Y. Collet, xxHash specification 0.1.1) of bytes that a group of lanes wrote.
#pragma once

#include "common/types.cuh"

constexpr u64 PRIMES[5] = {0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9, 0x85ebca77c2b2ae63, 0x27d4eb2f165667c5};

inline __device__ u64 turned(u64 x, int bits) { return x << bits | x >> (64 - bits); }
inline __device__ u64 mixed(u64 sum, u64 word) { return turned(sum + word * PRIMES[1], 31) * PRIMES[0]; }

// What the first `count` of these bytes store, the lowest one first.
inline __device__ u64 stored_in(const u8* from, u32 count) {
    u64 word = 0;
    for (u32 k = 0; k < count; ++k) word |= u64(from[k]) << 8 * k;
    return word;
}

// Four lanes take words in turn.
inline __device__ u64 xxhash64(const u8* data, u32 size, u32 lane, u32 group) {
    constexpr u32 WORD = 8, WORDS = 4;
    const u32 turn = lane % WORDS;
    u64 sum = turn == 0 ? PRIMES[0] + PRIMES[1] : turn == 1 ? PRIMES[1] : turn == 2 ? 0 : 0 - PRIMES[0];
    u32 at = 0;
    __syncwarp(group);
    for (; at + WORD * WORDS <= size; at += WORD * WORDS) sum = mixed(sum, stored_in(data + at + WORD * turn, WORD));
    u64 hash = 0;
    for (u32 k = 0; k < WORDS; ++k) hash += turned(__shfl_sync(group, sum, int(k), WORDS), k == 0 ? 1 : k == 1 ? 7 : k == 2 ? 12 : 18);
    for (u32 k = 0; k < WORDS; ++k) hash = (hash ^ mixed(0, __shfl_sync(group, sum, int(k), WORDS))) * PRIMES[0] + PRIMES[3];
    if (size < WORD * WORDS) hash = PRIMES[4];
    hash += size;
    for (; at + WORD <= size; at += WORD) hash = turned(hash ^ mixed(0, stored_in(data + at, WORD)), 27) * PRIMES[0] + PRIMES[3];
    if (at + 4 <= size) {
        hash = turned(hash ^ stored_in(data + at, 4) * PRIMES[0], 23) * PRIMES[1] + PRIMES[2];
        at += 4;
    }
    for (; at < size; ++at) hash = turned(hash ^ data[at] * PRIMES[4], 11) * PRIMES[0];
    hash = (hash ^ hash >> 33) * PRIMES[1];
    hash = (hash ^ hash >> 29) * PRIMES[2];
    return hash ^ hash >> 32;
}
