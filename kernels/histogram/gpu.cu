// Histogram kernels.
//
// All of them count into slots (0 underflow, 1..bins, bins + 1 overflow, bins + 2 NaN), with the same result:
//   histogram_shift    integers, bins 2^k values wide: clamp, subtract, shift
//   histogram_linear   32-bit integers: a fixed-point linear map; the host has checked it beside every threshold
//   histogram_steps    evenly spaced edges: a linear map guesses the slot, one comparison with a threshold decides
//   histogram_search   any edges: a lookup table of cells along a linear map gives the guess
//   histogram_narrow   16-bit integers: a linear map gives the counter; the host has checked all 65536 values
//   histogram_bytes    8-bit samples: count all 256 values, bin them at the end
//
// Samples below and above the edges and NaN take the same way as all others, so that no data are slow.
// Each kernel combines three parts: where a sample falls (locate.cuh, steps.cuh), how a block counts (common/windows.cuh,
// halves.cuh), how samples are read (common/stream.cuh). Thresholds are exact in the key type (binning.py) and decide wherever a
// position does not determine the slot, so counts are exact for any edges.

#include "histogram/halves.cuh"
#include "histogram/locate.cuh"
#include "histogram/steps.cuh"
#include "common/windows.cuh"

// WINDOWS: see count_samples; two are halves. `multiplier`: see Halves.
template <int COPIES, int WINDOWS, typename T, typename Locate>
__device__ void count_in_windows(const T* samples, i64 n, Locate locate, u64* slots, u32 all, u32 window, u32 multiplier,
                                 u32* shared) {
    if constexpr (WINDOWS == 2) count_halves(samples, n, locate, Halves{slots, all, window, multiplier}, shared);
    else count_samples<T, COPIES, WINDOWS>(samples, n, locate, Windows{slots, all, window}, shared);
}

template <typename T, int COPIES, int WINDOWS, bool UNIT>
__global__ void __launch_bounds__(THREADS, 1)
histogram_shift(const T* samples, i64 n, u64* slots, u32 all, u32 window, u32 bins, u32 skipped,
                typename Key<T>::type low, typename Key<T>::type last, typename Key<T>::type beyond,
                typename Key<T>::type base, int shift, u32 multiplier) {
    extern __shared__ u32 shared[];
    const Shift<typename Key<T>::type, UNIT> locate{{low, last, beyond, bins, skipped}, base, shift};
    count_in_windows<COPIES, WINDOWS>(samples, n, of_keys<T>(locate), slots, all, window, multiplier, shared);
}

template <typename T, int COPIES, int WINDOWS>
__global__ void __launch_bounds__(THREADS, 1)
histogram_linear(const T* samples, i64 n, u64* slots, u32 all, u32 window, u32 bins, u32 skipped,
                 typename Key<T>::type low, typename Key<T>::type last, typename Key<T>::type beyond, u32 scale,
                 u64 offset, int fraction, u32 multiplier) {
    extern __shared__ u32 shared[];
    const Linear<typename Key<T>::type> locate{{low, last, beyond, bins, skipped}, scale, offset, fraction};
    count_in_windows<COPIES, WINDOWS>(samples, n, of_keys<T>(locate), slots, all, window, multiplier, shared);
}

// `window`: slots of a block, at most. `least`, `most`: clamps of a guess. `values`: see Steps.
template <typename T, int COPIES, int HELD>
__global__ void __launch_bounds__(THREADS, 1)
histogram_steps(const T* samples, i64 n, u64* slots, u32 all, u32 window, int least, int most,
                const typename Key<T>::type* values, decltype(Guess<typename Key<T>::type>::start) start,
                typename Guess<typename Key<T>::type>::Real scale) {
    extern __shared__ u32 shared[];
    using K = typename Key<T>::type;
    const Guess<K> guess{start, scale};
    const Window own(all, window);
    Steps<K, COPIES, HELD> steps(shared, own.rows, own.first, least, most);
    const auto prepare = [&] { steps.prepare(values, most, ORIGIN); };
    const auto count = [&](T x) { steps.template add<true>(Key<T>::of(x), guess(Key<T>::of(x))); };
    scan_samples<LOADS, Next::IN_TURNS, true>(samples, n, own.share(), prepare, count);
    steps.finish(slots);
}

// Cells of a lookup table: `entries` behind the counters and steps. WINDOWED: more than one window.
template <typename T, int COPIES, int HELD, bool WINDOWED, typename Map, typename Entry>
__global__ void __launch_bounds__(THREADS, 1)
histogram_search(const T* samples, i64 n, u64* slots, u32 all, u32 window, int least, int most,
                 const typename Key<T>::type* values, const Entry* entries, int cells,
                 decltype(Guess<typename Map::type>::start) start, typename Guess<typename Map::type>::Real scale) {
    extern __shared__ u32 shared[];
    using K = typename Key<T>::type;
    const Window own(all, window);
    Steps<K, COPIES, HELD> steps(shared, own.rows, own.first, least, most);
    Entry* const held = reinterpret_cast<Entry*>(steps.behind());
    const Cells<K, Map, Entry, WINDOWED ? 1 : HELD> table{
        {start, scale}, held, cells, WINDOWED ? values : steps.steps + HELD + threadIdx.x % HELD};
    const auto prepare = [&] {
        for (int i = threadIdx.x; i < cells; i += THREADS) held[i] = entries[i];
        steps.prepare(values, most, 0);
    };
    const auto count = [&](T x) {
        const K key = Key<T>::of(x);
        steps.template add<WINDOWED>(key, table(key));
    };
    scan_samples<LOADS, AHEAD, !WINDOWED>(samples, n, own.share(), prepare, count);
    steps.finish(slots);
}

template <typename T, int COPIES>
__global__ void __launch_bounds__(THREADS, 1)
histogram_narrow(const T* samples, i64 n, u64* slots, u32 all, u32 window, int low, int last, int beyond, u32 scale,
                 u32 offset, int fraction, const u32* slot_of) {
    extern __shared__ u32 shared[];
    const Narrow locate{low, last, beyond, scale, offset, fraction, slot_of};
    count_samples<T, COPIES, 1>(samples, n, of_keys<T>(locate), Windows{slots, all, window}, shared);
}

template <typename T, int COPIES>
__global__ void __launch_bounds__(THREADS, 1)
histogram_bytes(const T* samples, i64 n, u64* slots, u32 all, u32 window, const u32* slot_of) {
    extern __shared__ u32 shared[];
    count_samples<T, COPIES, 1>(samples, n, of_keys<T>(Value{slot_of}), Windows{slots, all, window}, shared);
}
