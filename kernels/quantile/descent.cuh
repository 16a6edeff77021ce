// A search for ranks among samples by the bits of their keys, for bracket.cu.
#pragma once

#include "common/stream.cuh"
#include "quantile/keys.cuh"

constexpr int MOST_TARGETS = 16, DIGIT = 11;  // ranks that are looked for, at most, and bits of a step
constexpr int MOST_SPANS = 16;                // ranges that keys are in, at most

// Called by all threads; true in the last block, when what all others stored is visible.
inline __device__ bool is_last(u64* arrived) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(arrived, u64(1)) == gridDim.x - 1;
        if (last) atomicExch(arrived, u64(0));
        __threadfence();
    }
    __syncthreads();
    return last;
}

// Ascending ranges of keys, which are numbered from 0 on, one range after another: all keys that are searched.
template <typename K>
struct Spans {
    u32 number;
    int bits;                                // of the greatest of these numbers, at least one
    K first[MOST_SPANS], ahead[MOST_SPANS];  // by how much the number of a key of the range is greater than the key, modulo the type

    // Called by one thread: the keys of `range`, as `quantile_ends` describes it.
    template <typename T>
    __device__ void read(const u64* range, u32 ranges) {
        K before = 0;
        for (u32 j = 0; j < ranges; ++j) {
            first[j] = Key<T>::of(K(range[1 + 2 * j]));
            ahead[j] = K(before - first[j]);
            before = K(before + (Key<T>::of(K(range[2 + 2 * j])) - first[j]) + 1);
        }
        number = ranges;
        bits = max(64 - __clzll(i64(u64(K(before - 1)))), 1);
    }
    __device__ K key(K place) const {
        u32 j = number - 1;
        while (j && place < K(first[j] + ahead[j])) --j;
        return K(place - ahead[j]);
    }
};

// What the read counted: of each group, samples below its range and in it, and NaN behind them; see quantile_bracket.
struct Counted {
    const u64* sums;
    u32 groups, gathered;  // how many there are; those whose ranges were gathered, as bits

    __device__ u64 nan() const { return sums[2 * groups]; }
};

// The rank, among samples that were gathered, of one among all numbers; of one outside their ranges that of the next one.
inline __device__ u64 rank_among(u64 rank, Counted counted) {
    u64 kept = 0, below = 0 - counted.nan();  // NaN are counted below the first range
    for (u32 j = 0; counted.gathered >> j; ++j) {
        below += counted.sums[2 * j];
        const u64 inside = counted.sums[2 * j + 1];
        if (counted.gathered >> j & 1) {
            if (rank < below + inside) return kept + (rank < below ? 0 : rank - below);
            kept += inside;
        }
        below += inside;
    }
    return kept;
}

// A search of one block for ranks, in ascending order, by some bits of the numbers of keys after others; in shared memory. The
// first step takes DIGIT bits, or as many as there are, and so do later ones. All functions but `at` are called by all threads.
template <typename K>
struct Descent {
    static constexpr u32 BINS = 1 << DIGIT, EACH = BINS / 32;  // counters of a lane, one apart, so that banks differ
    static constexpr u32 ROW = BINS + 32;
    static __device__ u32 at(u32 bin) { return bin + bin / EACH; }

    u32 targets, rows;                             // those with the same upper bits share a row of counters
    K upper[MOST_TARGETS], of_row[MOST_TARGETS];   // bits that are known, of each target and of each row
    u32 row[MOST_TARGETS];
    u64 ranks[MOST_TARGETS], equal[MOST_TARGETS];  // ranks among the samples that have these, and their number
    Spans<K> spans;

    __device__ int steps() const { return (spans.bits + DIGIT - 1) / DIGIT; }

    // Once `targets`, `upper`, `ranks` and `spans` are set: clears the counters of a step.
    __device__ void begin(u32* tally) {
        __syncthreads();
        if (threadIdx.x < targets) {
            u32 own = 0;
            for (u32 i = 1; i <= threadIdx.x; ++i) own += upper[i - 1] != upper[i];
            row[threadIdx.x] = own;
            if (threadIdx.x == 0 || upper[threadIdx.x - 1] != upper[threadIdx.x]) of_row[own] = upper[threadIdx.x];
            if (threadIdx.x == targets - 1) rows = own + 1;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < rows * ROW; i += THREADS) tally[i] = 0;
        __syncthreads();
    }
    // Counts samples by the bits of a step. Several loads are in flight.
    template <typename T>
    __device__ void count_all(u32* tally, const K* samples, u32 number, int step) const {
        constexpr u32 AT_ONCE = 8;
        u32 first = threadIdx.x;
        for (; first + (AT_ONCE - 1) * THREADS < number; first += AT_ONCE * THREADS)
            count<T, AT_ONCE>(tally, samples + first, step);
        for (; first < number; first += THREADS) count<T, 1>(tally, samples + first, step);
    }
    // Appends the bits of a step, once all is counted; a warp has a target. Of a rank that no sample has it finds none.
    __device__ void descend(const u32* tally, int step) {
        const u32 target = threadIdx.x / 32, lane = threadIdx.x % 32;
        __syncthreads();
        const bool known = target < targets;
        const u32* const bins = tally + (known ? row[target] : 0) * ROW + at(lane * EACH);
        u32 own = 0;
        for (u32 i = 0; i < EACH; ++i) own += bins[i];
        u32 upto = own;
        for (u32 apart = 1; apart < 32; apart *= 2) {
            const u32 before = __shfl_up_sync(0xffffffffu, upto, apart);
            if (lane >= apart) upto += before;
        }
        u32 below = upto - own, place = 0;
        const bool here = known && ranks[target] >= below && ranks[target] < upto;
        while (here && ranks[target] >= below + bins[place]) below += bins[place++];
        __syncthreads();
        if (here) {
            upper[target] = K(upper[target] << (left(step - 1) - left(step)) | (lane * EACH + place));
            ranks[target] -= below;
            equal[target] = bins[place];
        }
        __syncthreads();
    }

  private:
    // Bits that are not known after a step.
    __device__ int left(int step) const { return max(spans.bits - DIGIT * (step + 1), 0); }

    template <typename T, u32 NUMBER>
    __device__ void count(u32* tally, const K* samples, int step) const {
        K places[NUMBER], ahead[NUMBER];
#pragma unroll
        for (u32 j = 0; j < NUMBER; ++j) places[j] = __ldcg(samples + j * THREADS);
#pragma unroll
        for (u32 j = 0; j < NUMBER; ++j) {
            places[j] = Key<T>::of(places[j]);
            ahead[j] = spans.ahead[0];
        }
        for (u32 i = 1; i < spans.number; ++i) {
            const K first = spans.first[i], other = spans.ahead[i];
#pragma unroll
            for (u32 j = 0; j < NUMBER; ++j) ahead[j] = places[j] >= first ? other : ahead[j];
        }
        const int shift = left(step), bits = left(step - 1) - shift;
        u32* counters[NUMBER];
#pragma unroll
        for (u32 j = 0; j < NUMBER; ++j) {
            const K digits = K(places[j] + ahead[j]) >> shift;
            counters[j] = tally + at(u32(digits) & ((1u << bits) - 1));
            places[j] = digits >> bits;
        }
        for (u32 i = 0; i < rows; ++i) {
            const K known = of_row[i];
#pragma unroll
            for (u32 j = 0; j < NUMBER; ++j) {
                if (places[j] == known) atomicAdd(counters[j], 1u);
                counters[j] += ROW;
            }
        }
    }
};
