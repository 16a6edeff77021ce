// A search for ranks among samples by the bits of their keys, for bracket.cu.
#pragma once

#include "common/stream.cuh"
#include "quantile/keys.cuh"

constexpr int MOST_TARGETS = 16, SHORT = 8;  // ranks that are looked for, at most, and bits of a step
constexpr int FEW_TARGETS = 2, LONG = 11;    // the same of few, whose counters leave room for more bits

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

// A search of one block for ranks, in ascending order, by some bits of keys after others. All functions are called by all
// threads.
template <int DIGIT, int TARGETS, typename K>
struct Descent {
    static constexpr int BINS = 1 << DIGIT, EACH = BINS / 32;  // counters of a lane, one apart, so that banks differ
    static constexpr int ROW = BINS + 32;
    static __device__ u32 at(u32 bin) { return bin + bin / EACH; }

    u32 targets;
    u32* tally;           // a row of each target; those with the same upper bits share the counters of the first of them
    K* upper;             // bits of the keys that are known
    u64 *ranks, *equal;   // ranks among the samples that have these, and their number

    __device__ bool first_alike(u32 target) const { return target == 0 || upper[target - 1] != upper[target]; }
    __device__ void clear() const {
        for (u32 i = threadIdx.x; i < targets * ROW; i += THREADS) tally[i] = 0;
        __syncthreads();
    }
    __device__ void count(u32 target, K key) const { atomicAdd(tally + target * ROW + at(u32(key % BINS)), 1u); }
    // Counts samples, whose keys are taken less `least`, without the bits below those of this step. Several loads are in
    // flight, and what few targets look for is in registers.
    template <typename T>
    __device__ void count_all(const K* samples, u32 number, K least, int shift) const {
        constexpr u32 AT_ONCE = 8;
        constexpr int HELD = TARGETS <= FEW_TARGETS ? TARGETS : 1;
        K held[HELD];
        bool counted[HELD];
        for (int target = 0; target < HELD; ++target) {
            counted[target] = u32(target) < targets && first_alike(target);
            held[target] = counted[target] ? upper[target] : K(0);
        }
        for (u32 first = threadIdx.x; first < number; first += AT_ONCE * THREADS) {
            K loaded[AT_ONCE];
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; ++j) loaded[j] = __ldcg(samples + min(first + j * THREADS, number - 1));
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; ++j) {
                if (first + j * THREADS >= number) break;
                const K key = K(Key<T>::of(loaded[j]) - least) >> shift, above = key >> DIGIT;
#pragma unroll
                for (int target = 0; target < HELD; ++target) {
                    if (counted[target] && above == held[target]) count(target, key);
                }
                for (u32 target = HELD; target < targets; ++target) {
                    if (above == upper[target] && first_alike(target)) count(target, key);
                }
            }
        }
    }
    // Appends the bits of this step, once all is counted; a warp has a target.
    __device__ void descend() const {
        const u32 target = threadIdx.x / 32, lane = threadIdx.x % 32;
        __syncthreads();
        u32 shared = min(target, targets - 1);
        while (!first_alike(shared)) --shared;
        const u32* const bins = tally + shared * ROW + at(lane * EACH);
        u32 own = 0;
        for (int i = 0; i < EACH; ++i) own += bins[i];
        u32 upto = own;
        for (u32 apart = 1; apart < 32; apart *= 2) {
            const u32 before = __shfl_up_sync(0xffffffffu, upto, apart);
            if (lane >= apart) upto += before;
        }
        u32 below = upto - own, place = 0;
        const bool here = target < targets && ranks[target] >= below && ranks[target] < upto;
        while (here && ranks[target] >= below + bins[place]) below += bins[place++];
        __syncthreads();
        if (here) {
            upper[target] = K(upper[target] << DIGIT | (lane * EACH + place));
            ranks[target] -= below;
            equal[target] = bins[place];
        }
        __syncthreads();
    }
};
