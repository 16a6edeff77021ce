// What a thread does with the samples that it visits.
#pragma once

#include "reduce/minmax.cuh"
#include "reduce/float_sum.cuh"
#include "reduce/integer_sum.cuh"
#include "reduce/deferred_tiles.cuh"

template <typename T, int PARTS> struct Visitor {
    static constexpr bool LEFT = LEAVES<T, PARTS>;
    static constexpr bool AT_ONCE = sizeof(T) > 2 && HAS_NAN<T> && PARTS & SUM && !LEFT;  // in cells, what no window holds
    const T* samples;
    Counters<PARTS>& shared;
    Sums<T, PARTS> sums;
    Extremes<T, PARTS> extremes;
    typename Choose<AT_ONCE, CellsOf<T, PARTS>, NoCells>::type cells;
    Marks* marks;
    int wild = 0;  // of the next tiles that go to cells without a look at windows

    __device__ Visitor(const T* samples, Counters<PARTS>& shared, typename Extremes<T, PARTS>::Best& best, Marks* marks)
        : samples(samples), shared(shared), extremes(best), marks(marks) {}

    __device__ void one(i64 index, u32 number) {
        const T x = samples[index];
        if (is_nan(x)) return shared.count_special(0, 1, u32(index));
        if constexpr (PARTS & EXTREMES) extremes.template see<true>(wide(x), wide(x), number);
        if constexpr (HAS_NAN<T>) {
            if (!sums.finite(x)) return shared.count_special(wide(x) > 0 ? 1 : 2, 1, 0);
        }
        sums.one(x, shared);
    }

    // All lanes; how many of the next tiles the warp leaves unseen.
    __device__ int tile(Tile<T>& tile, i64 index, int number, int tiles) {
        Extent<T, PARTS> extent(tile);
        const bool seen = HAS_NAN<T> && !finite(extent);
        if constexpr (HAS_NAN<T>) {
            if (seen) {
                clean(tile);
                extent = Extent<T, PARTS>(tile);
            }
        }
        if constexpr (PARTS & EXTREMES) extremes.template tile<false>(tile, extent, seen, number);
        if constexpr (AT_ONCE) {
            if (wild || !sums.holds(tile, extent, shared)) {
                wild = wild ? wild - 1 : 63;
                take(tile, index, cells);
            } else {
                sums.add(tile, extent);
            }
        } else {
            const bool held = sums.holds(tile, extent, shared);
            if constexpr (LEFT) {
                if (!held) return marks->leave(number, tiles);
            }
            sums.add(tile, extent);
        }
        if constexpr (HAS_NAN<T>) {
            if (seen) count_specials(index, number);
        }
        return 0;
    }

    // All lanes, of a tile that was left.
    template <typename Cells> __device__ void again(Tile<T>& tile, i64 index, u32 number, Cells& cells) {
        const Extent<T, PARTS> extent(tile);
        const bool seen = !extent.finite;
        if (seen) clean(tile);
        if constexpr (PARTS & EXTREMES) extremes.template tile<true>(tile, extent, seen, number);
        take(tile, index, cells);
        if (seen) count_specials(index, number);
    }

    // All lanes.
    __device__ void close() {
        sums.close(shared);
        if constexpr (AT_ONCE && ROOMY)
            if (cells.tiles) cells.empty(shared);
    }

  private:
    // What no window holds.
    template <typename Cells> __device__ void take(const Tile<T>& tile, i64 index, Cells& cells) {
        if constexpr (ROOMY) {
            cells.add(tile, shared);
        } else {
#pragma unroll 1
            for (int i = 0; i < Tile<T>::SIZE; ++i) {
                const T x = samples[index + Tile<T>::offset(i)];  // again, because registers have no index
                if (sums.finite(x)) sums.one(x, shared);
            }
        }
    }

    template <typename E> static __device__ bool finite(const E& extent) {
        if constexpr (HAS_NAN<T>) return extent.finite;
        return true;
    }

    // Puts zeros in the place of NaN and infinities.
    static __device__ void clean(Tile<T>& tile) {
#pragma unroll
        for (int i = 0; i < Tile<T>::SIZE; ++i)
            if (!Sums<T, PARTS>::finite(tile.item[i])) tile.item[i] = T{};
    }

    // Of a tile with NaN or infinities: counts them, and sees its extremes.
    __device__ void count_specials(i64 index, u32 number) {
        using Value = typename Wide<T>::type;
        u32 nan = 0, positive = 0, negative = 0, first = NONE;
        Value low = wide(infinite<T>(false)), high = wide(infinite<T>(true));
#pragma unroll 1
        for (int i = Tile<T>::SIZE - 1; i >= 0; --i) {
            const T x = samples[index + Tile<T>::offset(i)];  // again: there are zeros in the registers
            if (sums.finite(x)) {
                low = wide(x) < low ? wide(x) : low;
                high = wide(x) > high ? wide(x) : high;
            } else if (is_nan(x)) {
                ++nan;
                first = u32(index + Tile<T>::offset(i));
            } else if (wide(x) > 0) {
                ++positive;
            } else {
                ++negative;
            }
        }
        if (PARTS & EXTREMES && nan < Tile<T>::SIZE) {
            extremes.template see<true>(negative ? wide(infinite<T>(true)) : low,
                                        positive ? wide(infinite<T>(false)) : high, number);
        }
        shared.count_special(0, nan, first);
        shared.count_special(1, positive, 0);
        shared.count_special(2, negative, 0);
    }
};
