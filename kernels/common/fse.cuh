// Finite state entropy (RFC 8878, 4.1): codes whose states tell what comes next.
#pragma once

#include "common/backward.cuh"

// A code of 1 << log states, each `x << 6 | symbol`, of which x tells what states follow.
struct Fse {
    const u16* states;
    u32 log;

    // Of what is behind a state: how many bits tell, and the first one.
    __device__ u32 more(u32 state) const { return log - (31 - __clz(state >> 6)); }
    __device__ u32 first(u32 state, u32 more) const { return (state >> 6 << more) - (1u << log); }
};

// Reads how often symbols are, of 1 << log states; -1: less than once. The bytes that this takes, or 0 if it is wrong.
inline __device__ u32 read_shares(i16* shares, u32& symbols, u32& log, const u8* __restrict__ from, u32 size,
                                  u32 most_symbols, u32 most_log, u32 lane) {
    u32 place = 0;  // in bits
    const auto next = [&](u32 count) {
        const u32 first = place / 8;
        u32 value = 0;
#pragma unroll
        for (u32 k = 0; k < 3; ++k) value |= u32(first + k < size ? from[first + k] : 0) << 8 * k;
        return value >> place % 8 & ((1u << count) - 1);
    };
    log = next(4) + 5;
    place = 4;
    if (log > most_log) return 0;
    int left = 1 << log;
    symbols = 0;
    while (left) {
        if (symbols == most_symbols) return 0;
        const u32 bits = 32 - __clz(u32(left) + 1), low = (1u << (bits - 1)) - 1, few = (1u << bits) - 2 - u32(left);
        u32 value = next(bits);
        if ((value & low) < few) {
            value &= low;
            place += bits - 1;
        } else {
            if (value > low) value -= few;
            place += bits;
        }
        const int share = int(value) - 1;
        left -= share < 0 ? 1 : share;
        if (lane == 0) shares[symbols] = i16(share);
        ++symbols;
        for (u32 none = share == 0 ? 3 : 0; none == 3;) {
            none = next(2);
            place += 2;
            if (none > most_symbols - symbols) return 0;
            for (u32 k = 0; k < none; ++k) {
                if (lane == 0) shares[symbols] = 0;
                ++symbols;
            }
        }
    }
    return place > 8 * size ? 0 : (place + 7) / 8;
}

// Makes the states of a code, of shares that add up to 1 << log and are not needed any more; by one lane.
inline __device__ void make_states(u16* states, u32 log, i16* shares, u32 symbols) {
    const u32 size = 1u << log, step = size / 2 + size / 8 + 3;
    u32 end = size, at = 0;
#pragma unroll 1
    for (u32 k = 0; k < symbols; ++k) {
        if (shares[k] < 0) states[--end] = u16(k);
    }
#pragma unroll 1
    for (u32 k = 0; k < symbols; ++k) {
        const int share = shares[k];
        if (share < 0) shares[k] = 1;
#pragma unroll 1
        for (int i = 0; i < share; ++i) {
            states[at] = u16(k);
            do at = (at + step) % size;
            while (at >= end);
        }
    }
#pragma unroll 1
    for (u32 state = 0; state < size; ++state) {
        const u32 k = states[state];
        states[state] = u16(u32(shares[k]++) << 6 | k);
    }
}
