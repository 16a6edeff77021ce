// What the last block does: the rows of all blocks to a partial.
#pragma once

#include "reduce_tile.cuh"

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

// All threads; whether all other blocks have left their rows, which can be read then. The counter is zero before a
// launch and after it.
inline __device__ bool is_last(u32* arrived) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
        if (last) atomicExch(arrived, 0u);
        __threadfence();
    }
    __syncthreads();
    return last;
}

// Index of the first sample of a rank, from the beginning of its tile, NONE if the thread has not seen it; `thread` of
// half of the block.
template <typename T, typename Order> __device__ u32 look_up(const Walk<T>& walk, Found found, int thread) {
    constexpr int THREADS = REDUCE_THREADS / 2, PER_LOAD = Walk<T>::PER_LOAD;
    const i64 start = walk.start_of(found.at), end = walk.start_of(found.at + 1);
    u32 place = NONE;
    const auto see = [&](T x, i64 at) {
        if (Order::rank(to_key(wide(x))) == found.key) place = min(place, u32(at));
    };
    if (found.at > 0 && found.at <= walk.tiles) {
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

// All threads of one block; the rows of all blocks to a partial.
template <typename T, int PARTS>
__device__ void finish(const Walk<T>& walk, const i64* rows, i64 code, i64* partial) {
    constexpr int WARPS = REDUCE_THREADS / 32, COUNT = Counters<PARTS>::COUNT, OWN_MASKS = (COUNT + 31) / 32;
    constexpr bool FINDS = PARTS & EXTREMES;
    constexpr int COUNTING = FINDS ? WARPS / 2 : WARPS;  // warps; the others look the extremes up
    __shared__ Found least_of[WARPS], greatest_of[WARPS];
    __shared__ u32 special[3], mask[MASKS], place[2];
    __shared__ u64 first_nan;
    __shared__ i64 digits[DIGITS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, count = int(gridDim.x);
    const i64 column = count;
    if (threadIdx.x < DIGITS) digits[threadIdx.x] = 0;
    if (threadIdx.x < MASKS) mask[threadIdx.x] = 0;
    if (threadIdx.x < 3) special[threadIdx.x] = 0;
    if (threadIdx.x < 2) place[threadIdx.x] = NONE;
    if (threadIdx.x == 0) first_nan = NOWHERE;
    __syncthreads();

    Found least{NOWHERE, NOWHERE}, greatest = least;
    u32 bits[OWN_MASKS ? OWN_MASKS : 1] = {};
#pragma unroll 2
    for (int i = threadIdx.x; i < count; i += REDUCE_THREADS) {
        const i64* const row = rows + i;
#pragma unroll
        for (int k = 0; k < OWN_MASKS; ++k) bits[k] |= u32(__ldcg(row + (ROW_MASKS + k) * column));
        if constexpr (FINDS) {
            least = first(least, {__ldcg(row + ROW_LEAST * column), __ldcg(row + (ROW_LEAST + 1) * column)});
            greatest = first(greatest, {__ldcg(row + ROW_GREATEST * column), __ldcg(row + (ROW_GREATEST + 1) * column)});
        }
        if constexpr (HAS_NAN<T>) {
#pragma unroll
            for (int k = 0; k < 3; ++k) {
                const u32 some = u32(__ldcg(row + k * column));
                if (some) atomicAdd(&special[k], some);
            }
            const i64 nan = FINDS ? __ldcg(row + ROW_NAN * column) : NOWHERE;
            if (nan != NOWHERE) atomicMin(&first_nan, u64(nan));
        }
    }
#pragma unroll
    for (int k = 0; k < OWN_MASKS; ++k) {
        bits[k] = bits_of_warp(bits[k]);
        if (lane == k && bits[k]) atomicOr(&mask[k], bits[k]);
    }
    if constexpr (FINDS) {
        least = first_of_warp(least);
        greatest = first_of_warp(greatest);
        if (lane == 0) least_of[warp] = least, greatest_of[warp] = greatest;
    }
    __syncthreads();

    if constexpr (FINDS) {
        least = first_of_warp(least_of[lane % WARPS]);
        greatest = first_of_warp(greatest_of[lane % WARPS]);
    }
    if (warp < COUNTING) {
        // A warp for each digit that some block has.
        const Range of_sum(mask, SQUARES_FROM / 32, 0);
        const Range of_squares(mask + SQUARES_FROM / 32, MASKS - SQUARES_FROM / 32, SQUARES_FROM);
#pragma unroll 1
        for (int k = warp; k < of_sum.size + of_squares.size; k += COUNTING) {
            const int digit = k < of_sum.size ? of_sum.begin + k : of_squares.begin + k - of_sum.size;
            i64 sum = 0;
#pragma unroll 4
            for (int i = lane; i < count; i += 32)
                if (u32(__ldcg(rows + (ROW_MASKS + digit / 32) * column + i)) >> digit % 32 & 1)
                    sum += __ldcg(rows + (ROW_DIGITS + digit) * column + i);
#pragma unroll
            for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, lanes);
            if (lane == 0) digits[digit] = sum;
        }
    } else if (least.at != NOWHERE) {
        const int thread = threadIdx.x - 32 * COUNTING;
        const u32 low = look_up<T, Least>(walk, least, thread), high = look_up<T, Greatest>(walk, greatest, thread);
        if (low != NONE) atomicMin(&place[0], low);
        if (high != NONE) atomicMin(&place[1], high);
    }
    __syncthreads();
    if (warp == 0) {
        to_words<SUM_DIGITS, SUM_WORDS>(digits, reinterpret_cast<u64*>(partial) + SUM_AT);
    } else if (warp == 1) {
        to_words<SQUARE_DIGITS, SQUARE_WORDS>(digits + SQUARES_FROM, reinterpret_cast<u64*>(partial) + SQUARES_AT);
    } else if (threadIdx.x == 64) {
        partial[0] = code;
        partial[1] = PARTS;
        partial[2] = walk.n;
        for (int i = 0; i < 3; ++i) partial[3 + i] = special[i];
        if (least.at != NOWHERE) {
            least = exact_place<T, Least>(walk.samples, walk.start_of(least.at) + place[0]);
            greatest = exact_place<T, Greatest>(walk.samples, walk.start_of(greatest.at) + place[1]);
        }
        store_found(i64(first_nan) == NOWHERE ? NOWHERE : 2 * i64(first_nan), least, greatest, partial);
    }
}
