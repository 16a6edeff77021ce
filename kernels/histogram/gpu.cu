// Histogram kernels.
//
// All of them count into slots (0 underflow, 1..bins, bins + 1 overflow, bins + 2 NaN), with the same result:
//   histogram_shift    integers, bins 2^k values wide: subtract, compare, shift
//   histogram_regular  evenly spaced edges: a linear map gives the bin; near an edge, its threshold decides
//   histogram_search   any edges: lookup cells along a linear map give the slot, or the threshold to compare with
//   histogram_narrow   16-bit integers: a linear map gives the counter; the host has checked all 65536 values
//   histogram_bytes    8-bit samples: count all 256 values, bin them at the end
//
// Each combines three parts: where a sample falls (locate.cuh), how a block counts (counters.cuh), how samples are read
// (common/stream.cuh). Thresholds are exact in the key type (binning.py) and decide wherever a position does not
// determine the bin, so counts are exact for any edges.
// If shared memory does not hold all counters, they are divided into windows, one per block; blocks of different
// windows read the same samples at the same time, mostly from the L2 cache.

#include "histogram/counters.cuh"
#include "histogram/locate.cuh"

// Where counts go: counter i of `all` is that of slot i + FIRST_SLOT. The slots after them (overflow, NaN) and before
// them (underflow) have separate counters. A window has at most `length` counters.
struct Windows {
    u64* slots;
    u32 all, length;
};

constexpr u32 APART = 4;  // counters of a block outside its window: not counted here, overflow, NaN, underflow

// WINDOWS: 1, 2, or 0 for any number. Two windows take alternate counters, so that blocks of both have the same load
// whatever the distribution; more than two are contiguous.
template <typename T, int COPIES, int WINDOWS, typename Locate>
__device__ void count_samples(const T* samples, i64 n, Locate locate, Windows windows, const u32* slot_of, u32* shared) {
    constexpr u32 FIRST = Locate::FIRST_SLOT;
    const u32 number = WINDOWS ? WINDOWS : (windows.all + windows.length - 1) / windows.length;
    const u32 mine = WINDOWS == 1 ? 0 : blockIdx.x % number;
    const u32 first = WINDOWS ? 0 : mine * windows.length;
    const u32 length = WINDOWS == 2 ? (windows.all + 1 - mine) / 2 : min(windows.length, windows.all - first);
    Counters<COPIES, WINDOWS == 1> counters(shared);
    const auto prepare = [&] {
        for (u32 i = threadIdx.x; i < counters.size(length + APART - 1); i += THREADS) shared[i] = 0;
        __syncthreads();
    };
    // Index of a counter in this window; far above its length for counters of other windows.
    const auto place = [&](u32 counter) {
        if (WINDOWS == 2) return __funnelshift_r(counter, counter, 1) - (mine << 31);
        return counter - first;
    };
    const auto quick = [&](T x) {
        u32 counter;
        const bool certain = locate.quick(Key<T>::of(x), counter);
        // Samples of other windows go to a dummy counter after this one, which is cheaper than a branch.
        counter = Locate::MISSES && !certain ? length : place(counter);
        counters.add(WINDOWS != 1 || Locate::BEYOND ? min(counter, length) : counter);
        return certain;
    };
    const auto slow = [&](T x) {
        u32 counter;
        if (locate.quick(Key<T>::of(x), counter)) return;
        const u32 slot = locate.slow(Key<T>::of(x));
        counter = slot - FIRST;
        if (counter < windows.all) {
            if (place(counter) < length) counters.add(place(counter));
        } else if (mine == 0) {
            counters.add(length + (slot < FIRST ? 3 : counter - windows.all + 1));
        }
    };
    const Share share{blockIdx.x / number, gridDim.x / number};
    constexpr int TOGETHER = Locate::SELDOM_SLOW ? LOADS : 1;
    scan_samples<LOADS, Locate::NEXT, WINDOWS == 1, TOGETHER>(samples, n, share, prepare, quick, slow);
    __syncthreads();
    for (u32 i = threadIdx.x; i < length + APART; i += THREADS) {
        if (i == length) continue;
        const u64 sum = counters.total(i);
        const u32 counter = i < length ? (WINDOWS == 2 ? 2 * i + mine : first + i) : windows.all + i - length - 1;
        const u32 slot = i == length + 3 ? 0 : counter + FIRST;
        if (sum) atomicAdd(windows.slots + (slot_of ? slot_of[i] : slot), sum);
    }
}

template <typename T, int COPIES, int WINDOWS>
__global__ void __launch_bounds__(THREADS, 1)
histogram_shift(const T* samples, i64 n, u64* slots, u32 all, u32 window, u32 bins, typename Key<T>::type start,
                typename Unsigned<typename Key<T>::type>::type reach, int shift, typename Key<T>::type end,
                bool has_end) {
    extern __shared__ u32 shared[];
    const Shift<typename Key<T>::type> locate{start, reach, shift, end, has_end, bins};
    count_samples<T, COPIES, WINDOWS>(samples, n, locate, Windows{slots, all, window}, nullptr, shared);
}

template <typename T, int COPIES, int WINDOWS, bool SURE>
__global__ void __launch_bounds__(THREADS, 1)
histogram_regular(const T* samples, i64 n, u64* slots, u32 all, u32 window, u32 bins,
                  const typename Key<T>::type* thresholds, int count, typename Key<T>::type lowest,
                  typename Key<T>::type highest, typename Key<T>::type start,
                  typename LinearMap<typename Key<T>::type>::Reach reach,
                  typename LinearMap<typename Key<T>::type>::Scale scale,
                  typename LinearMap<typename Key<T>::type>::Offset offset, int fraction, u32 below, u32 uncertain) {
    extern __shared__ u32 shared[];
    using K = typename Key<T>::type;
    const Regular<K, SURE> locate{{{start, reach, scale, offset}}, fraction, below, uncertain, {thresholds, count, lowest, highest, bins}};
    count_samples<T, COPIES, WINDOWS>(samples, n, locate, Windows{slots, all, window}, nullptr, shared);
}

// The table and, if HELD, the thresholds are copied to shared memory, after the counters.
template <typename T, int COPIES, int WINDOWS, typename Map, bool HELD>
__global__ void __launch_bounds__(THREADS, 1)
histogram_search(const T* samples, i64 n, u64* slots, u32 all, u32 window, u32 bins,
                 const typename Key<T>::type* thresholds, int count, typename Key<T>::type lowest,
                 typename Key<T>::type highest, const u32* cells, int cell_count, typename Map::type start, typename LinearMap<typename Map::type>::Reach reach,
                 typename LinearMap<typename Map::type>::Scale scale, typename LinearMap<typename Map::type>::Offset offset) {
    extern __shared__ u32 shared[];
    using K = typename Key<T>::type;
    u32* const table = shared + Counters<COPIES, WINDOWS == 1>::size(window + APART - 1);
    K* const kept = reinterpret_cast<K*>(table + (cell_count + 1) / 2 * 2);
    for (int i = threadIdx.x; i < cell_count; i += THREADS) table[i] = cells[i];
    if (HELD)
        for (int i = threadIdx.x; i < count; i += THREADS) kept[i] = thresholds[i];
    const Search<K, Map, HELD> locate{{{start, reach, scale, offset}}, u32(cell_count - 1), table,
                                      {HELD ? kept : thresholds, count, lowest, highest, bins}};
    count_samples<T, COPIES, WINDOWS>(samples, n, locate, Windows{slots, all, window}, nullptr, shared);
}

template <typename T, int COPIES>
__global__ void __launch_bounds__(THREADS, 1)
histogram_narrow(const T* samples, i64 n, u64* slots, u32 all, u32 window, int low, int last, int beyond, u32 scale,
                 u32 offset, int fraction, const u32* slot_of) {
    extern __shared__ u32 shared[];
    const Narrow locate{low, last, beyond, scale, offset, fraction};
    count_samples<T, COPIES, 1>(samples, n, locate, Windows{slots, all, window}, slot_of, shared);
}

template <typename T, int COPIES>
__global__ void __launch_bounds__(THREADS, 1)
histogram_bytes(const T* samples, i64 n, u64* slots, u32 all, u32 window, const u32* slot_of) {
    extern __shared__ u32 shared[];
    count_samples<T, COPIES, 1>(samples, n, Value{}, Windows{slots, all, window}, slot_of, shared);
}
