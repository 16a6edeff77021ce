// Sequences of Zstandard (RFC 8878, 3.1.1.4): literals that are copied, and matches behind them.
#pragma once

#include "common/codes.cuh"
#include "common/execute.cuh"

// Sequences of a block, one after another; all lanes of a group read the same ones.
struct Sequences {
    Fse literals, offsets, matches;
    const u32* window;
    const u32* lengths;  // `least << 5 | bits` of each code, of literals and then of matches
    u32 literal, offset, match;  // states
    int at;                      // bits up to the next one, of the window's first word on
    u32 of_states;               // bits that told the states, which mean nothing behind the last one

    __device__ u32 top() const {
        const int k = -(at >> 5);
        return __funnelshift_r(window[k + 1], window[k], u32(at));
    }
    __device__ u32 take(u32 count) {
        const u32 value = top() >> 1 >> (31 - count);
        at -= int(count);
        return value;
    }
    __device__ Sequence next(u32* before) {
        const u32 of_literals = literals.states[literal], of_offset = offsets.states[offset];
        const u32 of_match = matches.states[match], far = of_offset & 63;
        const u32 some = lengths[of_literals & 63], length = lengths[LITERAL_CODES + (of_match & 63)];
        const u32 more = literals.more(of_literals), more_of_offset = offsets.more(of_offset);
        const u32 more_of_match = matches.more(of_match), of_some = some & 31, of_length = length & 31;
        of_states = more + more_of_match + more_of_offset;
        const u32 all = far + of_length + of_some + of_states;
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
            literal += field(more);
            match += field(more_of_match);
            offset += field(more_of_offset);
            at -= int(all);
        } else {
            one.distance += take(far);
            one.length += take(of_length);
            one.some += take(of_some);
            literal += take(more);
            match += take(more_of_match);
            offset += take(more_of_offset);
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

// Executes sequences as `execute` does, but one after another: literals lie where others are written to.
template <u32 LANES>
inline __device__ void execute_in_order(u8* out, const Sequence& mine, u32 begin, const u8* from, u32 place, u32 number,
                                        u32 lane, u32 group) {
    const auto of = [&](u32 value, u32 k) { return __shfl_sync(group, value, int(k), LANES); };
    for (u32 k = 0; k < number; ++k) {
        const u32 some = of(mine.some, k);
        u8* const to = out + of(begin, k);
        move_down<LANES>(to - some, from + of(place, k), some, lane, group);
        repeat_apart<LANES>(to, of(mine.distance, k), of(mine.length, k), lane, group);
    }
}

// Sequences of a block, of a group.
template <u32 LANES>
struct Block {
    static constexpr u32 OF_LANE = Codes<LANES>::OF_LANE;
    Codes<LANES>& codes;
    const u32* lengths;
    u32* described;
    u32 lane, group;
    u32 before[3] = {1, 4, 8};  // the distances of those before
    Backward bits = {};
    u32 logs = 0, literal = 0, offset = 0, match = 0;  // of the codes, and their states
    u32 number = 0;           // of those that are left
    u32 ahead[OF_LANE] = {};  // words of the stream from the next bit on down

    __device__ void load() {
#pragma unroll
        for (u32 k = 0; k < OF_LANE; ++k) ahead[k] = bits.word((bits.at >> 5) - int(k * LANES + lane));
    }

    // Reads the codes of those in the bytes from `at` to `end`, at least one; false if they are wrong.
    __device__ bool begin(const u8* __restrict__ from, u32 at, u32 end, u32 size) {
        u32 count = from[at++];
        if (count > 127) {
            const u32 more = count == 255 ? 2 : 1;
            if (end - at < more) return false;
            count = count == 255 ? (from[at] | u32(from[at + 1]) << 8) + 0x7f00 : (count - 128) << 8 | from[at];
            at += more;
        }
        bits.at = bits.bottom = 0;
        if (count == 0) return at == end;
        if (at == end) return false;
        const u32 modes = from[at++];
        if (modes & 3 || !read_codes(codes, described, logs, modes, from, at, end, size, lane, group)) return false;
        if (!bits.begin(from + at, end - at)) return false;
        literal = bits.take(logs & 255);
        offset = bits.take(logs >> 8 & 255);
        match = bits.take(logs >> 16);
        load();
        number = count;
        return true;
    }

    // Executes some sequences of each group that has any; false if they are wrong.
    __device__ bool execute_some(Made& out) {
        const u32 some = min(number, LANES);
        if (some) {
#pragma unroll
            for (u32 k = 0; k < OF_LANE; ++k) codes.window[k * LANES + lane] = ahead[k];
        }
        __syncwarp();
        Sequence mine = {0, 0, 0};
        if (some) {
            const int highest = bits.at & ~31;
            Sequences all = {{codes.states, logs & 255}, {codes.states + OFFSET_STATES, logs >> 8 & 255},
                             {codes.states + MATCH_STATES, logs >> 16}, codes.window, lengths, literal, offset, match,
                             bits.at & 31};
#pragma unroll 2
            for (u32 k = 0; k < some; ++k) {
                const Sequence one = all.next(before);
                if (k == lane) mine = one;
            }
            literal = all.literal, offset = all.offset, match = all.match;
            number -= some;
            bits.at = highest + all.at + (number ? 0 : int(all.of_states));
            load();  // while bytes are copied
        }
        const u32 upto = sum_to_here<LANES>(mine.some + mine.length, lane), with = sum_to_here<LANES>(mine.some, lane);
        const u32 begin = out.made + upto - mine.length, place = with - mine.some;
        const u32 made = out.made + __shfl_sync(ALL, upto, LANES - 1, LANES);
        const u32 literals = __shfl_sync(ALL, with, LANES - 1, LANES);
        const u32 wrong = lanes_that<LANES>(mine.length && mine.distance - 1 >= begin);
        const bool good = !some || (!wrong && literals <= out.of_literals && made <= out.room - (out.of_literals - literals));
        if (!good) number = 0;
        const bool in_order = good && some && out.inside && made > u32(out.literals - out.to);
        if (in_order) execute_in_order<LANES>(out.to, mine, begin, out.literals, place, some, lane, group);
        if (!good || in_order) mine = {0, 0, 0};
        execute<LANES>(out.to, out.made, mine, begin, out.literals, place, lane, group);
        __syncwarp();
        if (good && some) {
            out.made = made;
            out.literals += literals;
            out.of_literals -= literals;
        }
        return good;
    }

    // Copies the literals behind the last one; false if its stream does not end there.
    __device__ bool end(Made& out) {
        if (bits.at != bits.bottom) return false;
        u8* const rest = out.to + out.made;
        if (!out.inside) {
            copy_apart<LANES>(rest, out.literals, out.of_literals, lane);
        } else if (rest != out.literals) {
            move_down<LANES>(rest, out.literals, out.of_literals, lane, group);
        }
        out.made += out.of_literals;
        return true;
    }
};
