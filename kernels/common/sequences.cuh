// Sequences of Zstandard (RFC 8878, 3.1.1.3.2): literals that are copied, and matches behind them.
#pragma once

#include "common/copies.cuh"

constexpr u32 LITERAL_CODES = 36, OFFSET_CODES = 32, MATCH_CODES = 53, MIN_MATCH = 3;
constexpr u32 LITERAL_LOG = 9, OFFSET_LOG = 8, MATCH_LOG = 9;
constexpr u32 OFFSET_STATES = 1 << LITERAL_LOG, MATCH_STATES = OFFSET_STATES + (1 << OFFSET_LOG);  // where these begin
constexpr u32 STATES = MATCH_STATES + (1 << MATCH_LOG), CODES = LITERAL_CODES + OFFSET_CODES + MATCH_CODES;

// Shares of the predefined codes, of 64, 32 and 64 states.
constexpr u32 PREDEFINED_OFFSETS = 29;
__device__ constexpr i8 PREDEFINED[CODES] = {
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1,
    1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, 0, 0, 0,
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};

// `least << 5 | bits` of each code of a length: of literals, and of matches.
__device__ constexpr u32 LITERAL_LENGTHS[LITERAL_CODES] = {
    0, 1 << 5, 2 << 5, 3 << 5, 4 << 5, 5 << 5, 6 << 5, 7 << 5, 8 << 5, 9 << 5, 10 << 5, 11 << 5, 12 << 5, 13 << 5, 14 << 5, 15 << 5,
    16 << 5 | 1, 18 << 5 | 1, 20 << 5 | 1, 22 << 5 | 1, 24 << 5 | 2, 28 << 5 | 2, 32 << 5 | 3, 40 << 5 | 3, 48 << 5 | 4, 64 << 5 | 6,
    128 << 5 | 7, 256 << 5 | 8, 512 << 5 | 9, 1024 << 5 | 10, 2048 << 5 | 11, 4096 << 5 | 12, 8192 << 5 | 13, 16384 << 5 | 14,
    32768 << 5 | 15, 65536 << 5 | 16};
__device__ constexpr u32 MATCH_LENGTHS[MATCH_CODES - 32] = {
    35 << 5 | 1, 37 << 5 | 1, 39 << 5 | 1, 41 << 5 | 1, 43 << 5 | 2, 47 << 5 | 2, 51 << 5 | 3, 59 << 5 | 3, 67 << 5 | 4, 83 << 5 | 4,
    99 << 5 | 5, 131 << 5 | 7, 259 << 5 | 8, 515 << 5 | 9, 1027 << 5 | 10, 2051 << 5 | 11, 4099 << 5 | 12, 8195 << 5 | 13,
    16387 << 5 | 14, 32771 << 5 | 15, 65539 << 5 | 16};

inline __device__ u32 length_of(u32 code) {
    if (code < LITERAL_CODES) return LITERAL_LENGTHS[code];
    const u32 match = code - LITERAL_CODES;
    return match < 32 ? (match + MIN_MATCH) << 5 : MATCH_LENGTHS[match - 32];
}

constexpr u32 ALONE = 63;                                            // bytes at most that a lane copies beside others
constexpr u32 MOST_OF_SEQUENCE = 31 + 16 + 16 + LITERAL_LOG + OFFSET_LOG + MATCH_LOG;  // bits

// Of a group: states of the codes; their shares, or words of the stream, from one on down.
template <u32 LANES>
struct Codes {
    static constexpr u32 OF_LANE = (LANES * MOST_OF_SEQUENCE / 32 + 2) / LANES + 1;  // words that so many sequences may take
    u16 states[STATES];
    union {
        i16 shares[CODES];
        u32 window[OF_LANE * LANES];
    };
};

// Reads the codes of a block from byte `at` on, which moves: `log << 8 * k` of each in `logs`. Where each was last described
// is in `described`: `place << 2 | how`. False if one is wrong.
template <u32 LANES>
inline __device__ bool read_codes(Codes<LANES>& codes, u32* described, u32& logs, u32 modes, const u8* __restrict__ from, u32& at, u32 end,
                                  u32 size, u32 lane, u32 group) {
    u32 own_log = 0, own_symbols = 0, own_states = 0, own_shares = 0;
    logs = 0;
#pragma unroll 1
    for (u32 k = 0; k < 3; ++k) {
        const u32 given = modes >> (6 - 2 * k) & 3, before = described[k];
        if (given == 3 && !before) return false;
        const u32 place = given == 3 ? before >> 2 : at, mode = given == 3 ? before & 3 : given;
        const u32 until = given == 3 ? size : end;
        const u32 states = k == 0 ? 0 : k == 1 ? OFFSET_STATES : MATCH_STATES;
        const u32 shares = k == 0 ? 0 : k == 1 ? LITERAL_CODES : LITERAL_CODES + OFFSET_CODES;
        const u32 most = k == 0 ? LITERAL_CODES : k == 1 ? OFFSET_CODES : MATCH_CODES;
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
            taken = read_shares(codes.shares + shares, symbols, log, from + place, until - place, most, k == 1 ? OFFSET_LOG : LITERAL_LOG, lane);
            if (!taken) return false;
        }
        if (given != 3) {
            __syncwarp(group);
            if (lane == 0) described[k] = at << 2 | mode;
            at += taken;
        }
        logs |= log << 8 * k;
        if (k == lane) own_log = log, own_symbols = symbols, own_states = states, own_shares = shares;
    }
    __syncwarp(group);
    if (own_symbols) make_states(codes.states + own_states, own_log, codes.shares + own_shares, own_symbols);
    __syncwarp(group);
    return true;
}

// Literals that are copied, and a match behind them, so far before its place.
struct Sequence {
    u32 some, length, distance;
};

// Sequences of a block, one after another; all lanes of a group read the same ones.
struct Sequences {
    Fse literals, offsets, matches;
    const u32* window;
    const u32* lengths;  // `least << 5 | bits` of each code, of literals and then of matches
    u32 literal, offset, match;  // states
    int at;  // bits behind those of the window's first word

    __device__ u32 top() const {
        const int k = -(at >> 5);
        return __funnelshift_r(window[k + 1], window[k], u32(at));
    }
    __device__ u32 take(u32 count) {
        const u32 value = top() >> 1 >> (31 - count);
        at -= int(count);
        return value;
    }
    // The next one; no states follow the last one.
    __device__ Sequence next(u32* before, bool last) {
        const u32 of_literals = literals.states[literal], of_offset = offsets.states[offset], of_match = matches.states[match];
        const u32 far = of_offset & 63, some = lengths[of_literals & 63], length = lengths[LITERAL_CODES + (of_match & 63)];
        const u32 more = literals.more(of_literals), more_of_match = matches.more(of_match), more_of_offset = offsets.more(of_offset);
        const u32 of_some = some & 31, of_length = length & 31;
        const u32 extra = far + of_length + of_some, of_states = last ? 0 : more + more_of_match + more_of_offset;
        Sequence one = {some >> 5, length >> 5, 1u << far};
        literal = literals.first(of_literals, more);
        match = matches.first(of_match, more_of_match);
        offset = offsets.first(of_offset, more_of_offset);
        if (extra + of_states < 32) {  // as most have
            u32 bits = top();
            const auto field = [&](u32 count) {
                const u64 both = u64(bits) << count;
                bits = u32(both);
                return u32(both >> 32);
            };
            one.distance += field(far);
            one.length += field(of_length);
            one.some += field(of_some);
            literal += field(more);  // which mean nothing behind the last one
            match += field(more_of_match);
            offset += field(more_of_offset);
            at -= int(extra + of_states);
        } else {
            one.distance += take(far);
            one.length += take(of_length);
            one.some += take(of_some);
            if (!last) {
                literal += take(more);
                match += take(more_of_match);
                offset += take(more_of_offset);
            }
        }
        if (one.distance > 3) {
            one.distance -= 3;
            before[2] = before[1], before[1] = before[0];
        } else {
            const u32 which = one.distance - (one.some != 0);
            one.distance = which == 0 ? before[0] : which == 1 ? before[1] : which == 2 ? before[2] : before[0] - 1;
            if (which > 1) before[2] = before[1];
            if (which > 0) before[1] = before[0];
        }
        before[0] = one.distance;
        return one;
    }
};

// What has been decompressed of a chunk, and literals that have not been copied, which may be `inside` of its room.
struct Made {
    u8* to;
    u32 made, room;
    const u8* literals;
    u32 of_literals;
    bool inside;
};

// Sequences of a group's lanes, by their bits: those with many literals, and with a long match; of these and of matches that read
// what is written beside them `reads`, and of those the ones that come after all before them.
struct Kinds {
    u32 literals, matches, reads, waits;
};

// Executes the sequences of a group's lanes, whose matches begin at `begin`, and their literals at `place`.
template <u32 LANES>
inline __device__ void execute(const Made& out, const Sequence& mine, u32 begin, u32 place, const Kinds& kinds, u32 lane, u32 group) {
    const auto of = [&](u32 value, u32 k) { return __shfl_sync(group, value, int(k), LANES); };
        u8* const to = out.to + begin;
    copy_both_alone(to - mine.some, out.literals + place, kinds.literals >> lane & 1 ? 0 : mine.some, to, to - mine.distance,
                    kinds.reads >> lane & 1 ? 0 : mine.length);
    for (u32 rest = kinds.literals; rest; rest &= rest - 1) {
        const u32 k = u32(__ffs(int(rest))) - 1, some = of(mine.some, k);
        copy_apart<LANES>(out.to + of(begin, k) - some, out.literals + of(place, k), some, lane);
    }
    for (u32 rest = kinds.reads; rest;) {
        const u32 k = u32(__ffs(int(rest))) - 1;
        __syncwarp(group);
        if (kinds.matches >> k & 1) {
            rest &= rest - 1;
            repeat_apart<LANES>(out.to + of(begin, k), of(mine.distance, k), of(mine.length, k), lane, group);
        } else {
            const u32 those = (2u << k) - 1, after = (kinds.waits | kinds.matches) & ~those;
            const u32 now = rest & (after ? (after & (0 - after)) - 1 : ~0u);
            rest &= ~now;
            if (now >> lane & 1) {
                if (mine.length <= mine.distance) copy_alone(to, to - mine.distance, mine.length);
                if (mine.length > mine.distance) repeat_alone(to, mine.distance, mine.length);
            }
        }
    }
}

// Executes the sequences one after another: literals lie where others are written to.
template <u32 LANES>
inline __device__ void execute_in_order(const Made& out, const Sequence& mine, u32 begin, u32 place, u32 number, u32 lane, u32 group) {
    const auto of = [&](u32 value, u32 k) { return __shfl_sync(group, value, int(k), LANES); };
    for (u32 k = 0; k < number; ++k) {
        const u32 some = of(mine.some, k);
        u8* const to = out.to + of(begin, k);
        move_down<LANES>(to - some, out.literals + of(place, k), some, lane, group);
        repeat_apart<LANES>(to, of(mine.distance, k), of(mine.length, k), lane, group);
    }
}

// Executes the sequences of a block, of the bytes from `at` to `end`.
template <u32 LANES>
inline __device__ bool execute_all(Codes<LANES>& codes, const u32* lengths, u32* described, u32* before, Made& out, const u8* __restrict__ from, u32 at,
                                   u32 end, u32 size, u32 lane, u32 group) {
    if (at == end) return false;
    u32 number = from[at++];
    if (number > 127) {
        const u32 more = number == 255 ? 2 : 1;
        if (end - at < more) return false;
        number = number == 255 ? (from[at] | u32(from[at + 1]) << 8) + 0x7f00 : (number - 128) << 8 | from[at];
        at += more;
    }
    if (number) {
        if (at == end) return false;
        const u32 modes = from[at++];
        u32 logs;
        if (modes & 3 || !read_codes(codes, described, logs, modes, from, at, end, size, lane, group)) return false;
        Backward bits;
        if (!bits.begin(from + at, end - at)) return false;
        Sequences all = {{codes.states, logs & 255}, {codes.states + OFFSET_STATES, logs >> 8 & 255}, {codes.states + MATCH_STATES, logs >> 16},
                         codes.window, lengths};
        all.literal = bits.take(all.literals.log);
        all.offset = bits.take(all.offsets.log);
        all.match = bits.take(all.matches.log);
        u32 ahead[Codes<LANES>::OF_LANE];
        const auto load = [&] {
#pragma unroll
            for (u32 k = 0; k < Codes<LANES>::OF_LANE; ++k) ahead[k] = bits.word((bits.at >> 5) - int(k * LANES + lane));
        };
        load();
        while (number) {
#pragma unroll
            for (u32 k = 0; k < Codes<LANES>::OF_LANE; ++k) codes.window[k * LANES + lane] = ahead[k];
            __syncwarp(group);
            const int highest = bits.at & ~31;
            all.at = bits.at & 31;
            const u32 some = min(number, LANES);
            Sequence mine = {0, 0, 0};
            u32 literals = 0, made = out.made, begin = 0, place = 0;
            Kinds kinds = {};
            u32 first = ~0u, last = 0;  // where matches begin and end that are not there yet
            bool good = true;
            for (u32 k = 0; k < some; ++k) {
                const Sequence one = all.next(before, --number == 0);
                made += one.some;
                if (k == lane) mine = one, begin = made, place = literals;
                good = good && one.distance - 1 < made;
                const u32 needed = made - one.distance, needed_end = needed + one.length, bit = 1u << k;
                if (one.some > ALONE) kinds.literals |= bit;
                if (one.length > ALONE) kinds.matches |= bit;
                if (needed_end > out.made || one.length > ALONE) {
                    kinds.reads |= bit;
                    if (needed_end > first && needed < last) kinds.waits |= bit, first = made;
                    first = min(first, made);
                    last = made + one.length;
                }
                literals += one.some, made += one.length;
            }
            bits.at = highest + all.at;
            load();  // while bytes are copied
            if (!good || literals > out.of_literals || made > out.room - (out.of_literals - literals)) return false;
            if (out.inside && made > u32(out.literals - out.to)) {
                execute_in_order<LANES>(out, mine, begin, place, some, lane, group);
            } else {
                execute<LANES>(out, mine, begin, place, kinds, lane, group);
            }
            __syncwarp(group);
            out.made = made;
            out.literals += literals, out.of_literals -= literals;
        }
        if (bits.at != bits.bottom) return false;
    } else if (at != end) {
        return false;
    }
    u8* const rest = out.to + out.made;
    if (!out.inside) {
        copy_apart<LANES>(rest, out.literals, out.of_literals, lane);
    } else if (rest != out.literals) {
        move_down<LANES>(rest, out.literals, out.of_literals, lane, group);
    }
    out.made += out.of_literals;
    return true;
}
