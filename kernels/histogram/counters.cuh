// A block's counters in shared memory, one for each bin of its window.
//
// An atomicAdd of a constant 1 to a u32 with the old value unused compiles to the fused shared-memory increment, which
// also merges equal addresses within a warp (sm_80 and newer); a wider counter would become a compare-and-swap loop.
// The wrapper gives a block fewer than 2^32 samples.
#pragma once

#include "common/stream.cuh"

// Adds one to words[number * stride / 4]. For the plain expression the compiler computes the address in three
// instructions; here it takes one: a shift-add or, if the stride is unknown, a multiply-add, which runs in a less busy
// unit.
inline __device__ void increment(u32* words, u32 number, u32 stride) {
#if ON_GPU
    u32 address;
    asm("mad.lo.u32 %0, %1, %2, %3;"
        : "=r"(address) : "r"(number), "r"(stride), "r"(u32(__cvta_generic_to_shared(words))));
    asm volatile("red.shared.add.u32 [%0], 1;" : : "r"(address) : "memory");
#else
    atomicAdd(words + number * (stride / 4), 1u);
#endif
}

// A counter has COPIES words, shared out among the lanes, because increments of the same bank serialize. FEW: so few
// counters that all samples may fall into a few adjacent ones.
template <int COPIES, bool FEW>
struct Counters {
    static_assert((COPIES & (COPIES - 1)) == 0 && COPIES <= 32, "a copy is chosen by the low bits of the lane");
    u32* words;
    u32* mine;
    u32 stride;  // bytes; the zero added for a single copy hides the constant from the compiler

    __device__ explicit Counters(u32* shared)
        : words(shared), mine(shared + threadIdx.x % COPIES), stride(COPIES * 4 + (COPIES == 1 ? gridDim.x >> 31 : 0)) {}

    // Index of a counter's first copy. Counters a power of two apart, as those of round numbers are, would share a
    // bank; with many copies, lanes use different banks anyway.
    static __device__ u32 place(u32 counter) {
        return COPIES >= 16 ? counter : counter + (FEW ? counter >> 5 : 0) + (counter >> 10);
    }
    // Total number of words, even.
    static __device__ u32 size(u32 length) { return ((place(length) + 1) * COPIES + 1) / 2 * 2; }

    __device__ void add(u32 counter) { increment(mine, place(counter), stride); }
    __device__ u64 total(u32 counter) const {
        u64 sum = 0;
        for (int k = 0; k < COPIES; ++k) sum += words[place(counter) * COPIES + (threadIdx.x + k) % COPIES];
        return sum;
    }
};
