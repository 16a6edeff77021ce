// Literals of Zstandard (RFC 8878, 4.2): a Huffman code for bytes, and streams in it.
#pragma once

#include "common/fse.cuh"

constexpr u32 MOST_BITS = 11, SYMBOLS = 256, WEIGHT_LOG = 6;

// Of a group: `symbol << 4 | bits`, first of the longest codes, by their bits; then of others, by all of these but the last
// one. And what this is made of.
struct Huffman {
    u16 symbols[SYMBOLS + (1 << MOST_BITS) / 2];
    u8 weights[SYMBOLS];
    i16 shares[MOST_BITS + 2];
};

// Weights of bytes that are coded themselves; how many, or 0 if the code is wrong.
inline __device__ u32 read_weights(Huffman& code, const u8* __restrict__ from, u32 size, u32 lane, u32 group) {
    u16* const states = code.symbols;  // until those are known
    u32 symbols;
    Fse fse = {states};
    const u32 head = read_shares(code.shares, symbols, fse.log, from, size, MOST_BITS + 2, WEIGHT_LOG, lane);
    Backward bits;
    if (!head || !bits.begin(from + head, size - head)) return 0;
    if (lane == 0) make_states(states, fse.log, code.shares, symbols);
    __syncwarp(group);
    u32 state = bits.take(fse.log), other = bits.take(fse.log), number = 0;
    if (bits.at < bits.bottom) return 0;
    while (number < SYMBOLS - 2) {
        const u32 found = states[state], more = fse.more(found);
        if (lane == 0) code.weights[number] = u8(found & 63);
        ++number;
        state = other;
        other = fse.first(found, more) + bits.take(more);
        if (bits.at < bits.bottom) {
            if (lane == 0) code.weights[number] = u8(states[state] & 63);
            return number + 1;
        }
    }
    return 0;
}

// Reads a code: the bytes that it takes, or 0 if it is wrong; of `longest` codes, the number and the bits.
template <u32 LANES>
inline __device__ u32 read_huffman(Huffman& code, u32& longest, u32& log, const u8* __restrict__ from, u32 size, u32 lane,
                                   u32 group) {
    if (size == 0) return 0;
    const u32 head = from[0], direct = head < 128 ? 0 : head - 127, nbytes = direct ? (direct + 1) / 2 : head;
    if (nbytes > size - 1) return 0;
    u32 number = direct;
    if (direct) {
        for (u32 k = lane; k < nbytes; k += LANES) {
            code.weights[2 * k] = from[1 + k] >> 4;
            code.weights[2 * k + 1] = from[1 + k] & 15;
        }
    } else {
        number = read_weights(code, from + 1, nbytes, lane, group);
        if (!number) return 0;
    }
    __syncwarp(group);
    u32 all = 0;
    bool wrong = false, paired = false;  // codes of the greatest length
    for (u32 k = lane; k < number; k += LANES) {
        const u32 weight = code.weights[k];
        wrong |= weight > MOST_BITS;
        paired |= weight == 1;
        all += (1u << weight) / 2;
    }
    for (int k = 1; k < int(LANES); k *= 2) all += __shfl_xor_sync(group, all, k, LANES);
    paired = __any_sync(group, paired);
    if (__any_sync(group, wrong) || all >= 1u << MOST_BITS || !paired) return 0;
    log = 32 - __clz(all);
    const u32 rest = (1u << log) - all;
    if (rest & (rest - 1)) return 0;
    if (lane == 0) code.weights[number] = u8(32 - __clz(rest));
    __syncwarp(group);
    // Those of a weight follow one another, in order.
    u32 at = 0;
    for (u32 weight = 1; at < 1u << log; ++weight) {
        const u32 each = (1u << weight) / 2, cells = weight == 1 ? 1 : each / 2;
        for (u32 first = 0; first <= number; first += LANES) {
            const u32 symbol = first + lane;
            const bool mine = symbol <= number && code.weights[symbol] == weight;
            const u32 found = __ballot_sync(group, mine), before = found & ((1u << threadIdx.x % 32) - 1);
            const u32 place = at + u32(__popc(before)) * each;
            u16* const to = code.symbols + (weight == 1 ? place : SYMBOLS + place / 2);
            for (u32 i = 0; mine && i < cells; ++i) to[i] = u16(symbol << 4 | (log + 1 - weight));
            at += u32(__popc(found)) * each;
        }
        if (weight == 1) longest = at;
    }
    __syncwarp(group);
    return 1 + nbytes;
}

// A stream of exactly so many bytes, by one lane.
inline __device__ bool read_stream(const u16* symbols, u32 longest, u32 log, const u8* __restrict__ from, u32 size, u8* to,
                                   u32 number) {
    Backward bits;
    if (!bits.begin(from, size)) return false;
    constexpr u32 WORD = 4;
    for (u32 i = 0; i < number;) {
        const u32 count = min(WORD - u32(reinterpret_cast<u64>(to + i) % WORD), number - i);
        // Enough bits for so many. Lanes load them side by side: one that loaded when it has to would keep all others.
        const int k = bits.at >> 5;
        const u32 second = bits.word(k - 1);
        u32 high = __funnelshift_r(second, bits.word(k), u32(bits.at));
        u32 low = __funnelshift_r(bits.word(k - 2), second, u32(bits.at));
        u32 word = 0;
#pragma unroll
        for (u32 j = 0; j < WORD; ++j) {
            if (j >= count) continue;
            const u32 next = high >> (32 - log), found = symbols[next < longest ? next : SYMBOLS + next / 2];
            const u32 taken = found & 15;
            high = __funnelshift_r(low, high, 32 - taken);
            low <<= taken;
            bits.at -= int(taken);
            word |= found >> 4 << 8 * j;
        }
        if (count == WORD) {
            *reinterpret_cast<u32*>(to + i) = word;
        } else {
            for (u32 j = 0; j < count; ++j) to[i + j] = u8(word >> 8 * j);
        }
        i += count;
    }
    return bits.at == bits.bottom;
}
