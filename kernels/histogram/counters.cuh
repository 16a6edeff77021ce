// The counters of a block in its shared memory, one for each bin that it counts.
//
// u32 and a constant 1 with the old value unused is what the compiler turns into the fused shared-memory increment,
// which also merges equal addresses in a warp (sm_80 and newer); a wider counter would become a compare-and-swap loop.
// The wrapper keeps the samples of a block below 2^32.
#pragma once

#include "common/stream.cuh"

// Adds one to words[number * stride / 4]. By the plain statement the compiler takes three instructions to the address; this
// is one: a shift and addition, or, where it does not know the stride, a multiplication and addition, which are done where
// more time is left.
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

// A counter has COPIES words, spread over lanes: lanes that increment the same bank wait for each other. FEW: so few
// counters that some next to each other may be all that samples fall into.
template <int COPIES, bool FEW>
struct Counters {
    static_assert((COPIES & (COPIES - 1)) == 0 && COPIES <= 32, "a copy is chosen by the low bits of the lane");
    u32* words;
    u32* mine;
    u32 stride;  // bytes; of single words the compiler cannot know that nothing is added to it

    __device__ explicit Counters(u32* shared)
        : words(shared), mine(shared + threadIdx.x % COPIES), stride(COPIES * 4 + (COPIES == 1 ? gridDim.x >> 31 : 0)) {}

    // Where a counter is. Counters a power of two apart, as round numbers are, would be in one bank; where a counter has
    // words in many banks they keep lanes apart well enough.
    static __device__ u32 place(u32 counter) {
        return COPIES >= 16 ? counter : counter + (FEW ? counter >> 5 : 0) + (counter >> 10);
    }
    // Words in all, an even number.
    static __device__ u32 size(u32 length) { return ((place(length) + 1) * COPIES + 1) / 2 * 2; }

    __device__ void add(u32 counter) { increment(mine, place(counter), stride); }
    __device__ u64 total(u32 counter) const {
        u64 sum = 0;
        for (int k = 0; k < COPIES; ++k) sum += words[place(counter) * COPIES + (threadIdx.x + k) % COPIES];
        return sum;
    }
};
