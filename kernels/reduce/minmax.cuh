// Least and greatest sample that a thread has seen, and the tile where each came first.
#pragma once

#include "reduce/tile_range.cuh"

// The index within the tile is looked up once, at the end.
template <typename T, typename Order> struct Extreme {
    using Value = typename Wide<T>::type;
    Value best = {};
    u32 at = NONE;

    // LATE: tiles with higher numbers were seen before, so an equal value here comes first.
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

    // Takes the least and the greatest of a tile. LATE: tiles with higher numbers may have been seen before.
    template <bool LATE> __device__ void see(Value low, Value high, u32 number) {
        least.template see<LATE>(low, number);
        greatest.template see<LATE>(high, number);
    }
    // Called by all lanes; those with `seen` set are dealt with elsewhere.
    template <bool LATE> __device__ void tile(const Tile<T>&, const TileRange<T, PARTS>& range, bool seen, u32 number) {
        if (!seen) see<LATE>(range.low, range.high, number);
    }
    // Called by all lanes: the same for a tile of which only these may count.
    template <bool LATE> __device__ void rest(Value low, Value high, bool valid, u32 number) {
        if (valid) see<LATE>(low, high, number);
    }
    // Called by all lanes: from now on tiles are LATE.
    __device__ void visit_deferred() {}
    __device__ Found lowest() const { return least.found(); }
    __device__ Found highest() const { return greatest.found(); }
};

// Least over the lanes of a warp.
inline __device__ i64 least_of_warp(i64 x) {
    constexpr u32 MIDDLE = 0x80000000u;
    const u32 upper = u32(u64(x) >> 32) ^ MIDDLE, least = least_of_warp(upper);
    return i64(u64(least ^ MIDDLE) << 32 | least_of_warp(upper == least ? u32(x) : NONE));
}

// The upper words of a tile tell whether one of its numbers may be a new extreme of the warp, which is rare. A number with
// the same upper word as the best one is skipped if no lower word can make it better.
template <int PARTS> struct Extremes<double, PARTS> {
    struct Best {  // of a lane, updated one by one: in memory, because it is rarely used
        i64 rank[2] = {NOWHERE, NOWHERE};
        u32 at[2] = {NONE, NONE};
    };
    Best& best;
    int below = 0x7fffffff, above = -0x7fffffff - 1;  // upper words up to, and from, these may matter
    i64 rank = NOWHERE;  // of the warp's tiles: the least in even lanes, the greatest in odd ones
    u32 at = NONE;

    __device__ explicit Extremes(Best& best) : best(best) {}

    // Called by one lane.
    template <bool LATE> __device__ void see(double low, double high, u32 number) {
#pragma unroll 1
        for (int k = 0; k < 2; ++k) {
            const i64 ranked = k ? Greatest::rank(to_key(high)) : Least::rank(to_key(low));
            if (LATE && ranked == best.rank[k]) best.at[k] = min(best.at[k], number);
            if (ranked < best.rank[k]) best.rank[k] = ranked, best.at[k] = number;
        }
    }
    // Called by all lanes.
    template <bool LATE>
    __device__ void tile(const Tile<double>& tile, const TileRange<double, PARTS>& range, bool seen, u32 number) {
        if (!__any_sync(ALL_LANES, !seen && (range.least <= below || range.greatest >= above))) return;
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
        update<LATE>(low[0], high[0], !seen, number);
    }
    // Called by all lanes.
    template <bool LATE> __device__ void rest(double low, double high, bool valid, u32 number) {
        if (__any_sync(ALL_LANES, valid && (upper(low) <= below || upper(high) >= above))) update<LATE>(low, high, valid, number);
    }
    // Called by all lanes.
    __device__ void visit_deferred() { set_limits<true>(); }
    __device__ Found lowest() const { return found(0); }
    __device__ Found highest() const { return found(1); }

  private:
    static __device__ int upper(double x) {
        return TileRange<double, PARTS>::ordered(u32(u64(__double_as_longlong(x)) >> 32));
    }

    // Called by all lanes.
    template <bool LATE> __device__ void update(double low, double high, bool valid, u32 number) {
        const i64 least = least_of_warp(valid ? Least::rank(to_key(low)) : NOWHERE);
        const i64 greatest = least_of_warp(valid ? Greatest::rank(to_key(high)) : NOWHERE);
        const i64 ranked = threadIdx.x % 2 ? greatest : least;
        if (LATE && ranked == rank) at = min(at, number);
        if (ranked < rank) rank = ranked, at = number;
        set_limits<LATE>();
    }

    __device__ Found found(int k) const {
        const Found own{best.rank[k], best.at[k] == NONE ? NOWHERE : i64(best.at[k])};
        return threadIdx.x % 2 == k && at != NONE ? first(own, {rank, i64(at)}) : own;
    }

    // LATE: equal numbers matter, too.
    template <bool LATE> __device__ void set_limits() {
        const i64 least = __shfl_sync(ALL_LANES, rank, 0), greatest = __shfl_sync(ALL_LANES, rank, 1);
        below = int(least >> 32) - (!LATE && u32(least) == 0);
        above = ~(int(greatest >> 32) - (!LATE && u32(greatest) == 0));
    }
};
