// Histogram: count samples into slots (0 underflow, 1..bins, bins + 1 overflow, bins + 2 NaN).
//
// Variants, each with the same result:
//   histogram_shift    integers, bins 2^k values wide: subtract, compare, shift
//   histogram_regular  evenly spaced edges: guess by one multiplication, then correct against the exact thresholds
//   histogram_search   any edges: binary search in the thresholds
//   histogram_bytes    8-bit samples: count all 256 values, bin them at the end
//
// All of them count in u32 counters private to the block. u32 and a constant 1 with the old value unused is what the
// compiler turns into the fused shared-memory increment, which also merges equal addresses in a warp (sm_80 and newer);
// a wider counter would become a compare-and-swap loop. The wrapper keeps the samples of a block below 2^32.
// A launch counts a window of slots, [first, last): where shared memory does not hold them all, the wrapper launches once
// per window. On H200 a pass over the data costs 1/4400 s per GB; u64 atomics in global memory reached 43 GB/s, and 5
// where all samples are equal.
// Thresholds are exact in the type of the key (kernels/binning.py), so nothing here rounds, whatever the edges.

#include "locate.cuh"
#include "stream.cuh"

// The slots that a launch counts.
struct Window {
    u32 first, last;
    u64* slots;
};

// COPIES > 1 spreads the counters of one slot over lanes: lanes that increment the same bank wait for each other.
// WHOLE: the window is all slots; asking costs narrow samples a third of their rate.
template <typename T, int COPIES, bool WHOLE, typename Locate>
__device__ void count_samples(const T* samples, i64 n, Locate locate, Window window, const u32* slot_of) {
    static_assert((COPIES & (COPIES - 1)) == 0 && COPIES <= 32, "a copy is chosen by the low bits of the lane");
    extern __shared__ u32 counted[];
    const u32 counters = window.last - window.first;
    for (u32 i = threadIdx.x; i < counters * COPIES; i += THREADS) counted[i] = 0;
    __syncthreads();
    u32* const mine = counted + threadIdx.x % COPIES;
    for_each_sample(samples, n, [&](T x) {
        const u32 counter = locate(Key<T>::of(x)) - window.first;  // below the window it wraps to far above
        if (WHOLE || counter < counters) atomicAdd(mine + counter * COPIES, 1u);
    });
    __syncthreads();
    for (u32 i = threadIdx.x; i < counters; i += THREADS) {
        u64 sum = 0;
        for (int k = 0; k < COPIES; ++k) sum += counted[i * COPIES + (threadIdx.x + k) % COPIES];
        if (sum) atomicAdd(window.slots + (slot_of ? slot_of[i] : window.first + i), sum);
    }
}

template <typename T, int COPIES, bool WHOLE>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
histogram_shift(const T* samples, i64 n, u64* slots, u32 first, u32 last, u32 bins, typename Key<T>::type start,
                typename Unsigned<typename Key<T>::type>::type reach, int shift, typename Key<T>::type end,
                bool has_end) {
    const Shift<typename Key<T>::type> locate{start, reach, shift, end, has_end, bins};
    count_samples<T, COPIES, WHOLE>(samples, n, locate, Window{first, last, slots}, nullptr);
}

template <typename T, int COPIES, bool WHOLE>
__global__ void __launch_bounds__(THREADS, 1)
histogram_regular(const T* samples, i64 n, u64* slots, u32 first, u32 last, u32 bins,
                  const typename Key<T>::type* thresholds, int count,
                  typename Guess<typename Key<T>::type>::type scale,
                  typename Guess<typename Key<T>::type>::type offset) {
    const Regular<typename Key<T>::type> locate{thresholds, count, scale, offset, bins};
    count_samples<T, COPIES, WHOLE>(samples, n, locate, Window{first, last, slots}, nullptr);
}

template <typename T, int COPIES, bool WHOLE>
__global__ void __launch_bounds__(THREADS, 1)
histogram_search(const T* samples, i64 n, u64* slots, u32 first, u32 last, u32 bins,
                 const typename Key<T>::type* thresholds, int count) {
    const Search<typename Key<T>::type> locate{thresholds, count, bins, first, last};
    count_samples<T, COPIES, WHOLE>(samples, n, locate, Window{first, last, slots}, nullptr);
}

template <typename T, int COPIES>
__global__ void __launch_bounds__(THREADS, 1)
histogram_bytes(const T* samples, i64 n, u64* slots, u32 first, u32 last, const u32* slot_of) {
    count_samples<T, COPIES, true>(samples, n, Value{}, Window{first, last, slots}, slot_of);
}
