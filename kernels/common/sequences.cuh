// Sequences of Zstandard (RFC 8878, 3.1.1.4): literals that are copied, and matches behind them.
#pragma once

#include "common/codes.cuh"
#include "common/copies.cuh"

constexpr u32 ALONE = 127;  // bytes at most that a lane copies beside others

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
    int at;                      // bits up to the next one, of the window's first word on

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
        const u32 of_literals = literals.states[literal], of_offset = offsets.states[offset];
        const u32 of_match = matches.states[match], far = of_offset & 63;
        const u32 some = lengths[of_literals & 63], length = lengths[LITERAL_CODES + (of_match & 63)];
        const u32 more = literals.more(of_literals), more_of_offset = offsets.more(of_offset);
        const u32 more_of_match = matches.more(of_match), of_some = some & 31, of_length = length & 31;
        const u32 all = far + of_length + of_some + (last ? 0 : more + more_of_match + more_of_offset);
        Sequence one = {some >> 5, length >> 5, 1u << far};
        literal = literals.first(of_literals, more);
        match = matches.first(of_match, more_of_match);
        offset = offsets.first(of_offset, more_of_offset);
        if (all < 32) {  // as most have
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
            at -= int(all);
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

// Sequences of a group's lanes, by their bits: of many literals; of long matches; of these and of matches that read what
// these sequences write; of those of the latter that come after all of them before.
struct Kinds {
    u32 literals, matches, reads, waits;
};

// Executes the sequences of a group's lanes, whose matches begin at `begin`, and their literals at `place`.
template <u32 LANES>
inline __device__ void execute(const Made& out, const Sequence& mine, u32 begin, u32 place, const Kinds& kinds, u32 lane,
                               u32 group) {
    const auto of = [&](u32 value, u32 k) { return __shfl_sync(group, value, int(k), LANES); };
    u8* const to = out.to + begin;
    copy_both_alone(to - mine.some, out.literals + place, kinds.literals >> lane & 1 ? 0 : mine.some, to,
                    to - mine.distance, kinds.reads >> lane & 1 ? 0 : mine.length);
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
            const u32 after = (kinds.waits | kinds.matches) & ~((2u << k) - 1), now = rest & ((after & (0 - after)) - 1);
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
inline __device__ void execute_in_order(const Made& out, const Sequence& mine, u32 begin, u32 place, u32 number, u32 lane,
                                        u32 group) {
    const auto of = [&](u32 value, u32 k) { return __shfl_sync(group, value, int(k), LANES); };
    for (u32 k = 0; k < number; ++k) {
        const u32 some = of(mine.some, k);
        u8* const to = out.to + of(begin, k);
        move_down<LANES>(to - some, out.literals + of(place, k), some, lane, group);
        repeat_apart<LANES>(to, of(mine.distance, k), of(mine.length, k), lane, group);
    }
}

// Executes the sequences of a block, of the bytes from `at` to `end`, at least one.
template <u32 LANES>
inline __device__ bool execute_all(Codes<LANES>& codes, const u32* lengths, u32* described, u32* before, Made& out,
                                   const u8* __restrict__ from, u32 at, u32 end, u32 size, u32 lane, u32 group) {
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
        Sequences all = {{codes.states, logs & 255}, {codes.states + OFFSET_STATES, logs >> 8 & 255},
                         {codes.states + MATCH_STATES, logs >> 16}, codes.window, lengths};
        all.literal = bits.take(all.literals.log);
        all.offset = bits.take(all.offsets.log);
        all.match = bits.take(all.matches.log);
        constexpr u32 OF_LANE = Codes<LANES>::OF_LANE;
        u32 ahead[OF_LANE];
        const auto load = [&] {
#pragma unroll
            for (u32 k = 0; k < OF_LANE; ++k) ahead[k] = bits.word((bits.at >> 5) - int(k * LANES + lane));
        };
        load();
        while (number) {
#pragma unroll
            for (u32 k = 0; k < OF_LANE; ++k) codes.window[k * LANES + lane] = ahead[k];
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
                if (k == lane) {
                    mine = one;
                    begin = made;
                    place = literals;
                }
                good = good && one.distance - 1 < made;
                const u32 needed = made - one.distance, needed_end = needed + one.length, bit = 1u << k;
                if (one.some > ALONE) kinds.literals |= bit;
                if (one.length > ALONE) kinds.matches |= bit;
                if (needed_end > out.made || one.length > ALONE) {
                    kinds.reads |= bit;
                    if (needed_end > first && needed < last) {
                        kinds.waits |= bit;
                        first = made;
                    }
                    first = min(first, made);
                    last = made + one.length;
                }
                literals += one.some;
                made += one.length;
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
            out.literals += literals;
            out.of_literals -= literals;
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
