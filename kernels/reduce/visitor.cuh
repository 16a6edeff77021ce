// What a thread does with the samples that it visits.
#pragma once

#include "reduce/minmax.cuh"
#include "reduce/float_sum.cuh"
#include "reduce/integer_sum.cuh"
#include "reduce/deferred_tiles.cuh"

template <typename T, int PARTS> struct Visitor {
    static constexpr bool DEFER = DEFERS<T, PARTS>;
    static constexpr bool AT_ONCE = sizeof(T) > 2 && HAS_NAN<T> && PARTS & SUM && !DEFER;  // what fits no window goes to cells at once
    const T* samples;
    Counters<PARTS>& shared;
    Sums<T, PARTS> sums;
    Extremes<T, PARTS> extremes;
    typename Choose<AT_ONCE, CellsOf<T, PARTS>, NoCells>::type cells;
    DeferredTiles* deferred;
    int skipped = 0;  // of the next tiles go to cells without trying a window

    __device__ Visitor(const T* samples, Counters<PARTS>& shared, typename Extremes<T, PARTS>::Best& best, DeferredTiles* deferred)
        : samples(samples), shared(shared), extremes(best), deferred(deferred) {}

    __device__ void one(i64 index, u32 number) {
        const T x = samples[index];
        if (is_nan(x)) return shared.count_special(0, 1, u32(index));
        if constexpr (PARTS & EXTREMES) extremes.template see<true>(wide(x), wide(x), number);
        if constexpr (HAS_NAN<T>) {
            if (!sums.finite(x)) return shared.count_special(wide(x) > 0 ? 1 : 2, 1, 0);
        }
        sums.one(x, shared);
    }

    // Called by all lanes; returns how many of the next tiles the warp defers unseen.
    __device__ int tile(Tile<T>& tile, i64 index, int number, int tiles) {
        TileRange<T, PARTS> range(tile);
        const bool seen = HAS_NAN<T> && !finite(range);
        Specials specials;
        if constexpr (HAS_NAN<T>) {
            if (__any_sync(ALL_LANES, seen)) {
                specials = take_specials<false>(tile, index, number, seen);
                const u32 smallest = range.smallest;  // what are zeros now exceeded all others
                range = TileRange<T, PARTS>(tile);
                range.smallest = smallest;
                if constexpr (!DEFER) count(specials);
            }
        }
        if constexpr (PARTS & EXTREMES) extremes.template tile<false>(tile, range, seen, number);
        if constexpr (AT_ONCE) {
            if (skipped || !sums.holds(tile, range, shared)) {
                skipped = skipped ? skipped - 1 : 63;
                take(tile, index, cells);
            } else {
                sums.add(tile, range);
            }
        } else {
            const bool held = sums.holds(tile, range, shared);
            if constexpr (DEFER) {
                if (!held) return deferred->defer(number, tiles);
                count(specials);
            }
            sums.add(tile, range);
        }
        return 0;
    }

    // Called by all lanes, with a deferred tile.
    template <typename Cells> __device__ void again(Tile<T>& tile, i64 index, u32 number, Cells& cells) {
        const TileRange<T, PARTS> range(tile);
        const bool seen = !range.finite;
        if (__any_sync(ALL_LANES, seen)) count(take_specials<true>(tile, index, number, seen));
        if constexpr (PARTS & EXTREMES) extremes.template tile<true>(tile, range, seen, number);
        take(tile, index, cells);
    }

    // Called by all lanes.
    __device__ void close() {
        sums.close(shared);
        if constexpr (AT_ONCE && HAS_CELLS)
            if (cells.tiles) cells.empty(shared);
    }

  private:
    // Adds a tile that fits no window.
    template <typename Cells> __device__ void take(const Tile<T>& tile, i64 index, Cells& cells) {
        if constexpr (HAS_CELLS) {
            cells.add(tile, shared);
        } else {
#pragma unroll 1
            for (int i = 0; i < Tile<T>::SIZE; ++i) {
                const T x = samples[index + Tile<T>::offset(i)];  // loaded again, because registers cannot be indexed
                if (sums.finite(x)) sums.one(x, shared);
            }
        }
    }

    template <typename E> static __device__ bool finite(const E& range) {
        if constexpr (HAS_NAN<T>) return range.finite;
        return true;
    }

    // NaN and infinities of a warp's tile, and the index of the first NaN.
    struct Specials {
        u32 nan = 0, positive = 0, negative = 0, first = NONE;
    };

    __device__ void count(const Specials& some) {
        if (threadIdx.x % 32) return;
        shared.count_special(0, some.nan, some.first);
        shared.count_special(1, some.positive, 0);
        shared.count_special(2, some.negative, 0);
    }

    // Called by all lanes: takes the extremes of a tile that has NaN or infinities, which `seen` says, and replaces these
    // by zeros.
    template <bool LATE> __device__ Specials take_specials(Tile<T>& tile, i64 index, u32 number, bool seen) {
        using Value = typename Wide<T>::type;
        const Value most = wide(infinite<T>(false)), least = wide(infinite<T>(true));
        Specials mine;
        Value low = most, high = least;
#pragma unroll
        for (int i = Tile<T>::SIZE - 1; i >= 0; --i) {
            const T x = tile.item[i];
            const Value value = wide(x);
            if (is_nan(x)) {
                ++mine.nan;
                mine.first = u32(index + Tile<T>::offset(i));
            } else if (PARTS & EXTREMES) {
                low = value < low ? value : low;
                high = value > high ? value : high;
            }
            mine.positive += value == most;
            mine.negative += value == least;
            if (!Sums<T, PARTS>::finite(x)) tile.item[i] = T{};
        }
        if constexpr (PARTS & EXTREMES) extremes.template rest<LATE>(low, high, seen && mine.nan < Tile<T>::SIZE, number);
        return {sum_of_warp(mine.nan), sum_of_warp(mine.positive), sum_of_warp(mine.negative),
                PARTS & EXTREMES ? least_of_warp(mine.first) : NONE};
    }
};
