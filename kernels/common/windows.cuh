// Counters that are more than a block can hold, divided into windows, one per block: blocks of different windows read the
// same samples at the same time, mostly from the L2 cache.
#pragma once

#include "common/counters.cuh"

// Where counts go: `all` counters. A window has at most `length` of them.
struct Windows {
    u64* slots;
    u32 all, length;
};

// WINDOWS: 1, 2, or 0 for any number. Two windows take alternate counters, so that blocks of both have the same load
// whatever the distribution; more than two are contiguous.
// `locate`: the counter of a sample, below `all`; slot(counter): where its count goes; NEXT.
template <typename T, int COPIES, int WINDOWS, typename Locate>
__device__ void count_samples(const T* samples, i64 n, Locate locate, Windows windows, u32* shared) {
    const u32 number = WINDOWS ? WINDOWS : (windows.all + windows.length - 1) / windows.length;
    const u32 mine = WINDOWS == 1 ? 0 : blockIdx.x % number;
    // Counters of this window: `length` of them from `first` on, `apart` from each other.
    constexpr u32 apart = WINDOWS == 2 ? 2 : 1;
    const u32 first = WINDOWS ? mine : mine * windows.length;
    const u32 length = WINDOWS == 2 ? (windows.all - mine + 1) / 2 : min(windows.length, windows.all - first);
    Counters<COPIES> counters(shared);
    // Where a counter is. Two windows leave the numbers as they are, which saves a subtraction.
    const auto place = [&](u32 counter) { return WINDOWS == 2 ? spread_pairs(counter) : counters.place(counter - first); };
    // Samples of other windows go to a dummy counter after this one, which is cheaper than a branch.
    const u32 dummy = place(first + (length - 1) * apart) + 1;
    const auto prepare = [&] {
        for (u32 i = threadIdx.x; i < (dummy + 1) * COPIES; i += THREADS) shared[i] = 0;
        __syncthreads();
    };
    const auto count = [&](T x) {
        const u32 counter = locate(x);
        if (WINDOWS == 1) counters.add(place(counter));
        else counters.add(WINDOWS == 2 ? second_if_odd(place(counter), dummy, counter ^ mine)
                                       : counter - first < length ? place(counter) : dummy);
    };
    const Share share{blockIdx.x / number, gridDim.x / number};
    scan_samples<LOADS, Locate::NEXT, WINDOWS == 1>(samples, n, share, prepare, count);
    __syncthreads();
    for (u32 i = threadIdx.x; i < length; i += THREADS) {
        const u32 counter = first + (i + blockIdx.x / number * THREADS) % length * apart;  // other blocks are elsewhere
        const u64 sum = counters.total(place(counter));
        if (sum) atomicAdd(windows.slots + locate.slot(counter), sum);
    }
}
