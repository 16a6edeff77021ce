// Reading an array once, at the speed of the memory: what every kernel does that passes over its input.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

constexpr int THREADS = 1024;
constexpr int LOADS = 4;  // independent 16-byte loads in flight per thread: enough to cover the latency of memory

// Two blocks a multiprocessor where 2048 threads fit on one: it asks for at most 32 registers.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 750 || __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || \
    __CUDA_ARCH__ >= 1200
constexpr int BLOCKS_PER_SM = 1;
#else
constexpr int BLOCKS_PER_SM = 2;
#endif

// Every thread counts its share of the samples: whole tiles by 16-byte loads, what is before and after them one by one.
template <typename T, typename Count>
__device__ void for_each_sample(const T* samples, i64 n, Count count) {
    constexpr int PER_LOAD = 16 / sizeof(T);
    constexpr int TILE = THREADS * LOADS;  // 16-byte packs that a block counts at a time
    const i64 misaligned = i64(reinterpret_cast<u64>(samples) % 16 / sizeof(T));
    const i64 head = min(n, misaligned ? PER_LOAD - misaligned : i64(0));
    const i64 tiles = (n - head) / (TILE * PER_LOAD);

    const auto* packs = reinterpret_cast<const uint4*>(samples + head) + threadIdx.x;
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        union {
            uint4 pack[LOADS];
            T item[LOADS * PER_LOAD];
        } loaded;
#pragma unroll
        for (int k = 0; k < LOADS; ++k) loaded.pack[k] = __ldcs(packs + tile * TILE + k * THREADS);
#pragma unroll
        for (int j = 0; j < LOADS * PER_LOAD; ++j) count(loaded.item[j]);
    }

    const i64 thread = i64(blockIdx.x) * THREADS + threadIdx.x;
    if (thread < head) count(samples[thread]);
#pragma unroll 1  // a tail is short; unrolled it costs registers that 32 a thread do not leave
    for (i64 i = head + tiles * TILE * PER_LOAD + thread; i < n; i += i64(gridDim.x) * THREADS) count(samples[i]);
}
