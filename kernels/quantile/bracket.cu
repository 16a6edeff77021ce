// Order statistics of samples that lie on a device, for bracket.py, which says how they are found.
//
//   quantile_sample    draws one sample of each of as many strata as there are threads
//   quantile_pick      one step of a search among what blocks have: some bits of the keys of given ranks
//   quantile_ends      makes ends of ranges of samples at some places among those drawn
//   quantile_bracket   counts samples between the ends of ranges, and gathers those inside
//   quantile_prove     counts what was gathered around the keys that were found, and all samples with it

#include "common/stream.cuh"
#include "quantile/descent.cuh"
#include "quantile/keys.cuh"
#include "quantile/tiles.cuh"

constexpr int HEAVY = 64;          // a key that more than this part of the samples has is not gathered
constexpr int MOST_TOGETHER = 4;   // such parts, of the keys at the ends of all ranges
constexpr int TABLE_ROW = 128;     // bytes of a row of a table, with copies for all lanes

// The upper bits depend on every bit of a small x: by constants of A. Appleby's MurmurHash3.
inline __device__ u32 mixed(u32 x) {
    x *= 0x85ebca6bu;
    return (x ^ x >> 13) * 0xc2b2ae35u;
}

// The place in a stratum is pseudo-random, so that no period is met.
// `state`: how many blocks have arrived; NaN that were drawn; then of each target, in ascending order, a share of the numbers
// and how many numbers beyond that it lies. The share is replaced by its place among the numbers that were drawn; the rank there,
// or the nearest one, is where a search in `picked` by `quantile_pick` looks for it. `held`: how many samples each block drew.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
quantile_sample(const T* samples, i64 n, T* drawn, u32* held, u32 targets, u64* state, u64* picked) {
    const u64 strata = u64(gridDim.x) * THREADS, i = u64(blockIdx.x) * THREADS + threadIdx.x;
    const u64 first = i * u64(n) / strata, size = (i + 1) * u64(n) / strata - first;
    const T x = samples[first + (mixed(u32(i)) * size >> 32)];
    drawn[i] = x;
    const u32 others = u32(__syncthreads_count(x != x));
    if (threadIdx.x == 0) held[blockIdx.x] = THREADS;
    if (threadIdx.x == 0 && others) atomicAdd(state + 1, u64(others));
    if (!is_last(state) || threadIdx.x >= targets) return;
    const i64 numbers = i64(strata - __ldcg(state + 1));
    u64* const of_target = state + 2 + threadIdx.x;
    const double share = __longlong_as_double(i64(of_target[0])), beyond = __longlong_as_double(i64(of_target[targets]));
    const i64 place = __double2ll_rn(double(numbers) * share + beyond);
    of_target[0] = u64(place);
    picked[1 + targets + threadIdx.x] = u64(max(min(place, numbers - 1), i64(0)));
}

// `range`: how many targets are fit to be ends of ranges, two and two, then the bits of the samples there. `drawn` and `picked`:
// what `quantile_sample` and `quantile_pick` wrote of `strata` samples. A key that many samples have is not fit, nor is any
// beside NaN, unless these are left out: `omit`. A key may be the end of one range and the beginning of the next.
template <typename T>
__global__ void quantile_ends(u32 strata, u32 targets, const u64* drawn, const u64* picked, u32 omit, u64* range) {
    using K = typename Key<T>::type;
    if (threadIdx.x >= targets) return;
    const u64 nan = drawn[1], numbers = strata - nan, *const equal = picked + 1 + 2 * targets;
    const i64 place = i64(drawn[2 + threadIdx.x]);
    const K end = place < 0 ? Key<T>::FIRST : place < i64(numbers) ? K(picked[1 + threadIdx.x]) : Key<T>::LAST;
    range[1 + threadIdx.x] = Key<T>::bits(end);
    u64 together = 0;
    for (u32 i = 0; i < targets; ++i) together += equal[i];
    const bool light = equal[threadIdx.x] * HEAVY <= numbers && together * (HEAVY / MOST_TOGETHER) <= numbers;
    if (light && (omit || nan == 0)) atomicAdd(range, u64(1));
}

// Each block has room for `room` samples, and `held` of them; none that count if it says more. They are in the `ranges` of
// `range`, as `quantile_ends` wrote it; nothing is done where not all ends are fit.
// `state`: how many blocks have arrived; then of each target, in ascending order: the upper bits of its key's number in these
// ranges, its rank among the samples that have these, and their number. A step appends the next ones; the last one writes the
// key. `counters` are zeros. Where the first step finds what a read counted, ranks are those among all numbers.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
quantile_pick(const T* samples, const u32* held, u32 room, u32 targets, u64* state, u32* counters, const u64* sums, u32 groups,
              u32 gathered, const u64* range, u32 ranges, int step) {
    using K = typename Key<T>::type;
    extern __shared__ u32 tally[];
    __shared__ Descent<K> search;
    if (range[0] != 2 * ranges) return;
    if (threadIdx.x == 0) {
        search.targets = targets;
        search.spans.template read<T>(range, ranges);
    }
    __syncthreads();
    if (step >= search.steps()) return;
    u64* const of_target = state + 1 + threadIdx.x;
    if (threadIdx.x < targets) {
        search.upper[threadIdx.x] = K(*of_target);
        const u64 rank = of_target[targets];
        search.ranks[threadIdx.x] = step == 0 && gathered ? rank_among(rank, Counted{sums, groups, gathered}) : rank;
        search.equal[threadIdx.x] = 0;
    }
    search.begin(tally);
    const K* const mine = reinterpret_cast<const K*>(samples) + u64(blockIdx.x) * room;
    search.template count_all<T>(tally, mine, held[blockIdx.x] <= room ? held[blockIdx.x] : 0, step);
    __syncthreads();
    const u32 used = search.rows * Descent<K>::ROW;
    for (u32 i = threadIdx.x; i < used; i += THREADS) {
        if (tally[i]) atomicAdd(counters + i, tally[i]);
    }
    if (!is_last(state)) return;
    for (u32 i = threadIdx.x; i < used; i += THREADS) {
        tally[i] = __ldcg(counters + i);
        counters[i] = 0;
    }
    search.descend(tally, step);
    if (threadIdx.x < targets) {
        const K upper = search.upper[threadIdx.x];
        *of_target = step == search.steps() - 1 ? search.spans.key(upper) : upper;
        of_target[targets] = search.ranks[threadIdx.x];
        of_target[2 * targets] = search.equal[threadIdx.x];
    }
}

// Samples fall into groups of keys, one after another, by a search that halves 2^LEVELS groups. A group has keys up to `last`;
// those from `first` on are its range. Of each group are counted, in `sums`: samples below its range, then those in it; behind
// the groups NaN, which the first one has below its range, too. Ranges of the first `kept` groups are gathered: a block has room
// for `room` samples, behind the `held` that it has, which says more where there is no room.
// `range`: how many ends are fit, then `first` and `last` of the groups, as bits of samples; nothing is done where these are not
// `2 * groups`. What is above them is the last group, below a range that nothing is in.
template <typename T, int LEVELS>
__global__ void __launch_bounds__(THREADS, 1)
quantile_bracket(const T* samples, i64 n, u64* sums, T* items, u32* held, u32 room, const u64* range, u32 groups, u32 kept) {
    constexpr u32 GROUPS = 1 << LEVELS, COPIES = TABLE_ROW / sizeof(T), OF_TILE = LOADS * 16 / sizeof(T);
    constexpr bool FLOATS = IS_FLOAT<T>;
    constexpr u32 TABLE = GROUPS * TABLE_ROW;  // a row for each group, in which lanes have copies, so that no bank is met twice
    // One array, so that one register has its address. Behind the tables: what is kept of a tile, a column for each lane.
    extern __shared__ __align__(16) unsigned char firsts[];
    constexpr u32 LASTS = TABLE, COUNTS = 2 * TABLE, STAGED = 4 * TABLE;
    __shared__ u32 place, of_nan;
    if (range[0] != 2 * groups) return;
    for (u32 i = threadIdx.x; i < GROUPS * COPIES; i += THREADS) {
        const u32 group = i / COPIES;
        const u64 greatest = Key<T>::bits(Key<T>::LAST), beyond = FLOATS ? ~u64(0) : greatest;  // NaN, which no number reaches
        reinterpret_cast<T*>(firsts)[i] = value_of<T>(group < kept ? range[1 + 2 * group] : beyond);
        reinterpret_cast<T*>(firsts + LASTS)[i] = value_of<T>(group < groups ? range[2 + 2 * group] : greatest);
    }
    for (u32 i = threadIdx.x; i < 2 * TABLE / 4; i += THREADS) reinterpret_cast<u32*>(firsts + COUNTS)[i] = 0;
    if (threadIdx.x == 0) {
        place = held[blockIdx.x];
        of_nan = 0;
    }
    __syncthreads();
    const u32 own = threadIdx.x % COPIES * u32(sizeof(T)), limit = kept * TABLE_ROW, lane = threadIdx.x % 32;
    const u32 above = own + GROUPS / 2 * TABLE_ROW;
    const u32 one = 1 + (gridDim.x >> 31);
    const auto last_of = [&](u32 group) { return reinterpret_cast<const T*>(firsts + LASTS)[group * COPIES]; };
    const T middle = last_of(GROUPS / 2 - 1), quarter = last_of(GROUPS / 4 - (LEVELS > 1)), rest = last_of(3 * GROUPS / 4 - 1);
    T* const mine = items + u64(blockIdx.x) * room;
    // Counts a sample; whether it is gathered.
    const auto count = [&](T x) {
        const bool upper = x > middle;
        u32 row = upper ? above : own;
        if constexpr (LEVELS > 1) add_if<GROUPS / 4 * TABLE_ROW>(row, x > (upper ? rest : quarter), one);
        const auto step = [&](auto half) {
            constexpr u32 HALF = decltype(half)::value;
            add_if<HALF * TABLE_ROW>(row, x > *reinterpret_cast<const T*>(firsts + row + (LASTS + (HALF - 1) * TABLE_ROW)), one);
        };
        if constexpr (LEVELS > 4) step(Number<4>());
        if constexpr (LEVELS > 3) step(Number<2>());
        if constexpr (LEVELS > 2) step(Number<1>());
        const T first = *reinterpret_cast<const T*>(firsts + row);
        const bool inside = x >= first;
        const bool gathered = inside && (FLOATS || row < limit);
        add_if<TABLE>(row, inside, one);
        atomicAdd(reinterpret_cast<u32*>(firsts + row + COUNTS), 1u);
        return gathered;
    };
    constexpr u32 ROW = 32 * sizeof(T);
    const u32 column = threadIdx.x / 32 * OF_TILE * ROW + lane * u32(sizeof(T));
    bool full = false;  // for this warp: held says more than there is room for
    u32 nan = 0;
    const auto count_tile = [&](const T* tile) {
        u32 end = column;
        T zero = 0;  // unless a sample is NaN or infinite
#pragma unroll
        for (u32 i = 0; i < OF_TILE; ++i) {
            const bool gathered = count(tile[i]);
            if (gathered) *reinterpret_cast<T*>(firsts + end + STAGED) = tile[i];
            add_if<ROW>(end, gathered, one);
            if constexpr (FLOATS) zero = fma(T(0), tile[i], zero);
        }
        if (zero != zero) {
#pragma unroll
            for (u32 i = 0; i < OF_TILE; ++i) nan += tile[i] != tile[i];
        }
        u32 upto = (end - column) / ROW;  // of this lane and those before it
#pragma unroll
        for (u32 apart = 1; apart < 32; apart *= 2) {
            const u32 before = __shfl_up_sync(0xffffffffu, upto, apart);
            if (lane >= apart) upto += before;
        }
        u32 first = 0;
        if (lane == 31 && upto && !full) first = atomicAdd(&place, upto);
        first = __shfl_sync(0xffffffffu, first, 31);
        full = full || first + __shfl_sync(0xffffffffu, upto, 31) > room;
        if (full) return;
        T* const to = mine + (first + upto);
#pragma unroll 1
        for (u32 from = end; from > column; from -= ROW)
            to[-i64((from - column) / ROW)] = *reinterpret_cast<const T*>(firsts + from + (STAGED - ROW));
    };
    const auto count_one = [&](T x) {
        nan += x != x;
        if (!count(x)) return;
        const u32 to = atomicAdd(&place, 1u);
        if (to < room) mine[to] = x;
    };
    scan_tiles(samples, n, count_tile, count_one);
    if (nan) atomicAdd(&of_nan, nan);
    __syncthreads();
    if (threadIdx.x == 0) {
        held[blockIdx.x] = place;
        if (of_nan) atomicAdd(sums + 2 * GROUPS, u64(of_nan));
    }
    if (threadIdx.x < 2 * GROUPS) {  // below the range of a group, or in it
        const u32 row = threadIdx.x % 2 * GROUPS + threadIdx.x / 2;
        const u32* const copies = reinterpret_cast<const u32*>(firsts + COUNTS + row * TABLE_ROW);
        u64 sum = 0;
        for (u32 i = 0; i < TABLE_ROW / 4; ++i) sum += copies[i];
        if (sum) atomicAdd(sums + threadIdx.x, sum);
    }
}

// Of what was gathered in the `ranges` of `range`: counts samples below, equal to and between the keys that `state` has, of which
// equal ones count once. `proof`: how many blocks have arrived; these counts; then, by the last block, how many were gathered,
// and, with what the read counted, how many of all samples are below, equal to, between and above the keys, and how many are NaN.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
quantile_prove(const T* samples, const u32* held, u32 room, u32 targets, const u64* state, const u64* range, u32 ranges, u64* proof,
               const u64* sums, u32 groups) {
    using K = typename Key<T>::type;
    constexpr u32 AT_ONCE = 8;  // loads in flight
    u64 *const tallies = proof + 1, *const out = tallies + 2 * MOST_TARGETS + 1;
    __shared__ K keys[MOST_TARGETS];
    __shared__ u32 number, of_block[2 * MOST_TARGETS + 1];
    if (range[0] != 2 * ranges) return;
    if (threadIdx.x == 0) {
        number = 0;
        for (u32 i = 0; i < targets; ++i) {
            if (i == 0 || state[1 + i] != state[i]) keys[number++] = K(state[1 + i]);
        }
        for (u32 i = number; i < MOST_TARGETS; ++i) keys[i] = K(~K(0));  // nothing is above
    }
    if (threadIdx.x < 2 * MOST_TARGETS + 1) of_block[threadIdx.x] = 0;
    __syncthreads();
    const K* const mine = reinterpret_cast<const K*>(samples) + u64(blockIdx.x) * room;
    const u32 here = held[blockIdx.x] <= room ? held[blockIdx.x] : 0;
    for (u32 i = threadIdx.x; i < here; i += AT_ONCE * THREADS) {
        K loaded[AT_ONCE];
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; ++j) loaded[j] = __ldcg(mine + min(i + j * THREADS, here - 1));
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; ++j) {
            const K key = Key<T>::of(loaded[j]);
            u32 below = 0;  // keys
#pragma unroll
            for (u32 half = MOST_TARGETS / 2; half; half /= 2) below += keys[below + half - 1] < key ? half : 0;
            below += keys[below] < key;
            const bool equal = below < number && keys[below] == key;
            if (i + j * THREADS < here) atomicAdd(of_block + 2 * below + equal, 1u);
        }
    }
    __syncthreads();
    if (threadIdx.x < 2 * number + 1 && of_block[threadIdx.x]) atomicAdd(tallies + threadIdx.x, u64(of_block[threadIdx.x]));
    if (!is_last(proof) || threadIdx.x) return;
    u64* const around = out + 1;
    const u64 nan = sums[2 * groups];
    u64 before = 0, kept = 0, below = sums[0] - nan, inside = 0;  // below the range of a group, and gathered in those before
    u32 group = 0;
    for (u32 i = 0; i < number; ++i) {
        while (group + 1 < ranges && keys[i] > Key<T>::of(K(range[2 + 2 * group]))) {
            below += sums[2 * group + 1] + sums[2 * group + 2];
            inside += sums[2 * group + 1];
            ++group;
        }
        kept += __ldcg(tallies + 2 * i);
        const u64 less = below + kept - inside;
        kept += __ldcg(tallies + 2 * i + 1);
        const u64 upto = below + kept - inside;
        around[2 * i] = less - before;
        around[2 * i + 1] = upto - less;
        before = upto;
    }
    u64 all = 0;
    for (u32 i = 0; i < 2 * groups; ++i) all += sums[i];
    around[2 * number] = all - nan - before;
    around[2 * number + 1] = nan;
    out[0] = kept + __ldcg(tallies + 2 * number);
}
