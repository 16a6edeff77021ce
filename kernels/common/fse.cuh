// Finite state entropy (RFC 8878, 4.1): tables of its codes, and streams of bits that are read from their end.
#pragma once

#include "common/types.cuh"

// Bits of a stream, from its last one on; a one that begins it is no bit. Zeros stand for what is before its first byte.
struct Backward {
    const u8* __restrict__ from;
    u32 at, ahead;  // bytes that are not held; the next four
    int left;       // bits that were not taken; less than zero once too many were
    u64 held;       // from the most significant bit on

    __device__ u32 word() const {
        u32 value = 0;
#pragma unroll
        for (u32 k = 1; k <= 4; ++k) value = value << 8 | (k <= at ? from[at - k] : 0);
        return value;
    }
    // False if there is no bit that begins the stream.
    __device__ bool begin(const u8* __restrict__ stream, u32 size) {
        if (size == 0 || stream[size - 1] == 0) return false;
        from = stream;
        at = size - 1;
        const u32 bits = 31 - __clz(u32(stream[at]));
        held = u64(stream[at]) << 1 << (63 - bits);
        left = int(8 * at + bits);
        ahead = word();
        fill();
        return true;
    }
    // Holds at least 32 bits, or all.
    __device__ void fill() {
        const u32 number = u32(left) - 8 * at;  // of bits that are held
        if (number > 31) return;
        held |= u64(ahead) << (32 - number);
        at = at < 4 ? 0 : at - 4;
        ahead = word();
    }
    __device__ u32 next(u32 count) const { return u32(held >> 1 >> (63 - count)); }
    __device__ void drop(u32 count) {
        held <<= count;
        left -= int(count);
    }
    __device__ u32 take(u32 count) {
        const u32 value = next(count);
        drop(count);
        return value;
    }
};

constexpr u32 LANES = 8;  // of a group, which decompresses a chunk

// A code: of each state `x << 6 | symbol`, of which x tells what states follow; see `follow`.
struct Fse {
    u16* states;
    u32 log = 0;  // 1 << log states
    bool known = false;

    __device__ u32 symbol(u32 state) const { return states[state] & 63u; }
    // The state behind this one.
    __device__ u32 follow(u32 state, Backward& bits) const {
        const u32 x = states[state] >> 6, more = log - (31 - __clz(x));
        return (x << more) - (1u << log) + bits.take(more);
    }
};

constexpr u32 MOST_SYMBOLS = 53;

// Of a group of lanes: how often symbols are, of so many states; -1: less than once.
struct Shares {
    i16 shares[MOST_SYMBOLS];
    u16 next[MOST_SYMBOLS];
};

// Makes the states of a code of so many symbols, whose shares add up to 1 << log.
inline __device__ void make_states(const Fse& code, Shares& scratch, u32 symbols, u32 lane, u32 group) {
    __syncwarp(group);
    if (lane == 0) {
        const u32 size = 1u << code.log, step = size / 2 + size / 8 + 3;
        u32 end = size, at = 0;
        for (u32 k = 0; k < symbols; ++k) {
            const int share = scratch.shares[k];
            if (share < 0) code.states[--end] = u16(k);
            scratch.next[k] = u16(share < 0 ? 1 : share);
        }
        for (u32 k = 0; k < symbols; ++k) {
            for (int i = 0; i < scratch.shares[k]; ++i) {
                code.states[at] = u16(k);
                do at = (at + step) % size;
                while (at >= end);
            }
        }
        for (u32 state = 0; state < size; ++state) {
            const u32 k = code.states[state];
            code.states[state] = u16(scratch.next[k]++ << 6 | k);
        }
    }
    __syncwarp(group);
}

// Reads a code of at most so many symbols and 1 << most_log states; the bytes that it takes, or 0 if it is wrong.
inline __device__ u32 read_code(Fse& code, Shares& scratch, const u8* __restrict__ from, u32 size, u32 most_symbols, u32 most_log,
                                u32 lane, u32 group) {
    u32 place = 0;  // in bits
    const auto next = [&](u32 count) {
        const u32 first = place / 8;
        u32 value = 0;
#pragma unroll
        for (u32 k = 0; k < 3; ++k) value |= u32(first + k < size ? from[first + k] : 0) << 8 * k;
        return value >> place % 8 & ((1u << count) - 1);
    };
    code.log = next(4) + 5;
    place = 4;
    if (code.log > most_log) return 0;
    int left = 1 << code.log;
    u32 symbols = 0;
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
        if (lane == 0) scratch.shares[symbols] = i16(share);
        ++symbols;
        for (u32 none = share == 0 ? 3 : 0; none == 3;) {
            none = next(2);
            place += 2;
            if (none > most_symbols - symbols) return 0;
            for (u32 k = 0; k < none; ++k) {
                if (lane == 0) scratch.shares[symbols] = 0;
                ++symbols;
            }
        }
    }
    if (place > 8 * size) return 0;
    make_states(code, scratch, symbols, lane, group);
    return (place + 7) / 8;
}
