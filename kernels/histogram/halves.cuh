// Counters of which two blocks hold half each: both read the same samples, mostly from the L2 cache.
//
// `counter * multiplier`, modulo 2^32, spreads the counters evenly over a circle. One block has those on its first half, the
// other those on its second half. How far round a counter is gives its place in shared memory. Bins that are multiples of
// a number are then shared out among both blocks and all banks. The host has found a multiplier that leaves each counter a
// place of its own (halves.py).
#pragma once

#include "common/counters.cuh"

struct Halves {
    u64* slots;
    u32 all, places, multiplier;  // counters; places of a half

    // `phase`: turns the circle so that the block's half is the first. Counters of the other half share the place after it.
    __device__ u32 place(u32 counter, u32 phase) const {
        return __umulhi(min(counter * multiplier + phase, 1u << 31), 2 * places);
    }
};

template <typename T, typename Locate>
__device__ void count_halves(const T* samples, i64 n, Locate locate, Halves halves, u32* shared) {
    const u32 phase = blockIdx.x << 31;
    Counters<1> counters(shared);
    const auto prepare = [&] {
        for (u32 i = threadIdx.x; i <= halves.places; i += THREADS) shared[i] = 0;
        __syncthreads();
    };
    const auto count = [&](T x) { counters.add(halves.place(locate(x), phase)); };
    // Loads that are the first to be evicted: both blocks of a pair read in step, and the cache is for other pairs.
    scan_samples<LOADS, Locate::NEXT, true>(samples, n, Share{blockIdx.x / 2, gridDim.x / 2}, prepare, count);
    __syncthreads();
    for (u32 counter = threadIdx.x; counter < halves.all; counter += THREADS) {
        const u32 place = halves.place(counter, phase);
        const u64 sum = place < halves.places ? counters.total(place) : 0;
        if (sum) atomicAdd(halves.slots + locate.slot(counter), sum);
    }
}
