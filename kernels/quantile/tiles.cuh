// What the read of bracket.cu is made of: tiles of samples, and additions by units that have nothing to compare.
#pragma once

#include "common/stream.cuh"
#include "quantile/keys.cuh"

template <u32 N>
struct Number {
    static constexpr u32 value = N;
};
template <typename T>
constexpr bool IS_FLOAT = T(0.5) != T(0);

template <typename T>
inline __device__ T value_of(u64 bits) {
    union {
        typename Key<T>::type bits;
        T value;
    } own{typename Key<T>::type(bits)};
    return own.value;
}

// Adds by the units that multiply, since those that add have comparisons to do. `one` hides the constant from the compiler.
template <u32 STEP>
inline __device__ void add_if(u32& sum, bool wanted, u32 one) {
#if ON_GPU
    asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %1, 0;\n\t@p mad.lo.u32 %0, %2, %3, %0;\n\t}"
        : "+r"(sum) : "r"(u32(wanted)), "r"(one), "n"(STEP));
#else
    sum += wanted ? STEP * one : 0;
#endif
}

// All blocks read the samples once: whole tiles of LOADS 16-byte loads a thread, and what is before and behind them one by one.
template <typename T, typename Tile, typename One>
inline __device__ void scan_tiles(const T* samples, i64 n, Tile count_tile, One count_one) {
    constexpr int PER_PACK = 16 / sizeof(T);
    constexpr i64 TILE = THREADS * LOADS;  // packs
    union {
        uint4 packs[LOADS];
        T items[LOADS * PER_PACK];
    } loaded, next;
    const i64 misaligned = i64(reinterpret_cast<u64>(samples) % 16 / sizeof(T));
    const i64 head = min(n, misaligned ? PER_PACK - misaligned : i64(0)), tiles = (n - head) / (TILE * PER_PACK);
    const auto* const packs = reinterpret_cast<const uint4*>(samples + head) + threadIdx.x;
    const auto load = [&](uint4* into, i64 tile) {
#pragma unroll
        for (int k = 0; k < LOADS; ++k) into[k] = __ldcs(packs + tile * TILE + k * THREADS);
    };
    if (blockIdx.x < tiles) load(loaded.packs, blockIdx.x);
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        if (tile + gridDim.x < tiles) load(next.packs, tile + gridDim.x);
        count_tile(loaded.items);
#pragma unroll
        for (int k = 0; k < LOADS; ++k) loaded.packs[k] = next.packs[k];
    }
    const i64 counted = tiles * TILE * PER_PACK;
#pragma unroll 1
    for (i64 i = i64(blockIdx.x) * THREADS + threadIdx.x; i < n - counted; i += i64(gridDim.x) * THREADS)
        count_one(samples[i < head ? i : i + counted]);
}
