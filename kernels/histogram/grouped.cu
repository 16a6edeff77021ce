// Kernels of histograms under a condition, for refined.py: slots belong to groups, group 0 is what is left out.
//
//   grouped_steps   evenly spaced edges, as histogram_steps (gpu.cu), but samples in a few ranges are moved to other groups
//   regroup         adds up the counts of slots by groups

#include "common/count_if.cuh"
#include "histogram/steps.cuh"

constexpr u32 ALL = 0xffffffffu;

template <typename N>
__device__ N sum_of_warp(N own) {
#pragma unroll
    for (int apart = 16; apart; apart /= 2) own += __shfl_xor_sync(ALL, own, apart);
    return own;
}

// `all` slots; `groups`: of each. Samples equal to POINTS numbers, and those in RANGES, both ends included, are moved: `moved`
// says from which group to which. The numbers are parameters, which take no registers as operands of comparisons.
template <typename T, int COPIES, int HELD, int POINTS, int RANGES>
__global__ void __launch_bounds__(THREADS, 1)
grouped_steps(const T* samples, i64 n, u64* sums, u32 all, int least, int most, const typename Key<T>::type* values,
              decltype(Guess<typename Key<T>::type>::start) start, typename Guess<typename Key<T>::type>::Real scale,
              const u32* groups, const u32* moved, typename Key<T>::type point0, typename Key<T>::type point1,
              typename Key<T>::type low0, typename Key<T>::type high0, typename Key<T>::type low1,
              typename Key<T>::type high1) {
    extern __shared__ __align__(16) u32 shared[];
    constexpr int MOVED = POINTS + RANGES;
    __shared__ u32 of_block[MOVED + 1];  // samples that are moved, and at last those of slots that are left out
    using K = typename Key<T>::type;
    const Guess<K> guess{start, scale};
    Steps<K, COPIES, HELD> steps(shared, all + 3, -1, least, most);
    const K point[] = {point0, point1}, low[] = {low0, low1}, high[] = {high0, high1};
    u32 counts[MOVED + 1] = {};
    const u32 one = 1 + (gridDim.x >> 31);  // hides the constant from the compiler
    const auto prepare = [&] {
        if (threadIdx.x <= MOVED) of_block[threadIdx.x] = 0;
        steps.prepare(values, most, ORIGIN);
    };
    const auto count = [&](T sample) {
        const K x = Key<T>::of(sample);
        steps.template add<true>(x, guess(x));
#pragma unroll
        for (int j = 0; j < POINTS; ++j) add_if(counts[j], x == point[j], one);
#pragma unroll
        for (int j = 0; j < RANGES; ++j) add_if(counts[POINTS + j], x >= low[j] && x <= high[j], one);
    };
    scan_samples<LOADS, Next::IN_TURNS, true>(samples, n, Share{blockIdx.x, gridDim.x}, prepare, count);
    __syncthreads();
    for (u32 row = 1 + threadIdx.x; row <= all; row += THREADS) {
        u32 sum = 0;
        for (int k = 0; k < COPIES; ++k) sum += steps.words[row * COPIES + (threadIdx.x + k) % COPIES];
        const u32 group = groups[row - 1];
        if (group && sum) atomicAdd(sums + group, u64(sum));
        if (!group) counts[MOVED] += sum;
    }
#pragma unroll
    for (int j = 0; j <= MOVED; ++j) {
        const u32 sum = sum_of_warp(counts[j]);
        if (threadIdx.x % 32 == 0 && sum) atomicAdd(of_block + j, sum);
    }
    __syncthreads();
    if (threadIdx.x > MOVED) return;
    const u64 sum = of_block[threadIdx.x];
    if (!sum) return;
    if (threadIdx.x == MOVED) {
        atomicAdd(sums, sum);
    } else {
        atomicAdd(sums + moved[2 * threadIdx.x], u64(0) - sum);
        atomicAdd(sums + moved[2 * threadIdx.x + 1], sum);
    }
}

// A thread for each of `all` slots.
__global__ void __launch_bounds__(THREADS, 1) regroup(const u64* slots, u32 all, const u32* groups, u64* sums) {
    const u32 slot = blockIdx.x * THREADS + threadIdx.x;
    const u64 own = slot < all ? slots[slot] : 0;
    const u32 group = slot < all ? groups[slot] : 0;
    if (group && own) atomicAdd(sums + group, own);
    const u64 left_out = sum_of_warp(group ? u64(0) : own);
    if (threadIdx.x % 32 == 0 && left_out) atomicAdd(sums, left_out);
}
