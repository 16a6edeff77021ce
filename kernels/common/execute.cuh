// Sequences of literals and matches, executed by groups of lanes, each of which has one of them; by all groups of a warp
// side by side, since a warp waits for its groups one after another.
#pragma once

#include "common/copies.cuh"

constexpr u32 ALL = ~0u;    // lanes of a warp
constexpr u32 ALONE = 127;  // bytes at most that a lane copies beside others
constexpr u32 FIRST_BLOCKS = 16, BLOCK_BYTES = 256;  // of a chunk: so many, and one more for so many bytes; more take long

// How far a group is with its chunk.
enum class State { UNDER_WAY, RIGHT, WRONG };

// Literals that are copied, and a match behind them, so far before its place.
struct Sequence {
    u32 some, length, distance;
};

// The sum of a value of this lane and of those before it in its group.
template <u32 LANES>
inline __device__ u32 sum_to_here(u32 value, u32 lane) {
#pragma unroll
    for (u32 k = 1; k < LANES; k *= 2) {
        const u32 before = __shfl_up_sync(ALL, value, k, LANES);
        if (lane >= k) value += before;
    }
    return value;
}

// The lanes of this group for which it holds, as bits.
template <u32 LANES>
inline __device__ u32 lanes_that(bool hold) {
    return __ballot_sync(ALL, hold) >> threadIdx.x % 32 / LANES * LANES & u32((1ull << LANES) - 1);
}

// Executes sequences, one after another behind `made` bytes of `out`: the match of this lane is written at `begin`, and its
// literals are at `place` of `from`, apart from what is written. Lanes without a sequence have one of no bytes.
template <u32 LANES>
inline __device__ void execute(u8* out, u32 made, const Sequence& mine, u32 begin, const u8* from, u32 place, u32 lane,
                               u32 group) {
    u8* const to = out + begin;
    const u32 needed = begin - mine.distance, needed_end = needed + mine.length, before = (1u << lane) - 1;
    const u32 big = lanes_that<LANES>(max(mine.some, mine.length) > ALONE);
    const bool own = big >> lane & 1;
    const bool later = own || (mine.length && needed_end > made);
    copy_both_alone(to - mine.some, from + place, own ? 0 : mine.some, to, to - mine.distance, later ? 0 : mine.length);
    for (u32 rest = lanes_that<LANES>(later); __any_sync(ALL, rest);) {
        __syncwarp();
        const u32 first = rest ? u32(__ffs(int(rest))) - 1 : 0;
        const u32 lower = rest & before, nearest = lower ? 31 - __clz(lower) : lane;
        const u32 there = __shfl_sync(ALL, begin - mine.some, int(first), LANES);  // all before is
        const u32 behind = __shfl_sync(ALL, begin + mine.length, int(nearest), LANES);
        const bool together = rest & big & (1u << first);
        if (together) {
            const auto of = [&](u32 value) { return __shfl_sync(group, value, int(first), LANES); };
            const u32 some = of(mine.some), distance = of(mine.distance), length = of(mine.length);
            copy_apart<LANES>(out + there, from + of(place), some, lane);
            repeat_apart<LANES>(out + there + some, distance, length, lane, group);
        }
        const bool can = !lower || needed >= behind || needed_end <= there;
        const bool now = can && !own && !together && rest >> lane & 1;
        if (now) repeat_alone(to, mine.distance, mine.length);
        const u32 done = lanes_that<LANES>(now);
        rest &= together ? rest - 1 : ~done;
    }
}
