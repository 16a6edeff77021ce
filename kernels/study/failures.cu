// Failures of the courses that no ladder shows, each beside the right way.
//
// Variants:
//   ordered_pair    one warp computes A = 0, A = A + 1; behind a barrier another one B = A, B = B + 1
//   racing_pair     ordered_pair without the barrier; broken: B begins with whatever A is at that moment
//   wide_sum        integers added up in 64 bits
//   narrow_sum      wide_sum in 32 bits; broken: the sum wraps
//   uninitialised   wide_sum of an input that was copied by half; broken: adds what the memory held before
//   short_launches  one thread adds everything up, a piece in each launch, and every launch ends in time
//   too_long        one thread adds everything up in one launch; broken: a watchdog ends it, and there is no sum
//
// The watchdog is in the kernel: drivers have one only on GPUs that draw a screen, and it ends the whole process.

#include "common/types.cuh"

// A block for each pair: `before` is what A holds at first, the results are A and B.
__global__ void ordered_pair(const int* before, int* results) {
    __shared__ volatile int a;
    if (threadIdx.x == 0) {
        a = before[blockIdx.x];
        a = 0;
        a = a + 1;
        results[2 * i64(blockIdx.x)] = a;
    }
    __syncthreads();
    if (threadIdx.x == 32) {
        int b = a;
        b = b + 1;
        results[2 * i64(blockIdx.x) + 1] = b;
    }
}

// The second warp comes before, between or after the two steps of the first, in turns: so all outcomes are seen.
__global__ void racing_pair(const int* before, int* results, i64 cycles) {
    __shared__ volatile int a;
    const auto wait = [](i64 cycles) {
        for (const i64 began = clock64(); clock64() - began < cycles;) {}
    };
    if (threadIdx.x == 0) a = before[blockIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        wait(cycles);
        a = 0;
        wait(2 * cycles);
        a = a + 1;
        results[2 * i64(blockIdx.x)] = a;
    }
    if (threadIdx.x == 32) {
        wait(2 * (blockIdx.x % 3) * cycles);
        int b = a;
        b = b + 1;
        results[2 * i64(blockIdx.x) + 1] = b;
    }
}

template <typename Sum>
__global__ void add_up(const int* samples, i64 n, Sum* total) {
    Sum own = 0;
    const i64 stride = i64(gridDim.x) * blockDim.x;
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) own += Sum(samples[i]);
    atomicAdd(total, own);
}

// Ends after so many cycles without a result, as a kernel that a watchdog ends.
__global__ void one_by_one(const int* samples, i64 n, u64* total, i64 cycles) {
    u64 own = 0;
    const i64 began = clock64();
    for (i64 i = 0; i < n; ++i) {
        if (clock64() - began > cycles) return;
        own += u64(i64(samples[i]));
    }
    *total += own;
}
