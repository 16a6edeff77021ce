// Streams an array once at memory bandwidth: the read loop of every kernel that scans its input.
#pragma once

#include "common/types.cuh"

constexpr int THREADS = 1024;
constexpr int LOADS = 4;  // independent 16-byte loads in flight per thread: enough to hide the memory latency

// Two blocks per multiprocessor where it holds 2048 threads, which limits a thread to 32 registers.
constexpr int BLOCKS_PER_SM = THREADS_PER_SM == 2048 ? 2 : 1;

// A block's share of an array: every `blocks`-th tile, from tile `block` on.
struct Share {
    i64 block, blocks;
};

// When the next tile is loaded. LATER: once this one is counted. COPIED: before that, into a second buffer that is then
// copied to the first. IN_TURNS: before that, alternating between two buffers, which saves an instruction per word and
// doubles the code.
enum class Next { LATER, COPIED, IN_TURNS };

// Architectures after Hopper have fewer registers left for a second tile.
constexpr Next AHEAD = AFTER_HOPPER ? Next::LATER : Next::COPIED;

// Every thread counts its share of the samples: whole tiles by 16-byte loads, the head and the tail one by one. `prepare`
// runs while the first loads are in flight. ONCE: no other block reads the samples.
template <int LOADS, Next NEXT, bool ONCE, typename T, typename Prepare, typename Count>
__device__ void scan_samples(const T* samples, i64 n, Share share, Prepare prepare, Count count) {
    constexpr int PER_LOAD = 16 / sizeof(T);
    constexpr int TILE = THREADS * LOADS;  // 16-byte packs per block and iteration
    const i64 misaligned = i64(reinterpret_cast<u64>(samples) % 16 / sizeof(T));
    const i64 head = min(n, misaligned ? PER_LOAD - misaligned : i64(0));
    const i64 tiles = (n - head) / (TILE * PER_LOAD);

    const auto* packs = reinterpret_cast<const uint4*>(samples + head) + threadIdx.x;
    union Pack {
        uint4 words;
        T item[PER_LOAD];
    } loaded[LOADS], next[LOADS];
    const auto load = [&](Pack* into, i64 tile) {
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const uint4* const pack = packs + tile * TILE + k * THREADS;
            into[k].words = ONCE ? __ldcs(pack) : *pack;
        }
    };
    const auto count_tile = [&](const Pack* tile) {
#pragma unroll
        for (int i = 0; i < LOADS * PER_LOAD; ++i) count(tile[i / PER_LOAD].item[i % PER_LOAD]);
    };
    i64 tile = share.block;
    if (tile < tiles) load(loaded, tile);
    prepare();
    for (; tile < tiles; tile += share.blocks) {
        const i64 second = tile + share.blocks;
        if (NEXT != Next::LATER && second < tiles) load(next, second);
        count_tile(loaded);
        if (NEXT == Next::IN_TURNS) {
            if (second >= tiles) break;
            tile = second;
            if (tile + share.blocks < tiles) load(loaded, tile + share.blocks);
            count_tile(next);
        } else if (NEXT == Next::COPIED) {
#pragma unroll
            for (int k = 0; k < LOADS; ++k) loaded[k] = next[k];
        } else if (second < tiles) {
            load(loaded, second);
        }
    }

    const i64 thread = share.block * THREADS + threadIdx.x;
    if (thread < head) count(samples[thread]);
#pragma unroll 1  // the tail is short; unrolled, it needs more than 32 registers per thread
    for (i64 i = head + tiles * TILE * PER_LOAD + thread; i < n; i += share.blocks * THREADS) count(samples[i]);
}

// The same by all blocks, with nothing to prepare.
template <typename T, typename Count>
__device__ void for_each_sample(const T* samples, i64 n, Count count) {
    scan_samples<LOADS, Next::LATER, true>(samples, n, Share{blockIdx.x, gridDim.x}, [] {}, count);
}
