// A block's counters in shared memory, one for each counter of its window.
//
// An atomicAdd of a constant 1 to a u32 with the old value unused compiles to the fused shared-memory increment, which
// also merges equal addresses within a warp (sm_80 and newer); a wider counter would become a compare-and-swap loop.
// The wrapper gives a block fewer than 2^32 samples.
#pragma once

#include "common/stream.cuh"

#if ON_GPU
// Address of word or words `number`, `stride` bytes apart. For the plain expression the compiler takes three
// instructions; a multiply-add is one, in a less busy unit.
inline __device__ u32 shared_address(u32 first, u32 number, u32 stride) {
    u32 address;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(address) : "r"(number), "r"(stride), "r"(first));
    return address;
}
inline __device__ void increment_at(u32 address) {
    asm volatile("red.shared.add.u32 [%0], 1;" : : "r"(address) : "memory");
}
#endif

// Adds one to words[number * stride / 4].
inline __device__ void increment(u32* words, u32 number, u32 stride) {
#if ON_GPU
    increment_at(shared_address(u32(__cvta_generic_to_shared(words)), number, stride));
#else
    atomicAdd(words + number * (stride / 4), 1u);
#endif
}

// Counters a power of two apart, as those of round numbers are, would share a bank: 1/32 + 1/1024 as many words more
// spread them, in one multiply-add. SPREAD: in units of 2^-32.
constexpr u32 SPREAD = (1u << 27) + (1u << 22);
inline __device__ u32 spread(u32 number) { return number + __umulhi(number, SPREAD); }
// For every second number: half of that.
inline __device__ u32 spread_pairs(u32 number) { return __umulhi(number, (1u << 31) + SPREAD / 2); }

// `second` if a number is odd. For the plain expression the compiler takes an instruction more.
inline __device__ u32 second_if_odd(u32 first, u32 second, u32 number) {
#if ON_GPU
    u32 chosen;
    asm("{\n\t.reg .pred p;\n\t.reg .u32 bit;\n\tand.b32 bit, %3, 1;\n\tsetp.ne.u32 p, bit, 0;\n\tselp.u32 %0, %2, %1, p;\n\t}"
        : "=r"(chosen) : "r"(first), "r"(second), "r"(number));
    return chosen;
#else
    return number & 1 ? second : first;
#endif
}

// A counter has COPIES words, shared out among the lanes, because increments of the same bank serialize.
template <int COPIES>
struct Counters {
    static_assert((COPIES & (COPIES - 1)) == 0 && COPIES <= 32, "a copy is chosen by the low bits of the lane");
    u32* words;
    u32* mine;
    u32 stride;  // bytes; the zero added for a single copy hides the constant from the compiler

    __device__ explicit Counters(u32* shared)
        : words(shared), mine(shared + threadIdx.x % COPIES), stride(COPIES * 4 + (COPIES == 1 ? gridDim.x >> 31 : 0)) {}

    // Index of a counter's first copy. With many copies, lanes use different banks anyway.
    static __device__ u32 place(u32 counter) { return COPIES >= 16 ? counter : spread(counter); }

    // Adds one to the counter at a place.
    __device__ void add(u32 at) { increment(mine, at, stride); }
    __device__ u64 total(u32 at) const {
        u64 sum = 0;
        for (int k = 0; k < COPIES; ++k) sum += words[at * COPIES + (threadIdx.x + k) % COPIES];
        return sum;
    }
};
