// What the seminar says of a multiprocessor: how soon memory answers, and what lanes cost that go different ways.
//
// Variants:
//   global_chain   one thread follows a chain of indices through global memory, more than any cache holds
//   shared_chain   global_chain through the block's shared memory
//   uniform_warps  every thread takes one of two ways, all lanes of a warp the same
//   divergent      uniform_warps with neighbouring lanes on different ways: a warp walks both

#include "common/types.cuh"

// Each load has to wait for the one before, so time is latency. The chain in shared memory begins with a copy.
template <bool SHARED>
__global__ void chain(const int* next, int n, int steps, int* end) {
    extern __shared__ int held[];
    if (SHARED) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) held[i] = next[i];
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    const int* const from = SHARED ? held : next;
    int place = 0;
    for (int step = 0; step < steps; ++step) place = from[place];
    *end = place;
}

// Loops, because the compiler would compute both of two short ways and select.
template <bool DIVERGENT>
__global__ void ways(const u32* numbers, u32* results, i64 n, int steps) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 x = numbers[i];
    if ((DIVERGENT ? i : i / 32) % 2) {
        for (int step = 0; step < steps; ++step) x = x * 1664525u + 1013904223u;
    } else {
        for (int step = 0; step < steps; ++step) x = (x ^ x >> 15) * 22695477u;
    }
    results[i] = x;
}
