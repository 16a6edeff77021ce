// The least and the greatest sample that a thread has seen, and in which tile it was first.
#pragma once

#include "reduce/tile_range.cuh"

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

// Of a warp's lanes the least.
inline __device__ i64 least_of_warp(i64 x) {
    constexpr u32 MIDDLE = 0x80000000u;
    const u32 upper = u32(u64(x) >> 32) ^ MIDDLE, least = least_of_warp(upper);
    return i64(u64(least ^ MIDDLE) << 32 | least_of_warp(upper == least ? u32(x) : NONE));
}

// The upper halves of a tile tell whether one of its numbers may be among the extremes that the warp has seen; that is
// rare. A number with the same upper half as the best one is passed over if no lower half can make it better.
template <int PARTS> struct Extremes<double, PARTS> {
    struct Best {  // of a lane, seen one by one: in memory, because what is rare needs no registers
        i64 rank[2] = {NOWHERE, NOWHERE};
        u32 at[2] = {NONE, NONE};
    };
    Best& best;
    int below = 0x7fffffff, above = -0x7fffffff - 1;  // upper halves that may matter, those of the limits included
    i64 rank = NOWHERE;  // of the tiles of the warp: even lanes have the least, odd ones the greatest
    u32 at = NONE;

    __device__ explicit Extremes(Best& best) : best(best) {}

    // One lane.
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
        if (!__any_sync(ALL_LANES, !seen && (extent.least <= below || extent.greatest >= above))) return;
        constexpr int SIZE = Tile<double>::SIZE;
        double low[SIZE], high[SIZE];
#pragma unroll
        for (int i = 0; i < SIZE; ++i) low[i] = high[i] = tile.item[i];
#pragma unroll
        for (int apart = 1; apart < SIZE; apart *= 2) {
#pragma unroll
            for (int i = 0; i < SIZE; i += 2 * apart) {
                low[i] = low[i + apart] < low[i] ? low[i + apart] : low[i];
                high[i] = high[i + apart] > high[i] ? high[i + apart] : high[i];
            }
        }
        const i64 least = least_of_warp(seen ? NOWHERE : Least::rank(to_key(low[0])));
        const i64 greatest = least_of_warp(seen ? NOWHERE : Greatest::rank(to_key(high[0])));
        const i64 found = threadIdx.x % 2 ? greatest : least;
        if (LATE && found == rank) at = min(at, number);
        if (found < rank) rank = found, at = number;
        set_limits<LATE>();
    }
    // All lanes.
    __device__ void look_again() { set_limits<true>(); }
    __device__ Found lowest() const { return found(0); }
    __device__ Found highest() const { return found(1); }

  private:
    __device__ Found found(int k) const {
        const Found own{best.rank[k], best.at[k] == NONE ? NOWHERE : i64(best.at[k])};
        return threadIdx.x % 2 == k && at != NONE ? first(own, {rank, i64(at)}) : own;
    }

    // LATE: the same number matters, too.
    template <bool LATE> __device__ void set_limits() {
        const i64 least = __shfl_sync(ALL_LANES, rank, 0), greatest = __shfl_sync(ALL_LANES, rank, 1);
        below = int(least >> 32) - (!LATE && u32(least) == 0);
        above = ~(int(greatest >> 32) - (!LATE && u32(greatest) == 0));
    }
};
