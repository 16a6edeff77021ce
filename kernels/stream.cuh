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

// What of an array the threads of a block see: with `blocks` of them each sees another part.
struct Share {
    i64 block, blocks;
};

// Every thread counts its share of the samples: whole tiles by 16-byte loads, what is before and after them one by one.
// `quick` says of a sample whether it is done with it; those it is not done with are given to `slow`. As soon as a load is
// counted, the same of the next tile is on its way. ONCE: nobody else reads the samples.
template <int LOADS, bool ONCE, typename T, typename Quick, typename Slow>
__device__ void scan_samples(const T* samples, i64 n, Share share, Quick quick, Slow slow) {
    constexpr int PER_LOAD = 16 / sizeof(T);
    constexpr int TILE = THREADS * LOADS;  // 16-byte packs that a block counts at a time
    const i64 misaligned = i64(reinterpret_cast<u64>(samples) % 16 / sizeof(T));
    const i64 head = min(n, misaligned ? PER_LOAD - misaligned : i64(0));
    const i64 tiles = (n - head) / (TILE * PER_LOAD);

    const auto* packs = reinterpret_cast<const uint4*>(samples + head) + threadIdx.x;
    union Pack {
        uint4 words;
        T item[PER_LOAD];
    } loaded[LOADS];
    const auto load = [&](int k, i64 tile) {
        const uint4* const pack = packs + tile * TILE + k * THREADS;
        loaded[k].words = ONCE ? __ldcs(pack) : *pack;
    };
    if (share.block < tiles)
#pragma unroll
        for (int k = 0; k < LOADS; ++k) load(k, share.block);
    for (i64 tile = share.block; tile < tiles; tile += share.blocks) {
        const bool more = tile + share.blocks < tiles;
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            bool done[PER_LOAD], all = true;
#pragma unroll
            for (int j = 0; j < PER_LOAD; ++j) all = (done[j] = quick(loaded[k].item[j])) && all;
            if (!all)
#pragma unroll
                for (int j = 0; j < PER_LOAD; ++j)
                    if (!done[j]) slow(loaded[k].item[j]);
            if (more) load(k, tile + share.blocks);
        }
    }

    const i64 thread = share.block * THREADS + threadIdx.x;
    const auto one = [&](T x) {
        if (!quick(x)) slow(x);
    };
    if (thread < head) one(samples[thread]);
#pragma unroll 1  // a tail is short; unrolled it costs registers that 32 a thread do not leave
    for (i64 i = head + tiles * TILE * PER_LOAD + thread; i < n; i += share.blocks * THREADS) one(samples[i]);
}

// The same for what is done with every sample at once.
template <typename T, typename Count>
__device__ void for_each_sample(const T* samples, i64 n, Count count) {
    const auto quick = [&](T x) {
        count(x);
        return true;
    };
    scan_samples<LOADS, true>(samples, n, Share{blockIdx.x, gridDim.x}, quick, [](T) {});
}
