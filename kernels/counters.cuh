// The counters of a block in its shared memory, one for each slot that a launch counts.
//
// u32 and a constant 1 with the old value unused is what the compiler turns into the fused shared-memory increment,
// which also merges equal addresses in a warp (sm_80 and newer); a wider counter would become a compare-and-swap loop.
// The wrapper keeps the samples of a block below 2^32.
#pragma once

#include "stream.cuh"

// The slots that a launch counts, and where what is counted goes.
struct Window {
    u32 first, last;
    u64* slots;

    __device__ u32 length() const { return last - first; }
};

// Where a counter is, so that those that lie a power of two apart, as round numbers do, are in different banks.
inline __device__ u32 spread(u32 counter) { return counter ^ ((counter >> 5 ^ counter >> 10) & 31); }
inline __device__ u32 spread_length(u32 length) { return (length + 31) / 32 * 32; }

// A counter has COPIES words, spread over lanes: lanes that increment the same bank wait for each other. One more counter
// takes what is not to be counted: that costs less than a branch.
template <int COPIES>
struct Copies {
    static_assert((COPIES & (COPIES - 1)) == 0 && COPIES <= 32, "a copy is chosen by the low bits of the lane");
    u32* words;
    u32* mine;
    u32 length;

    template <typename T>
    static constexpr int loads() { return sizeof(T) < 4 ? 4 : 8; }
    static __device__ u32 size(Window window) { return spread_length(window.length() + 1) * COPIES; }

    __device__ Copies(u32* shared, Window window)
        : words(shared), mine(shared + threadIdx.x % COPIES), length(window.length()) {}

    // With many copies there are few counters in a bank's row, and the copies keep lanes apart.
    static __device__ u32 place(u32 counter) { return COPIES < 16 ? spread(counter) : counter; }

    // `wanted`: this sample is to be counted, unless its counter is the one after the last.
    __device__ void add(u32 counter, bool wanted) { atomicAdd(mine + place(wanted ? counter : length) * COPIES, 1u); }
    __device__ void turn() {}
    __device__ u64 total(u32 counter) const {
        u64 sum = 0;
        for (int k = 0; k < COPIES; ++k) sum += words[place(counter) * COPIES + (threadIdx.x + k) % COPIES];
        return sum;
    }
};

// Two counters share a word, so that twice as many slots fit. A counter that reaches HALF_FULL passes so many on to the
// slots at once: only the thread that brought it there does. Until that thread has taken them away others may come: in a
// turn, all of a block at most HALF_FULL - 1, so that nothing ever runs over into the other counter. These increments
// are not merged where lanes meet in one counter: what all of a warp have in common is added at once.
struct Halves {
    static constexpr u32 HALF_FULL = 0x8000;
    u32* pairs;
    Window window;

    template <typename T>
    static constexpr int loads() { return sizeof(T) < 4 ? 2 : 4; }
    static __device__ u32 size(Window window) { return spread_length((window.length() + 1) / 2); }

    __device__ Halves(u32* shared, Window window) : pairs(shared), window(window) {}

    __device__ void add(u32 counter, bool wanted) {
        u32 count = wanted && counter < window.length();
        const u32 lanes = __activemask();
        int same;
        __match_all_sync(lanes, count ? counter : ~0u, &same);
        if (same) count *= (lanes & ((1u << threadIdx.x % 32) - 1)) ? 0 : __popc(lanes);  // the lowest lane for all
        if (!count) return;
        u32* const pair = pairs + spread(counter / 2);
        const int half = counter % 2 * 16;
        const u32 old = atomicAdd(pair, count << half) >> half & 0xffff;
        if (old < HALF_FULL && old + count >= HALF_FULL) {
            atomicSub(pair, HALF_FULL << half);
            atomicAdd(window.slots + window.first + counter, u64(HALF_FULL));
        }
    }
    __device__ void turn() { __syncthreads(); }
    __device__ u64 total(u32 counter) const { return pairs[spread(counter / 2)] >> counter % 2 * 16 & 0xffff; }
};
