// The last block turns what all blocks stored into a partial.
#pragma once

#include "reduce/tile.cuh"

// A key and its position: twice the index, plus one for -0.0.
template <typename T> __device__ i64 position(const T* samples, i64 index) {
    return 2 * index + negative_zero(samples[index]);
}

// Called by all threads; true in the last block, when the stores of all others are visible.
inline __device__ bool is_last(u64* totals) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(&totals[ARRIVED], u64(1)) == gridDim.x - 1;
        if (last) atomicExch(&totals[ARRIVED], u64(0));
        __threadfence();
    }
    __syncthreads();
    return last;
}

// Index, within its tile, of the first sample with a rank among those of `thread` in half a block; NONE if there is
// none.
template <typename T, typename Order> __device__ u32 look_up(const Walk<T>& walk, Found extreme, int thread) {
    constexpr int THREADS = REDUCE_THREADS / 2, PER_LOAD = Walk<T>::PER_LOAD;
    const i64 start = walk.start_of(extreme.at), end = walk.start_of(extreme.at + 1);
    u32 place = NONE;
    const auto see = [&](T x, i64 at) {
        if (Order::rank(to_key(wide(x))) == extreme.key) place = min(place, u32(at));
    };
    if (extreme.at > 0 && extreme.at <= walk.tiles) {
        const auto* const packs = reinterpret_cast<const uint4*>(walk.samples + start);
        constexpr int LOADS = Walk<T>::SIZE / PER_LOAD / THREADS;
        union {
            uint4 pack[LOADS];
            T item[LOADS * PER_LOAD];
        } loaded;
#pragma unroll
        for (int k = 0; k < LOADS; ++k) loaded.pack[k] = packs[k * THREADS + thread];
#pragma unroll
        for (int j = LOADS * PER_LOAD - 1; j >= 0; --j)
            see(loaded.item[j], (j / PER_LOAD * THREADS + thread) * PER_LOAD + j % PER_LOAD);
    } else {
        for (i64 i = start + thread; i < end; i += THREADS) see(walk.samples[i], i - start);
    }
    return place;
}

template <typename T, typename Order> __device__ Found exact_place(const T* samples, i64 index) {
    return {Order::rank(to_key(number(samples[index]))), position(samples, index)};
}

// Called by all threads of one block.
template <typename T, int PARTS> __device__ void finish(const Walk<T>& walk, i64 code, u64* totals, i64* partial) {
    constexpr int WARPS = REDUCE_THREADS / 32, COUNT = Counters<PARTS>::COUNT;
    constexpr bool FINDS = PARTS & EXTREMES;
    __shared__ Found least_of[WARPS], greatest_of[WARPS];
    __shared__ u32 place[2];
    __shared__ i64 special[4], digits[DIGITS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, count = int(gridDim.x);
    if (threadIdx.x < COUNT) digits[threadIdx.x] = i64(atomicExch(&totals[TOTAL_DIGITS + threadIdx.x], u64(0)));
    if (threadIdx.x < 4) special[threadIdx.x] = i64(atomicExch(&totals[SPECIAL + threadIdx.x], u64(0)));
    if (threadIdx.x < 2) place[threadIdx.x] = NONE;
    Found least{NOWHERE, NOWHERE}, greatest = least;
    if constexpr (FINDS) {
        const u64* const extremes = totals + FOUND;
#pragma unroll 2
        for (int i = threadIdx.x; i < count; i += REDUCE_THREADS) {
            least = first(least, {i64(__ldcg(extremes + i)), i64(__ldcg(extremes + count + i))});
            greatest = first(greatest, {i64(__ldcg(extremes + 2 * count + i)), i64(__ldcg(extremes + 3 * count + i))});
        }
        least = first_of_warp(least);
        greatest = first_of_warp(greatest);
        if (lane == 0) least_of[warp] = least, greatest_of[warp] = greatest;
    }
    __syncthreads();
    if (FINDS && warp >= WARPS / 2) {
        least = first_of_warp(least_of[lane % WARPS]);
        greatest = first_of_warp(greatest_of[lane % WARPS]);
        if (least.at != NOWHERE) {
            const int thread = threadIdx.x - REDUCE_THREADS / 2;
            const u32 low = look_up<T, Least>(walk, least, thread), high = look_up<T, Greatest>(walk, greatest, thread);
            if (low != NONE) atomicMin(&place[0], low);
            if (high != NONE) atomicMin(&place[1], high);
        }
    } else if (warp == 0) {
        if constexpr (PARTS & SUM) to_words<SUM_DIGITS, SUM_WORDS>(digits, reinterpret_cast<u64*>(partial) + SUM_AT);
        else for (int i = lane; i < SUM_WORDS; i += 32) partial[SUM_AT + i] = 0;
    } else if (warp == 1) {
        if constexpr (PARTS & SQUARES)
            to_words<SQUARE_DIGITS, SQUARE_WORDS>(digits + SQUARES_FROM, reinterpret_cast<u64*>(partial) + SQUARES_AT);
        else for (int i = lane; i < SQUARE_WORDS; i += 32) partial[SQUARES_AT + i] = 0;
    } else if (threadIdx.x == 64) {
        partial[0] = code;
        partial[1] = PARTS;
        partial[2] = walk.n;
        for (int i = 0; i < 3; ++i) partial[3 + i] = special[i];
        partial[6] = special[3] ? 2 * (i64(NONE) - special[3]) : NOWHERE;
    }
    if constexpr (FINDS) {
        __syncthreads();
    }
    if (warp >= WARPS / 2 && lane == 0) {
        if (FINDS && least.at != NOWHERE) {
            if (warp == WARPS / 2) least = exact_place<T, Least>(walk.samples, walk.start_of(least.at) + place[0]);
            else greatest = exact_place<T, Greatest>(walk.samples, walk.start_of(greatest.at) + place[1]);
        }
        if (warp == WARPS / 2) partial[7] = least.at, partial[9] = least.key;
        if (warp == WARPS / 2 + 1) partial[8] = greatest.at, partial[10] = ~greatest.key;
    }
}
