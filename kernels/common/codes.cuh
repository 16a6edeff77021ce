// Codes of Zstandard's sequences (RFC 8878, 3.1.1.3.2.1): of lengths of literals, of offsets, of lengths of matches.
#pragma once

#include "common/fse.cuh"

constexpr u32 LITERAL_CODES = 36, OFFSET_CODES = 32, MATCH_CODES = 53, MIN_MATCH = 3;
constexpr u32 LITERAL_LOG = 9, OFFSET_LOG = 8, MATCH_LOG = 9;
constexpr u32 OFFSET_STATES = 1 << LITERAL_LOG, MATCH_STATES = OFFSET_STATES + (1 << OFFSET_LOG);  // where these begin
constexpr u32 STATES = MATCH_STATES + (1 << MATCH_LOG), CODES = LITERAL_CODES + OFFSET_CODES + MATCH_CODES;
constexpr u32 MOST_OF_SEQUENCE = 31 + 16 + 16 + LITERAL_LOG + OFFSET_LOG + MATCH_LOG;  // bits

// Shares of the predefined codes, of 64, 32 and 64 states.
constexpr u32 PREDEFINED_OFFSETS = 29;
__device__ constexpr i8 PREDEFINED[CODES] = {
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1,
    1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, 0, 0, 0,
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};

// `least << 5 | bits` of each code of a length: of literals, and of matches from the 32nd one on.
__device__ constexpr u32 LITERAL_LENGTHS[LITERAL_CODES] = {
    0, 1 << 5, 2 << 5, 3 << 5, 4 << 5, 5 << 5, 6 << 5, 7 << 5, 8 << 5, 9 << 5, 10 << 5, 11 << 5, 12 << 5, 13 << 5,
    14 << 5, 15 << 5, 16 << 5 | 1, 18 << 5 | 1, 20 << 5 | 1, 22 << 5 | 1, 24 << 5 | 2, 28 << 5 | 2, 32 << 5 | 3,
    40 << 5 | 3, 48 << 5 | 4, 64 << 5 | 6, 128 << 5 | 7, 256 << 5 | 8, 512 << 5 | 9, 1024 << 5 | 10, 2048 << 5 | 11,
    4096 << 5 | 12, 8192 << 5 | 13, 16384 << 5 | 14, 32768 << 5 | 15, 65536 << 5 | 16};
__device__ constexpr u32 MATCH_LENGTHS[MATCH_CODES - 32] = {
    35 << 5 | 1, 37 << 5 | 1, 39 << 5 | 1, 41 << 5 | 1, 43 << 5 | 2, 47 << 5 | 2, 51 << 5 | 3, 59 << 5 | 3, 67 << 5 | 4,
    83 << 5 | 4, 99 << 5 | 5, 131 << 5 | 7, 259 << 5 | 8, 515 << 5 | 9, 1027 << 5 | 10, 2051 << 5 | 11, 4099 << 5 | 12,
    8195 << 5 | 13, 16387 << 5 | 14, 32771 << 5 | 15, 65539 << 5 | 16};

inline __device__ u32 length_of(u32 code) {
    if (code < LITERAL_CODES) return LITERAL_LENGTHS[code];
    const u32 match = code - LITERAL_CODES;
    return match < 32 ? (match + MIN_MATCH) << 5 : MATCH_LENGTHS[match - 32];
}

// Of a group: states of the codes; their shares, or words of the stream, from one on down.
template <u32 LANES>
struct Codes {
    static constexpr u32 OF_LANE = (LANES * MOST_OF_SEQUENCE / 32 + 2) / LANES + 1;  // words that as many sequences take
    u16 states[STATES];
    union {
        i16 shares[CODES];
        u32 window[OF_LANE * LANES];
    };
};

// Reads the codes of a block from byte `at` on, which moves: `log << 8 * k` of each in `logs`. Where each was last described
// is in `described`: `place << 2 | mode`, or 0. False if one is wrong.
template <u32 LANES>
inline __device__ bool read_codes(Codes<LANES>& codes, u32* described, u32& logs, u32 modes, const u8* __restrict__ from,
                                  u32& at, u32 end, u32 size, u32 lane, u32 group) {
    u32 own_log = 0, own_symbols = 0, own_states = 0, own_shares = 0;
    logs = 0;
#pragma unroll 1
    for (u32 k = 0; k < 3; ++k) {
        const u32 given = modes >> (6 - 2 * k) & 3, before = described[k];
        if (given == 3 && !before) return false;
        const u32 mode = given == 3 ? before & 3 : given, place = given == 3 ? before >> 2 : at;
        const u32 until = given == 3 ? size : end;
        const u32 states = k == 0 ? 0 : k == 1 ? OFFSET_STATES : MATCH_STATES;
        const u32 shares = k == 0 ? 0 : k == 1 ? LITERAL_CODES : LITERAL_CODES + OFFSET_CODES;
        const u32 most = k == 0 ? LITERAL_CODES : k == 1 ? OFFSET_CODES : MATCH_CODES;
        const u32 most_log = k == 1 ? OFFSET_LOG : LITERAL_LOG;
        static_assert(LITERAL_LOG == MATCH_LOG);
        u32 log = 0, symbols = 0, taken = 0;
        if (mode == 0) {
            log = k == 1 ? 5 : 6;
            symbols = k == 1 ? PREDEFINED_OFFSETS : most;
            for (u32 i = lane; i < symbols; i += LANES) codes.shares[shares + i] = PREDEFINED[shares + i];
        } else if (mode == 1) {
            if (place == until || from[place] >= most) return false;
            taken = 1;
            if (lane == 0) codes.states[states] = u16(1 << 6 | from[place]);
        } else {
            taken = read_shares(codes.shares + shares, symbols, log, from + place, until - place, most, most_log, lane);
            if (!taken) return false;
        }
        if (given != 3) {
            __syncwarp(group);
            if (lane == 0) described[k] = at << 2 | mode;
            at += taken;
        }
        logs |= log << 8 * k;
        if (k == lane) {
            own_log = log;
            own_symbols = symbols;
            own_states = states;
            own_shares = shares;
        }
    }
    __syncwarp(group);
    // Each by another lane.
    if (own_symbols) make_states(codes.states + own_states, own_log, codes.shares + own_shares, own_symbols);
    __syncwarp(group);
    return true;
}
