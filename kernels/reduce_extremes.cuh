// The least and the greatest sample that a thread has seen, and in which tile it was first.
#pragma once

#include "reduce_extent.cuh"

// Which of the tile's samples it is, is looked up in the end, once.
template <typename T, typename Order> struct Extreme {
    using Value = typename Wide<T>::type;
    Value best = {};
    u32 at = NONE;

    // LATE: after some of a higher number, where the same value comes first here.
    template <bool LATE> __device__ void see(Value value, u32 number) {
        if (Order::before(value, best) || at == NONE) {
            best = value;
            at = number;
        }
        if (LATE && value == best) at = min(at, number);
    }
    __device__ Found found() const {
        return at == NONE ? Found{NOWHERE, NOWHERE} : Found{Order::rank(to_key(best)), i64(at)};
    }
};

template <typename T, int PARTS> struct Extremes {
    using Value = typename Wide<T>::type;
    struct Best {};
    Extreme<T, Least> least;
    Extreme<T, Greatest> greatest;

    __device__ explicit Extremes(Best&) {}

    // The least and the greatest of some numbers. LATE: they may come after some of a higher number.
    template <bool LATE> __device__ void see(Value low, Value high, u32 number) {
        least.template see<LATE>(low, number);
        greatest.template see<LATE>(high, number);
    }
    // All lanes; those whose tile is to be `seen` otherwise only take part.
    template <bool LATE> __device__ void tile(const Tile<T>&, const Extent<T, PARTS>& extent, bool seen, u32 number) {
        if (!seen) see<LATE>(extent.low, extent.high, number);
    }
    // All lanes: from now on tiles are LATE.
    __device__ void look_again() {}
    __device__ Found lowest() const { return least.found(); }
    __device__ Found highest() const { return greatest.found(); }
};

// The upper halves of a tile tell whether one of its numbers may be among the extremes that the warp has seen; that is
// rare. A number with the same upper half as the best one is passed over if no lower half can make it better.
template <int PARTS> struct Extremes<double, PARTS> {
    struct Best {  // the least and the greatest: in memory, because what is rare needs no registers
        i64 rank[2] = {NOWHERE, NOWHERE};
        u32 at[2] = {NONE, NONE};
    };
    Best& best;
    int below = 0x7fffffff, above = -0x7fffffff - 1;  // upper halves that may matter, those of the limits included

    __device__ explicit Extremes(Best& best) : best(best) {}

    template <bool LATE> __device__ void see(double low, double high, u32 number) {
#pragma unroll 1
        for (int k = 0; k < 2; ++k) {
            const i64 found = k ? Greatest::rank(to_key(high)) : Least::rank(to_key(low));
            if (LATE && found == best.rank[k]) best.at[k] = min(best.at[k], number);
            if (found < best.rank[k]) best.rank[k] = found, best.at[k] = number;
        }
    }
    // All lanes.
    template <bool LATE>
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
            see<LATE>(low, high, number);
        }
        set_limits<LATE>();
    }
    __device__ void look_again() { set_limits<true>(); }
    __device__ Found lowest() const { return found(0); }
    __device__ Found highest() const { return found(1); }

  private:
    __device__ Found found(int k) const { return {best.rank[k], best.at[k] == NONE ? NOWHERE : i64(best.at[k])}; }

    // All lanes.
    template <bool LATE> __device__ void set_limits() {
#pragma unroll 1
        for (int k = 0; k < 2; ++k) {
            constexpr u32 MIDDLE = 0x80000000u;
            const i64 rank = best.rank[k];
            const int upper = int(rank >> 32) - (!LATE && u32(rank) == 0);  // LATE: the same number matters, too
            const int least = int(least_of_warp(u32(upper) ^ MIDDLE) ^ MIDDLE);
            if (k) above = ~least;
            else below = least;
        }
    }
};
