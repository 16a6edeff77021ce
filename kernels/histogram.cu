// Histogram: count samples.
//
// Variants on 10-bit samples, naive first (histogram_ladder.cuh); blocks, threads and slice are those of the seed:
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

#include "counters.cuh"
#include "histogram_ladder.cuh"
#include "locate.cuh"

// WHOLE: the window is all slots, and nobody asks which ones it has.
template <typename T, bool WHOLE, typename Counters, typename Locate>
__device__ void count_samples(const T* samples, i64 n, Locate locate, Window window, const u32* slot_of, u32* shared) {
    for (u32 i = threadIdx.x; i < Counters::size(window); i += THREADS) shared[i] = 0;
    Counters counters(shared, window);
    __syncthreads();
    const u32 first = WHOLE ? 0 : window.first, length = window.length();
    const auto quick = [&](T x) {
        u32 slot;
        const bool found = locate.quick(Key<T>::of(x), slot);
        // Below the window it wraps to far above.
        counters.add(WHOLE ? slot : min(slot - first, length), found);
        return found;
    };
    const auto slow = [&](T x) { counters.add(min(locate.slow(Key<T>::of(x)) - first, length), true); };
    scan_samples<Counters::template loads<T>()>(samples, n, quick, slow, [&] { counters.turn(); });
    __syncthreads();
    // Blocks begin at different slots: all of them would wait for the same few cells otherwise.
    const u32 rotated = u32(u64(length) * blockIdx.x / gridDim.x) / 32 * 32;
    for (u32 i = threadIdx.x; i < length; i += THREADS) {
        const u32 counter = i + rotated < length ? i + rotated : i + rotated - length;
        const u64 sum = counters.total(counter);
        if (sum) atomicAdd(window.slots + (slot_of ? slot_of[counter] : first + counter), sum);
    }
}

template <typename T, typename Counters, bool WHOLE>
__global__ void __launch_bounds__(THREADS, 1)
histogram_shift(const T* samples, i64 n, u64* slots, u32 first, u32 last, u32 bins, typename Key<T>::type start,
                typename Unsigned<typename Key<T>::type>::type reach, int shift, typename Key<T>::type end,
                bool has_end) {
    extern __shared__ u32 shared[];
    const Shift<typename Key<T>::type> locate{start, reach, shift, end, has_end, bins};
    count_samples<T, WHOLE, Counters>(samples, n, locate, Window{first, last, slots}, nullptr, shared);
}

template <typename T, typename Counters, bool WHOLE, bool SURE>
__global__ void __launch_bounds__(THREADS, 1)
histogram_regular(const T* samples, i64 n, u64* slots, u32 first, u32 last, u32 bins,
                  const typename Key<T>::type* thresholds, int count, typename Key<T>::type start,
                  typename LineOf<T>::type::Reach reach, typename LineOf<T>::type::Scale scale,
                  typename LineOf<T>::type::Offset offset, int fraction, u32 below, u32 doubtful) {
    extern __shared__ u32 shared[];
    const Regular<T, SURE> locate{{start, reach, scale, offset}, fraction, below, doubtful, {thresholds, count, bins}};
    count_samples<T, WHOLE, Counters>(samples, n, locate, Window{first, last, slots}, nullptr, shared);
}

// The table and, where `held`, the thresholds are copied to shared memory, behind the counters.
template <typename T, typename Counters, bool WHOLE, typename Map>
__global__ void __launch_bounds__(THREADS, 1)
histogram_search(const T* samples, i64 n, u64* slots, u32 first, u32 last, u32 bins,
                 const typename Key<T>::type* thresholds, int count, bool held, const u32* cells, int cell_count,
                 typename Map::type start, typename Line<typename Map::type>::Reach reach,
                 typename Line<typename Map::type>::Scale scale, typename Line<typename Map::type>::Offset offset) {
    extern __shared__ u32 shared[];
    using K = typename Key<T>::type;
    const Window window{first, last, slots};
    u32* const table = shared + Counters::size(window);
    K* const kept = reinterpret_cast<K*>(table + (cell_count + 1) / 2 * 2);
    for (int i = threadIdx.x; i < cell_count; i += THREADS) table[i] = cells[i];
    if (held)
        for (int i = threadIdx.x; i < count; i += THREADS) kept[i] = thresholds[i];
    const Search<K, Map> locate{{start, reach, scale, offset}, table, {held ? kept : thresholds, count, bins}};
    count_samples<T, WHOLE, Counters>(samples, n, locate, window, nullptr, shared);
}

template <typename T, typename Counters>
__global__ void __launch_bounds__(THREADS, 1)
histogram_bytes(const T* samples, i64 n, u64* slots, u32 first, u32 last, const u32* slot_of) {
    extern __shared__ u32 shared[];
    count_samples<T, true, Counters>(samples, n, Value{}, Window{first, last, slots}, slot_of, shared);
}
