// Histogram: count samples.
//
// Variants on 10-bit samples, naive first (histogram_ladder.cuh); blocks, threads and slice are those of the course:
//   global_atomics  a slice of the samples per thread, counters in global memory
//   unrolled        global_atomics, its loop unrolled 512 times
//   ilp             global_atomics, four samples per iteration by hand
//   one_per_thread  no slice and no loop: a thread per sample
//   shared          slices again, counters in the block's shared memory, added to the global ones at the end
//   inverse         a thread per value, which counts it in the samples that its block holds in shared memory
//   banks           inverse, as many samples held as there are threads, occurrences in a register
//   banks2          banks, two values per thread
//   banks4          banks, four values per thread
//   production      shared with 16-byte loads, enough of them in flight: the kernels of this file
//   no_barrier      shared without __syncthreads; broken: counts while counters are cleared, adds while others count
//   plain_add       global_atomics without atomicAdd; broken: threads overwrite each other's increments
//   past_the_end    global_atomics without a guard; broken: counts what lies behind the samples
//
// The production kernels count into slots (0 underflow, 1..bins, bins + 1 overflow, bins + 2 NaN), each with the same
// result:
//   histogram_shift    integers, bins 2^k values wide: subtract, compare, shift
//   histogram_regular  evenly spaced edges: guess by one multiplication, correct near a border against the thresholds
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

#include "histogram_ladder.cuh"
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
                  const typename Key<T>::type* thresholds, int count, typename Key<T>::type start,
                  typename Key<T>::type end, bool has_end, typename Guess<typename Key<T>::type>::type scale,
                  typename Guess<typename Key<T>::type>::type offset,
                  typename Guess<typename Key<T>::type>::type below,
                  typename Guess<typename Key<T>::type>::type above) {
    const Regular<typename Key<T>::type> locate{thresholds, count, start,  end,  has_end,
                                                scale,      offset, below, above, bins};
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
