// The least and the greatest sample that a thread has seen, and in which tile it was first.
#pragma once

#include "reduce_extent.cuh"

// Which of the tile's samples it is, is looked up in the end, once.
template <typename T, typename Order> struct Extreme {
    using Value = typename Wide<T>::type;
    Value best = {};
    u32 at = NONE;

    __device__ void see(Value value, u32 number) {
        if (Order::before(value, best) || at == NONE) {
            best = value;
            at = number;
        }
    }
    // Of samples before the tiles, which are seen after them: the same value comes first there.
    __device__ void see_late(Value value, u32 number) {
        see(value, number);
        if (value == best) at = min(at, number);
    }
    __device__ Found found() const {
        return at == NONE ? Found{NOWHERE, NOWHERE} : Found{Order::rank(to_key(best)), i64(at)};
    }
};

template <typename T, int PARTS> struct Extremes {
    Extreme<T, Least> least;
    Extreme<T, Greatest> greatest;

    template <typename Value> __device__ void one(Value value, u32 number) {
        least.see_late(value, number);
        greatest.see_late(value, number);
    }
    // All lanes; those whose tile has been `seen` already only take part.
    __device__ void tile(const Tile<T>&, const Extent<T, PARTS>& extent, bool seen, u32 number) {
        if (seen) return;
        least.see(extent.low, number);
        greatest.see(extent.high, number);
    }
};

// The upper halves of a tile tell whether one of its numbers may be among the extremes that the warp has seen; that is
// rare. A number with the same upper half as the best one is passed over if no lower half can make it better.
template <int PARTS> struct Extremes<double, PARTS> {
    Extreme<double, Least> least;
    Extreme<double, Greatest> greatest;
    int below = 0x7fffffff, above = -0x7fffffff - 1;  // upper halves that may matter, those of the limits included

    __device__ void one(double value, u32 number) {
        least.see_late(value, number);
        greatest.see_late(value, number);
    }
    __device__ void tile(const Tile<double>& tile, const Extent<double, PARTS>& extent, bool seen, u32 number) {
        const bool matters = !seen && (extent.least <= below || extent.greatest >= above);
        if (!__any_sync(ALL_LANES, matters)) return;
        if (matters) {
            double low = tile.item[0], high = low;
#pragma unroll
            for (int i = 1; i < Tile<double>::SIZE; ++i) {
                low = tile.item[i] < low ? tile.item[i] : low;
                high = tile.item[i] > high ? tile.item[i] : high;
            }
            least.see(low, number);
            greatest.see(high, number);
        }
        constexpr u32 MIDDLE = 0x80000000u;
        below = int(least_of_warp(u32(limit(least, NONE)) ^ MIDDLE) ^ MIDDLE);
        above = int(greatest_of_warp(u32(limit(greatest, 0)) ^ MIDDLE) ^ MIDDLE);
    }

  private:
    // `end`: the lower half that no negative number of the same upper half is better than; ~end for positive ones.
    template <typename Order> static __device__ int limit(const Extreme<double, Order>& extreme, u32 end) {
        if (extreme.at == NONE) return Order::BETTER < 0 ? 0x7fffffff : -0x7fffffff - 1;
        const u64 bits = u64(__double_as_longlong(extreme.best));
        const u32 upper = u32(bits >> 32);
        return Extent<double, PARTS>::ordered(upper) + (u32(bits) == (upper >> 31 ? end : ~end) ? Order::BETTER : 0);
    }
};
