// Deferred tiles: those whose exponents fit no register window. Which they are, per warp, and the pass over them.
#pragma once

#include "reduce/exponent_bins.cuh"

constexpr int REDUCE_WARPS = REDUCE_THREADS / 32;
constexpr int MOST_STEPS = 2048;  // tiles per block and launch
constexpr int MOST_PASSED = 63;

// Whether tiles that fit no window are deferred; sums without squares put them into cells at once.
template <typename T, int PARTS> constexpr bool DEFERS = false;
template <int PARTS> constexpr bool DEFERS<float, PARTS> = bool(PARTS & SQUARES);
template <int PARTS> constexpr bool DEFERS<double, PARTS> = bool(PARTS & SQUARES);

// One bit per tile and warp: 32 steps in a word, the words of all warps side by side.
struct DeferredTiles {
    u32 word[MOST_STEPS / 32 * REDUCE_WARPS], some;  // some: any bit is set

    __device__ void clear() {
        if (threadIdx.x == 0) some = 0;
        for (int i = threadIdx.x; i < MOST_STEPS / 32 * REDUCE_WARPS; i += REDUCE_THREADS) word[i] = 0;
    }
    // Called by all lanes of a warp. The next tiles are likely to fit no better: the more a warp has deferred, the more it
    // defers unseen; returns how many.
    __device__ int defer(int number, int tiles) {
        const int step = (number - 1 - int(blockIdx.x)) / int(gridDim.x);
        __syncwarp();
        const u64 before = u64(word[at(step)]) << 32 | (step < 32 ? 0 : word[at(step - 32)]);
        const int passes = min(min(4 * __clzll(i64(~(before << (32 - step % 32)))) + 3, MOST_PASSED),
                               (tiles - number) / int(gridDim.x));
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            atomicExch(&some, 1);
            for (int first = step; first <= step + passes; first = (first | 31) + 1)
                word[at(first)] |= NONE << first % 32 & NONE >> 31 - min(step + passes, first | 31) % 32;
        }
        return passes;
    }
    // Bits of any warp from a step on, within a word.
    __device__ bool any_of(int step, int count) const {
        u32 bits = 0;
        for (int i = 0; i < REDUCE_WARPS; ++i) bits |= word[step / 32 * REDUCE_WARPS + i];
        return bits >> step % 32 & ((u64(1) << count) - 1);
    }

  private:
    static __device__ int at(int step) { return step / 32 * REDUCE_WARPS + threadIdx.x / 32; }
};

// Walks through the deferred tiles of a warp.
struct Cursor {
    const DeferredTiles& deferred;
    int from = -32, step = 0;  // first step of the word at hand, step of the tile
    u32 bits = 0;

    __device__ explicit Cursor(const DeferredTiles& deferred) : deferred(deferred) {}

    // Advances; false after the last tile.
    __device__ bool next() {
        while (!bits) {
            from += 32;
            if (from >= MOST_STEPS) return false;
            bits = deferred.word[from / 32 * REDUCE_WARPS + threadIdx.x / 32];
        }
        step = from + __ffs(int(bits)) - 1;
        bits &= bits - 1;
        return true;
    }
};

// Called by all threads.
template <typename T, typename Visitor, int PARTS>
__device__ void visit_deferred(const Walk<T>& walk, const DeferredTiles& deferred, Visitor& visitor, Counters<PARTS>& counters) {
    __syncthreads();
    if (!deferred.some) return;
    constexpr bool SHARED = HAS_CELLS && sizeof(T) == 8;  // all warps share their cells
    constexpr int PACE = SHARED ? Lanes<PARTS>::MOST / Tile<T>::SIZE / REDUCE_WARPS : 64;
    CellsOf<T, PARTS> cells;
    if constexpr (SHARED) {
        cells.clear();
        __syncthreads();
    }
    int paces = 0;
    // In step, so that the reads of a block stay together and shared cells are emptied in time.
    const auto wait = [&](int pace) {
        for (; paces < pace; ++paces) {
            __syncthreads();
            if constexpr (SHARED) {
                if (!deferred.any_of(paces * PACE, PACE)) continue;
                cells.empty(counters);
                __syncthreads();
            }
        }
    };
    if constexpr (PARTS & EXTREMES) visitor.extremes.visit_deferred();
    Cursor cursor(deferred);
    int number = 0;
    const auto advance = [&](Tile<T>& tile) {
        const bool more = cursor.next();
        if (more) number = int(blockIdx.x + cursor.step * gridDim.x);
        tile.load_if(more, walk.samples + walk.first_of(number));
        return more;
    };
    Tile<T> tile;
    bool more = advance(tile);
    while (more) {
        const int at = number, pace = cursor.step / PACE;
        Tile<T> next;
        more = advance(next);
        wait(pace);
        visitor.again(tile, walk.first_of(at), u32(at) + 1, cells);
        tile = next;
    }
    if constexpr (HAS_CELLS && !SHARED) cells.empty(counters);
    const int steps = (int(walk.tiles) - 1 - int(blockIdx.x)) / int(gridDim.x) + 1;
    wait((steps + PACE - 1) / PACE);
}
