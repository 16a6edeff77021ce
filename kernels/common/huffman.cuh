// Literals of Zstandard (RFC 8878, 4.2): a Huffman code for bytes, and up to four streams in it.
#pragma once

#include "common/fse.cuh"

constexpr u32 MOST_BITS = 11, SYMBOLS = 256, WEIGHT_LOG = 6;

// Of a group: `symbol << 4 | bits` by the next bits, of which there are `log`.
struct Huffman {
    u16* symbols;
    u32 log;
};

// Weights of bytes that are coded themselves; how many, or 0 if the code is wrong. The states are in `states`.
inline __device__ u32 read_weights(u8* weights, u16* states, Shares& scratch, const u8* __restrict__ from, u32 size, u32 lane,
                                   u32 group) {
    Fse code = {states};
    const u32 head = read_code(code, scratch, from, size, MOST_BITS + 2, WEIGHT_LOG, lane, group);
    Backward bits;
    if (!head || !bits.begin(from + head, size - head)) return 0;
    u32 state = bits.take(code.log), other = bits.take(code.log), number = 0;
    if (bits.left < 0) return 0;
    while (number < SYMBOLS - 2) {
        bits.fill();
        if (lane == 0) weights[number] = u8(code.symbol(state));
        ++number;
        const u32 after = code.follow(state, bits);
        if (bits.left < 0) {
            if (lane == 0) weights[number] = u8(code.symbol(other));
            return number + 1;
        }
        state = other;
        other = after;
    }
    return 0;
}

// Reads a code; the bytes that it takes, or 0 if it is wrong.
inline __device__ u32 read_huffman(Huffman& code, u8* weights, Shares& scratch, const u8* __restrict__ from, u32 size, u32 lane,
                                   u32 group) {
    if (size == 0) return 0;
    const u32 head = from[0], direct = head < 128 ? 0 : head - 127, nbytes = direct ? (direct + 1) / 2 : head;
    if (nbytes > size - 1) return 0;
    u32 number = direct;
    if (direct) {
        for (u32 k = lane; k < nbytes; k += LANES) {
            weights[2 * k] = from[1 + k] >> 4;
            weights[2 * k + 1] = from[1 + k] & 15;
        }
    } else {
        number = read_weights(weights, code.symbols, scratch, from + 1, nbytes, lane, group);
        if (!number) return 0;
    }
    __syncwarp(group);
    u32 all = 0;
    bool paired = false;  // codes of the greatest length
    for (u32 k = 0; k < number; ++k) {
        if (weights[k] > MOST_BITS) return 0;
        all += (1u << weights[k]) / 2;
        paired |= weights[k] == 1;
    }
    if (all >= 1u << MOST_BITS) return 0;
    code.log = 32 - __clz(all);
    const u32 rest = (1u << code.log) - all;
    if (rest & (rest - 1)) return 0;
    const u32 last = 32 - __clz(rest);
    if (!paired) return 0;
    if (lane == 0) weights[number] = u8(last);
    __syncwarp(group);
    u32 at = 0;
    for (u32 weight = 1; at < 1u << code.log; ++weight) {
        const u32 of_symbol = 1u << (weight - 1);
        for (u32 k = 0; k <= number; ++k) {
            if (weights[k] != weight) continue;
            for (u32 i = lane; i < of_symbol; i += LANES) code.symbols[at + i] = u16(k << 4 | (code.log + 1 - weight));
            at += of_symbol;
        }
    }
    __syncwarp(group);
    return 1 + nbytes;
}

// A stream of exactly so many bytes.
inline __device__ bool read_stream(const Huffman& code, const u8* __restrict__ from, u32 size, u8* to, u32 number) {
    Backward bits;
    if (!bits.begin(from, size)) return false;
    for (u32 i = 0; i < number; ++i) {
        const u32 found = code.symbols[bits.next(code.log)];
        bits.drop(found & 15);
        to[i] = u8(found >> 4);
        bits.fill();
    }
    return bits.left == 0;
}
