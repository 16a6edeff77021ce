// Sequences of Zstandard (RFC 8878, 3.1.1.3.2): literals that are copied, and matches behind them.
#pragma once

#include "common/fse.cuh"
#include "common/repeat.cuh"

constexpr u32 LITERAL_LOG = 9, OFFSET_LOG = 8, MATCH_LOG = 9;
constexpr u32 LITERAL_CODES = 36, OFFSET_CODES = 32, MATCH_CODES = 53, MIN_MATCH = 3;

// The predefined codes: shares of 1 << log; 255: less than one.
__device__ constexpr u8 OF_LITERALS[LITERAL_CODES] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2,
                                                      2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, 255, 255, 255, 255};
__device__ constexpr u8 OF_OFFSETS[29] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 255, 255, 255, 255, 255};
__device__ constexpr u8 OF_MATCHES[MATCH_CODES] = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                   1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 255, 255, 255, 255, 255, 255, 255};

// `least << 5 | bits` of each code of a length.
__device__ constexpr u32 LITERAL_LENGTHS[LITERAL_CODES] = {
    0, 1 << 5, 2 << 5, 3 << 5, 4 << 5, 5 << 5, 6 << 5, 7 << 5, 8 << 5, 9 << 5, 10 << 5, 11 << 5, 12 << 5, 13 << 5, 14 << 5, 15 << 5,
    16 << 5 | 1, 18 << 5 | 1, 20 << 5 | 1, 22 << 5 | 1, 24 << 5 | 2, 28 << 5 | 2, 32 << 5 | 3, 40 << 5 | 3, 48 << 5 | 4, 64 << 5 | 6,
    128 << 5 | 7, 256 << 5 | 8, 512 << 5 | 9, 1024 << 5 | 10, 2048 << 5 | 11, 4096 << 5 | 12, 8192 << 5 | 13, 16384 << 5 | 14,
    32768 << 5 | 15, 65536 << 5 | 16};
__device__ constexpr u32 MATCH_LENGTHS[MATCH_CODES - 32] = {
    35 << 5 | 1, 37 << 5 | 1, 39 << 5 | 1, 41 << 5 | 1, 43 << 5 | 2, 47 << 5 | 2, 51 << 5 | 3, 59 << 5 | 3, 67 << 5 | 4, 83 << 5 | 4,
    99 << 5 | 5, 131 << 5 | 7, 259 << 5 | 8, 515 << 5 | 9, 1027 << 5 | 10, 2051 << 5 | 11, 4099 << 5 | 12, 8195 << 5 | 13,
    16387 << 5 | 14, 32771 << 5 | 15, 65539 << 5 | 16};

// Which code a block has for something, from byte `at` on, which moves; false if it is wrong.
inline __device__ bool choose_code(u32 mode, Fse& code, Shares& scratch, const u8* predefined, u32 symbols, u32 log,
                                   u32 most_symbols, u32 most_log, const u8* __restrict__ from, u32 size, u32& at, u32 lane, u32 group) {
    if (mode == 3) return code.known;
    code.known = true;
    if (mode == 2) {
        const u32 nbytes = read_code(code, scratch, from + at, size - at, most_symbols, most_log, lane, group);
        at += nbytes;
        return nbytes;
    }
    if (mode == 1) {
        if (at == size || from[at] >= most_symbols) return false;
        code.log = 0;
        if (lane == 0) code.states[0] = u16(1 << 6 | from[at]);
        ++at;
        __syncwarp(group);
        return true;
    }
    code.log = log;
    for (u32 k = lane; k < symbols; k += LANES) scratch.shares[k] = predefined[k] == 255 ? -1 : predefined[k];
    make_states(code, scratch, symbols, lane, group);
    return true;
}

// What blocks of a frame know from those before them.
struct Sequences {
    Fse literals, offsets, matches;
    u32 distances[3];  // of the last matches
};

// Copies bytes to a place before theirs, which they may overlap.
inline __device__ void move_down(u8* to, const u8* from, u32 number, u32 lane, u32 group) {
    for (u32 i = 0; i < number; i += LANES) {
        const bool mine = i + lane < number;
        const u8 byte = mine ? from[i + lane] : 0;
        __syncwarp(group);
        if (mine) to[i + lane] = byte;
    }
}

// Executes the sequences of a block, of `size` bytes, behind `made` bytes that there are; `literals` are either of the stored
// bytes or the last ones of the room.
inline __device__ bool execute(Sequences& known, Shares& scratch, const u8* __restrict__ from, u32 size, const u8* literals,
                               u32 of_literals, u8* to, u32& made, u32 room, u32 lane, u32 group) {
    if (size == 0) return false;
    u32 number = from[0], at = 1;
    if (number > 127) {
        if (size < (number == 255 ? 3u : 2u)) return false;
        number = number == 255 ? (from[1] | u32(from[2]) << 8) + 0x7f00 : (number - 128) << 8 | from[1];
        at = from[0] == 255 ? 3 : 2;
    }
    if (number) {
        if (at == size) return false;
        const u32 modes = from[at++];
        if (modes & 3) return false;
        if (!choose_code(modes >> 6, known.literals, scratch, OF_LITERALS, LITERAL_CODES, 6, LITERAL_CODES,
                         LITERAL_LOG, from, size, at, lane, group) ||
            !choose_code(modes >> 4 & 3, known.offsets, scratch, OF_OFFSETS, 29, 5, OFFSET_CODES, OFFSET_LOG,
                         from, size, at, lane, group) ||
            !choose_code(modes >> 2 & 3, known.matches, scratch, OF_MATCHES, MATCH_CODES, 6, MATCH_CODES,
                         MATCH_LOG, from, size, at, lane, group)) {
            return false;
        }
        Backward bits;
        if (!bits.begin(from + at, size - at)) return false;
        u32 of_literal = bits.take(known.literals.log), of_offset = bits.take(known.offsets.log);
        bits.fill();
        u32 of_match = bits.take(known.matches.log);
        while (true) {
            const u32 far = known.offsets.symbol(of_offset), longer = known.matches.symbol(of_match);
            const u32 packed = LITERAL_LENGTHS[known.literals.symbol(of_literal)];
            const u32 of_length = longer < 32 ? (longer + MIN_MATCH) << 5 : MATCH_LENGTHS[longer - 32];
            bits.fill();
            u32 distance = far ? (1u << far) + bits.take(far) : 1;
            bits.fill();
            const u32 length = (of_length >> 5) + bits.take(of_length & 31), some = (packed >> 5) + bits.take(packed & 31);
            u32* const last = known.distances;
            if (distance > 3) {
                distance -= 3;
                last[2] = last[1], last[1] = last[0];
            } else {
                const u32 which = distance - (some != 0);
                distance = which == 0 ? last[0] : which == 1 ? last[1] : which == 2 ? last[2] : last[0] - 1;
                if (which > 1) last[2] = last[1];
                if (which > 0) last[1] = last[0];
            }
            last[0] = distance;
            if (some > of_literals) return false;
            move_down(to + made, literals, some, lane, group);
            made += some, literals += some, of_literals -= some;
            if (distance == 0 || distance > made || length > room - made - of_literals) return false;
            repeat<LANES>(to + made, distance, length, lane, group);
            made += length;
            if (--number == 0) break;
            bits.fill();
            of_literal = known.literals.follow(of_literal, bits);
            of_match = known.matches.follow(of_match, bits);
            of_offset = known.offsets.follow(of_offset, bits);
        }
        if (bits.left) return false;
    } else if (size != 1) {
        return false;
    }
    move_down(to + made, literals, of_literals, lane, group);
    made += of_literals;
    return true;
}
