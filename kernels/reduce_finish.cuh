// What finishing takes: where extremes are in the samples, and which digits there are.
#pragma once

#include "reduce_tile.cuh"

constexpr int FINISH_THREADS = 512, FINISH_WARPS = FINISH_THREADS / 32;

// Place of a sample in a partial: twice the index, and one for -0.0.
template <typename T> __device__ i64 position(const T* samples, i64 index) {
    return 2 * index + negative_zero(samples[index]);
}

inline __device__ void store_found(i64 nan, Found least, Found greatest, i64* partial) {
    partial[6] = nan;
    partial[7] = least.at;
    partial[8] = greatest.at;
    partial[9] = least.key;
    partial[10] = ~greatest.key;
}

// Index of the first sample of a rank, from the beginning of its tile, NONE if the thread has not seen it; half of the
// threads.
template <typename T, typename Order> __device__ u32 look_up(const Walk<T>& walk, Found found) {
    constexpr int THREADS = FINISH_THREADS / 2, PER_LOAD = Walk<T>::PER_LOAD;
    const int thread = threadIdx.x % THREADS;
    const i64 start = walk.start_of(found.at), end = walk.start_of(found.at + 1);
    u32 place = NONE;
    const auto see = [&](T x, i64 at) {
        if (Order::rank(to_key(wide(x))) == found.key) place = min(place, u32(at));
    };
    if (found.at > 0 && found.at <= walk.tiles) {
        const auto* const packs = reinterpret_cast<const uint4*>(walk.samples + start);
#pragma unroll 4
        for (int i = thread; i < Walk<T>::SIZE / PER_LOAD; i += THREADS) {
            union {
                uint4 pack;
                T item[PER_LOAD];
            } loaded;
            loaded.pack = packs[i];
#pragma unroll
            for (int j = 0; j < PER_LOAD; ++j) see(loaded.item[j], i * PER_LOAD + j);
        }
    } else {
        for (i64 i = start + thread; i < end; i += THREADS) see(walk.samples[i], i - start);
    }
    return place;
}

// From the first to the last of some digits that is not zero for some block: those have `masks`, and begin at `first`.
struct Range {
    int begin = 0, size = 0;
    __device__ Range(const u32* masks, int count, int first) {
        for (int k = 0; k < count; ++k) {
            if (!masks[k]) continue;
            if (size == 0) begin = first + 32 * k + __ffs(int(masks[k])) - 1;
            size = first + 32 * k + 32 - __clz(int(masks[k])) - begin;
        }
    }
};

template <typename T, typename Order> __device__ Found exact_place(const T* samples, i64 index) {
    return {Order::rank(to_key(number(samples[index]))), position(samples, index)};
}
