// Order statistics of samples that lie on a device, for bracket.py, which says how they are found.
//
//   quantile_sample    draws one sample of each of as many strata as there are threads; the last block looks up some of them
//   quantile_pick      one step of a search among what was gathered: some bits of the keys of given ranks
//   quantile_bracket   counts samples at the ends of ranges, and gathers those inside
//   quantile_prove     counts what was gathered around the keys that were found, and all samples with it

#include "common/count_if.cuh"
#include "common/stream.cuh"
#include "quantile/descent.cuh"
#include "quantile/keys.cuh"

constexpr int HEAVY = 64;  // a key that more than this part of the samples has is not gathered

// The upper bits depend on every bit of a small x: by constants of A. Appleby's MurmurHash3.
inline __device__ u32 mixed(u32 x) {
    x *= 0x85ebca6bu;
    return (x ^ x >> 13) * 0xc2b2ae35u;
}

// The place in a stratum is pseudo-random, so that no period is met.
// `state`: how many blocks have arrived; NaN that were drawn; then of each target, in ascending order, a share of the numbers
// and how many numbers beyond that it lies. They are replaced by its place among the numbers that were drawn and its key, behind
// which are written how many samples before have the key, and how many do.
// `range`: where there are two targets, how many of them are fit to be the ends of a range, then the bits of the samples
// there. A key that many samples have is not, nor is any beside NaN, unless these are left out: `omit`.
template <typename T, int DIGIT, int TARGETS>
__global__ void __launch_bounds__(THREADS, 1)
quantile_sample(const T* samples, i64 n, T* drawn, u32 targets, u64* state, u32 omit, u64* range) {
    using K = typename Key<T>::type;
    __shared__ u32 tally[TARGETS * Descent<DIGIT, TARGETS, K>::ROW];
    __shared__ K upper[TARGETS];
    __shared__ u64 ranks[TARGETS], equal[TARGETS];
    const u64 strata = u64(gridDim.x) * THREADS, i = u64(blockIdx.x) * THREADS + threadIdx.x;
    const u64 first = i * u64(n) / strata, size = (i + 1) * u64(n) / strata - first;
    const T x = samples[first + (mixed(u32(i)) * size >> 32)];
    drawn[i] = x;
    const u32 others = u32(__syncthreads_count(x != x));
    if (threadIdx.x == 0 && others) atomicAdd(state + 1, u64(others));
    if (!is_last(state)) return;
    u64* const of_target = state + 2 + threadIdx.x;
    if (threadIdx.x < targets) {
        const i64 numbers = i64(strata - __ldcg(state + 1));
        const double share = __longlong_as_double(i64(of_target[0])), beyond = __longlong_as_double(i64(of_target[targets]));
        const i64 place = __double2ll_rn(double(numbers) * share + beyond);
        of_target[0] = u64(place);
        ranks[threadIdx.x] = u64(max(min(place, numbers - 1), i64(0)));
        upper[threadIdx.x] = 0;
        equal[threadIdx.x] = 0;
    }
    const Descent<DIGIT, TARGETS, K> search{targets, tally, upper, ranks, equal};
    const K* const bits = reinterpret_cast<const K*>(drawn);
    for (int shift = (8 * int(sizeof(K)) - 1) / DIGIT * DIGIT; shift >= 0; shift -= DIGIT) {
        search.clear();
        search.template count_all<T>(bits, u32(strata), 0, shift);
        search.descend();
    }
    if (threadIdx.x < targets) {
        const K key = upper[threadIdx.x];
        of_target[targets] = key;
        of_target[2 * targets] = ranks[threadIdx.x];
        of_target[3 * targets] = equal[threadIdx.x];
        const u64 nan = __ldcg(state + 1), numbers = strata - nan;
        if (targets != 2) return;
        const i64 place = i64(of_target[0]);
        const K open = place < 0 ? Key<T>::FIRST : place < i64(numbers) ? key : Key<T>::LAST;
        range[1 + threadIdx.x] = Key<T>::bits(open);
        if (equal[threadIdx.x] * HEAVY <= numbers && (omit || nan == 0)) atomicAdd(range, u64(1));
    }
}

// What the keys of a range have: the least one, and bits in which they differ from it, at least one. None if it is not fit.
template <typename K>
struct Span {
    K least;
    int bits;
};
template <typename T>
inline __device__ Span<typename Key<T>::type> span_of(const u64* range) {
    using K = typename Key<T>::type;
    const K least = Key<T>::of(K(range[1])), most = Key<T>::of(K(range[2]));
    if (range[0] != 2) return {least, 0};
    return {least, max(64 - __clzll(i64(u64(K(most - least)))), 1)};
}

// The rank, among samples that were gathered in `ranges`, of one among all numbers; of one outside it says nothing.
inline __device__ u64 rank_among(u64 rank, const u64* sums, u32 ranges, u64 numbers) {
    u64 before = 0;
    for (u32 j = 0; j < ranges; ++j) {
        const u64 below = numbers - sums[2 * j], inside = sums[2 * j + 1];
        if (rank < below + inside) return before + rank - below;
        before += inside;
    }
    return before;
}

// Each block has room for `room` samples, and `held` of them; none that count if it says more.
// `state`: how many blocks have arrived; then of each target, in ascending order: the upper bits of its key less `least`, its
// rank among the samples that have these, and their number. A step appends the bits from `shift` on. `counters` are zeros.
// Where the first step finds `ranges` of a read, with its `sums` up to `all`, ranks are those among all numbers.
// Of the `range` that `quantile_sample` wrote, the number of the step, or -1, says which bits; none is left for the last ones.
template <typename T, int DIGIT, int TARGETS>
__global__ void __launch_bounds__(THREADS, 1)
quantile_pick(const T* samples, const u32* held, u32 room, u32 targets, int shift, typename Key<T>::type least,
              u64* state, u32* counters, const u64* sums, u32 ranges, u32 all, const u64* range, int step) {
    using K = typename Key<T>::type;
    if (step >= 0) {
        const Span<K> span = span_of<T>(range);
        const int steps = (span.bits + DIGIT - 1) / DIGIT;
        if (step >= steps) return;
        least = span.least;
        shift = DIGIT * (steps - 1 - step);
    }
    constexpr int ROW = Descent<DIGIT, TARGETS, K>::ROW;
    __shared__ u32 tally[TARGETS * ROW];
    __shared__ K upper[TARGETS];
    __shared__ u64 ranks[TARGETS], equal[TARGETS];
    u64* const of_target = state + 1 + threadIdx.x;
    if (threadIdx.x < targets) {
        upper[threadIdx.x] = K(*of_target);
        const u64 rank = of_target[targets];
        ranks[threadIdx.x] = ranges ? rank_among(rank, sums, ranges, sums[all]) : rank;
        equal[threadIdx.x] = 0;
    }
    const Descent<DIGIT, TARGETS, K> search{targets, tally, upper, ranks, equal};
    search.clear();
    const K* const mine = reinterpret_cast<const K*>(samples) + u64(blockIdx.x) * room;
    const u32 number = held[blockIdx.x] <= room ? held[blockIdx.x] : 0;
    search.template count_all<T>(mine, number, least, shift);
    __syncthreads();
    for (u32 i = threadIdx.x; i < targets * ROW; i += THREADS) {
        if (tally[i]) atomicAdd(counters + i, tally[i]);
    }
    if (!is_last(state)) return;
    for (u32 i = threadIdx.x; i < targets * ROW; i += THREADS) {
        tally[i] = __ldcg(counters + i);
        counters[i] = 0;
    }
    search.descend();
    if (threadIdx.x < targets) {
        *of_target = upper[threadIdx.x];
        of_target[targets] = ranks[threadIdx.x];
        of_target[2 * targets] = equal[threadIdx.x];
    }
}

template <typename T>
inline __device__ T value_of(u64 bits) {
    union {
        typename Key<T>::type bits;
        T value;
    } own{typename Key<T>::type(bits)};
    return own.value;
}

// The first GATHERED ranges from a to b, b included, are gathered, the next COUNTED ones are not; none overlap. Counted in
// registers: samples not less than each a, those in each range, numbers, and all. A block gathers up to `room` samples behind
// those that it has; `held`: how many, or more than there is room for.
// One range alone is that of `range`, as `quantile_sample` wrote it; nothing is done where its ends are not fit.
template <typename T, int GATHERED, int COUNTED>
__global__ void __launch_bounds__(THREADS, 1)
quantile_bracket(const T* samples, i64 n, u64* sums, T* gathered, u32* held, u32 room, const u64* range, T a0, T b0, T a1, T b1, T a2, T b2,
                 T a3, T b3, T a4, T b4, T a5, T b5, T a6, T b6, T a7, T b7, T a8, T b8, T a9, T b9, T a10, T b10, T a11,
                 T b11) {
    constexpr int RANGES = GATHERED + COUNTED, COUNTERS = 2 * RANGES + 2, PER_PACK = 16 / sizeof(T);
    constexpr Next NEXT = RANGES > 5 ? Next::LATER : AHEAD;  // counters need the registers of a second tile
    __shared__ u32 of_block[COUNTERS], place;
    constexpr bool ALONE = RANGES == 1;
    if (ALONE && range[0] != 2) return;
    if (ALONE) a0 = value_of<T>(range[1]), b0 = value_of<T>(range[2]);
    const T ends[] = {a0, b0, a1, b1, a2, b2, a3, b3, a4, b4, a5, b5, a6, b6, a7, b7, a8, b8, a9, b9, a10, b10, a11, b11};
    static_assert(2 * RANGES <= sizeof ends / sizeof(T), "as many as there are arguments");
    u32 counts[COUNTERS] = {};
    const u32 one = 1 + (gridDim.x >> 31);  // hides the constant from the compiler
    T* const mine = gathered + u64(blockIdx.x) * room;
    // `any` is a value of its own: without it, the assembler of CUDA 13.0 takes bits of two samples for none.
    const auto count = [&](T x, u32& kept, bool& any, u32 bit) {
#pragma unroll
        for (int j = 0; j < RANGES; ++j) {
            const bool reached = x >= ends[2 * j], inside = reached && x <= ends[2 * j + 1];
            add_if(counts[2 * j], reached, one);
            add_if(counts[2 * j + 1], inside, one);
            if (j < GATHERED && inside) kept |= bit;
            any |= j < GATHERED && inside;
        }
        add_if(counts[2 * RANGES], x == x, one);
    };
    bool full = false;  // for this thread: held says more than there is room for
    const auto prepare = [&] {
        if (threadIdx.x < COUNTERS) of_block[threadIdx.x] = 0;
        if (threadIdx.x == 0) place = held[blockIdx.x];
        __syncthreads();
    };
    union Pack {
        uint4 words;
        T item[PER_PACK];
    };
    const i64 misaligned = i64(reinterpret_cast<u64>(samples) % 16 / sizeof(T));
    const i64 head = min(n, misaligned ? PER_PACK - misaligned : i64(0)), packs = (n - head) / PER_PACK;
    const auto* const from = reinterpret_cast<const uint4*>(samples + head);
    // One branch for a pack, which is seldom taken.
    scan_samples<LOADS, NEXT, true>(from, packs, Share{blockIdx.x, gridDim.x}, prepare, [&](uint4 words) {
        const Pack pack{words};
        u32 kept = 0;
        bool any = false;
#pragma unroll
        for (int i = 0; i < PER_PACK; ++i) count(pack.item[i], kept, any, 1u << i);
        counts[2 * RANGES + 1] += PER_PACK;
        if (!any || full) return;
        const u32 number = u32(__popc(kept)), first = atomicAdd(&place, number);
        full = first + number > room;
        if (full) return;
        T* to = mine + first;
#pragma unroll
        for (int i = 0; i < PER_PACK; ++i) {
            if (kept >> i & 1) *to++ = pack.item[i];
        }
    });
    const i64 thread = i64(blockIdx.x) * THREADS + threadIdx.x, tail = head + packs * PER_PACK;
    const auto count_one = [&](T x) {
        u32 kept = 0;
        bool any = false;
        count(x, kept, any, 1);
        ++counts[2 * RANGES + 1];
        if (!any) return;
        const u32 to = atomicAdd(&place, 1u);
        if (to < room) mine[to] = x;
    };
    if (thread < head) count_one(samples[thread]);
    if (thread < n - tail) count_one(samples[tail + thread]);
#pragma unroll
    for (int j = 0; j < COUNTERS; ++j) {
#pragma unroll
        for (int apart = 16; apart; apart /= 2) counts[j] += __shfl_xor_sync(0xffffffffu, counts[j], apart);
        if (threadIdx.x % 32 == 0) atomicAdd(of_block + j, counts[j]);
    }
    __syncthreads();
    if (threadIdx.x == 0) held[blockIdx.x] = place;
    if (threadIdx.x < COUNTERS && of_block[threadIdx.x]) atomicAdd(sums + threadIdx.x, u64(of_block[threadIdx.x]));
}

// Of what was gathered in the `range` that `quantile_sample` wrote: how many samples are less than each of the keys that
// `state` has, less the least one, and not greater, and all that found room, in `tallies`, which are zeros. The last block adds
// what was counted outside of the range, `sums`, and writes the first and the last key, then how many samples are below, equal
// to, between and above the keys, of which equal ones count once, and how many are NaN.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
quantile_prove(const T* samples, const u32* held, u32 room, u32 targets, const u64* state, const u64* range, u64* arrived,
               u64* tallies, const u64* sums, u64* out) {
    using K = typename Key<T>::type;
    constexpr int COUNTERS = 2 * FEW_TARGETS;
    constexpr u32 AT_ONCE = 8;  // loads in flight
    __shared__ u32 of_block[COUNTERS];
    if (threadIdx.x < COUNTERS) of_block[threadIdx.x] = 0;
    __syncthreads();
    const K* const mine = reinterpret_cast<const K*>(samples) + u64(blockIdx.x) * room;
    const u32 number = held[blockIdx.x] <= room ? held[blockIdx.x] : 0;
    u32 counts[COUNTERS] = {};
    const K least = span_of<T>(range).least, first = K(least + K(state[1])), last = K(least + K(state[targets]));
    for (u32 i = threadIdx.x; i < number; i += AT_ONCE * THREADS) {
        K loaded[AT_ONCE];
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; ++j) loaded[j] = __ldcg(mine + min(i + j * THREADS, number - 1));
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; ++j) {
            if (i + j * THREADS >= number) break;
            const K key = Key<T>::of(loaded[j]);
            counts[0] += key < first;
            counts[1] += key <= first;
            counts[2] += key < last;
            counts[3] += key <= last;
        }
    }
#pragma unroll
    for (int j = 0; j < COUNTERS; ++j) {
#pragma unroll
        for (int apart = 16; apart; apart /= 2) counts[j] += __shfl_xor_sync(0xffffffffu, counts[j], apart);
        if (threadIdx.x % 32 == 0 && counts[j]) atomicAdd(of_block + j, counts[j]);
    }
    __syncthreads();
    if (threadIdx.x < COUNTERS) atomicAdd(tallies + threadIdx.x, u64(of_block[threadIdx.x]));
    if (threadIdx.x == COUNTERS) atomicAdd(tallies + COUNTERS, u64(number));
    if (!is_last(arrived) || threadIdx.x) return;
    out[0] = first;
    out[1] = last;
    u64* const around = out + 2;
    const u64 numbers = sums[2], below = numbers - sums[0];
    const int ends = first == last ? 2 : 4;
    u64 before = 0;
    for (int j = 0; j < ends; ++j) {
        const u64 upto = below + __ldcg(tallies + j);
        around[j] = upto - before;
        before = upto;
    }
    around[ends] = numbers - before;
    around[ends + 1] = sums[3] - numbers;
}
