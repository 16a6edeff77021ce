// What a block has left, because no window holds it: which tiles of which warps, and how they are looked at again.
#pragma once

#include "reduce/exponent_bins.cuh"

constexpr int REDUCE_WARPS = REDUCE_THREADS / 32;
constexpr int MOST_STEPS = 2048;  // tiles of a block that a launch may have
constexpr int MOST_PASSED = 63;

// Whether tiles that no window holds are left; sums without squares take them at once.
template <typename T, int PARTS> constexpr bool LEAVES = false;
template <int PARTS> constexpr bool LEAVES<float, PARTS> = bool(PARTS & SQUARES);
template <int PARTS> constexpr bool LEAVES<double, PARTS> = bool(PARTS & SQUARES);

// A bit for each tile of each warp: those of 32 steps in a word, and the words of all warps next to each other.
struct Marks {
    u32 word[MOST_STEPS / 32 * REDUCE_WARPS], some;  // whether there is any

    __device__ void clear() {
        if (threadIdx.x == 0) some = 0;
        for (int i = threadIdx.x; i < MOST_STEPS / 32 * REDUCE_WARPS; i += REDUCE_THREADS) word[i] = 0;
    }
    // All lanes of a warp, of a tile by its number. The next ones may be no better: the more of them it has left, the more
    // it leaves unseen; returns how many.
    __device__ int leave(int number, int tiles) {
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
    // Of any warp from a step on, within a word.
    __device__ bool any_of(int step, int count) const {
        u32 bits = 0;
        for (int i = 0; i < REDUCE_WARPS; ++i) bits |= word[step / 32 * REDUCE_WARPS + i];
        return bits >> step % 32 & ((u64(1) << count) - 1);
    }

  private:
    static __device__ int at(int step) { return step / 32 * REDUCE_WARPS + threadIdx.x / 32; }
};

// Goes through what a warp has left.
struct Cursor {
    const Marks& marks;
    int from = -32, step = 0;  // steps whose bits are at hand, and the tile's own
    u32 bits = 0;

    __device__ explicit Cursor(const Marks& marks) : marks(marks) {}

    // Whether there is another tile.
    __device__ bool next() {
        while (!bits) {
            from += 32;
            if (from >= MOST_STEPS) return false;
            bits = marks.word[from / 32 * REDUCE_WARPS + threadIdx.x / 32];
        }
        step = from + __ffs(int(bits)) - 1;
        bits &= bits - 1;
        return true;
    }
};

// All threads.
template <typename T, typename Visitor, int PARTS>
__device__ void look_again(const Walk<T>& walk, const Marks& marks, Visitor& visitor, Counters<PARTS>& counters) {
    __syncthreads();
    if (!marks.some) return;
    constexpr bool SHARED = ROOMY && sizeof(T) == 8;  // cells of all warps
    constexpr int PACE = SHARED ? Lanes<PARTS>::MOST / Tile<T>::SIZE / REDUCE_WARPS : 64;
    CellsOf<T, PARTS> cells;
    if constexpr (SHARED) {
        cells.clear();
        __syncthreads();
    }
    int paces = 0;
    // What a block reads stays together, and cells of all warps are emptied in time.
    const auto wait = [&](int pace) {
        for (; paces < pace; ++paces) {
            __syncthreads();
            if constexpr (SHARED) {
                if (!marks.any_of(paces * PACE, PACE)) continue;
                cells.empty(counters);
                __syncthreads();
            }
        }
    };
    if constexpr (PARTS & EXTREMES) visitor.extremes.look_again();
    Cursor cursor(marks);
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
    if constexpr (ROOMY && !SHARED) cells.empty(counters);
    const int steps = (int(walk.tiles) - 1 - int(blockIdx.x)) / int(gridDim.x) + 1;
    wait((steps + PACE - 1) / PACE);
}
