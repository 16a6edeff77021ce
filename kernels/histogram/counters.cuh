// The counters of a block in shared memory, one for each bin of its window.
//
// u32 and a constant 1 with the old value unused is what the compiler turns into the fused shared-memory increment,
// which also merges equal addresses in a warp (sm_80 and newer); a wider counter would become a compare-and-swap loop.
// The wrapper gives a block fewer than 2^32 samples.
#pragma once

#include "common/stream.cuh"

// Adds one to words[number * stride / 4]. For the plain statement the compiler needs three instructions for the address;
// this is one: a shift-add, or, if it does not know the stride, a multiply-add, which runs in a less busy unit.
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

// A counter has COPIES words, spread over lanes, because lanes that increment the same bank wait for each other. FEW: so
// few counters that all samples may fall into some neighbouring ones.
template <int COPIES, bool FEW>
struct Counters {
    static_assert((COPIES & (COPIES - 1)) == 0 && COPIES <= 32, "a copy is chosen by the low bits of the lane");
    u32* words;
    u32* mine;
    u32 stride;  // bytes; of single words the compiler cannot know that nothing is added to it

    __device__ explicit Counters(u32* shared)
        : words(shared), mine(shared + threadIdx.x % COPIES), stride(COPIES * 4 + (COPIES == 1 ? gridDim.x >> 31 : 0)) {}

    // Index of a counter's first copy. Counters a power of two apart, as round numbers are, would share a bank; with many
    // copies their own banks keep lanes apart.
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
