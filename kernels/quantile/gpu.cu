// Counts of keys for gpu.py, which describes keys, cells and what each kernel counts.
//
//   quantile_top      all samples, by the upper bits of their keys
//   quantile_cell     samples of one cell, whose keys have one sign
//   quantile_cells    samples of several cells
//   quantile_keys     the keys of samples in a few cells, which are few
//   quantile_around   samples below, between and above some keys, and equal to each
//   quantile_few      the same of a few values, compared as numbers
//
// All but quantile_keys and quantile_few count as histograms do (common/windows.cuh): every sample takes the same way, those
// of no cell to a counter after the others, so that no data are slow.

#include "common/count_if.cuh"
#include "common/windows.cuh"
#include "quantile/keys.cuh"

// What the counters of a kernel have in common: slot by slot, in the order of the result.
struct InOrder {
    static constexpr Next NEXT = AHEAD;
    __device__ u32 slot(u32 counter) const { return counter; }
};

template <typename T>
struct Top : InOrder {
    static constexpr int SHIFT = sizeof(T) > 2 ? 8 * sizeof(T) - 16 : 0;

    __device__ u32 operator()(typename Key<T>::type bits) const { return u32(Key<T>::upper(bits) >> SHIFT); }
    __device__ u32 slot(u32 counter) const { return Key<T>::slot(counter, SHIFT); }
};

template <typename T, int COPIES, int WINDOWS>
__global__ void __launch_bounds__(THREADS, 1)
quantile_top(const typename Key<T>::type* samples, i64 n, u64* sums, u32 all, u32 window) {
    extern __shared__ u32 shared[];
    count_samples<typename Key<T>::type, COPIES, WINDOWS>(samples, n, Top<T>{}, Windows{sums, all, window}, shared);
}

// `size`: plain bits from `first` on. Where they descend with the keys, `last` is the slot of the first ones, otherwise 0.
// UNIT: each has a slot of its own.
template <typename T, bool UNIT>
struct OneCell : InOrder {
    typename Key<T>::type first, size;
    int shift;
    u32 last, outside;

    __device__ u32 operator()(typename Key<T>::type bits) const {
        const auto offset = typename Key<T>::type(Key<T>::plain(bits) - first);
        if (UNIT) return u32(min(offset, size));  // one instruction with the difference
        return offset < size ? u32(offset >> shift) : outside;
    }
    __device__ u32 slot(u32 counter) const {
        if (counter >= (UNIT ? u32(size) : outside)) return outside;
        return last ? last - counter : counter;
    }
};

template <typename T, int COPIES, int WINDOWS, bool UNIT>
__global__ void __launch_bounds__(THREADS, 1)
quantile_cell(const typename Key<T>::type* samples, i64 n, u64* sums, u32 all, u32 window, typename Key<T>::type first,
              typename Key<T>::type size, int shift, u32 last) {
    extern __shared__ u32 shared[];
    const OneCell<T, UNIT> locate{{}, first, size, shift, last, all - 1};
    count_samples<typename Key<T>::type, COPIES, WINDOWS>(samples, n, locate, Windows{sums, all, window}, shared);
}

// Cells as cells.py describes their lookup: `starts`, `step`, `firsts`, `sizes`, `shifts`. ALL: the search is among all
// cells.
template <typename K>
struct Lookup {
    const u32* starts;
    u32 step;
    const K *firsts, *sizes, *shifts;

    // The last cell that begins with the key or before it, or the empty one before all cells.
    template <bool ALL>
    __device__ u32 cell(K key) const {
        u32 cell = ALL ? 0 : starts[key >> (8 * sizeof(K) - 16)];
        for (u32 half = step; half; half /= 2) cell += firsts[cell + half] <= key ? half : 0;
        return cell;
    }
};

// `number` of cells; each has 2^slot_bits slots.
template <typename T, bool HELD>
struct SeveralCells : InOrder {
    Lookup<typename Key<T>::type> lookup;
    u32 number;
    int slot_bits;
    u32 outside;

    __device__ u32 operator()(typename Key<T>::type bits) const {
        const auto key = Key<T>::of(bits);
        const u32 cell = min(lookup.template cell<HELD>(key), number);  // the last one is repeated
        const auto offset = typename Key<T>::type(key - lookup.firsts[cell]);
        const u32 slot = ((cell - 1) << slot_bits) + u32(offset >> lookup.shifts[cell]);
        return offset < lookup.sizes[cell] ? slot : outside;
    }
};

// HELD: the lookup, whose arrays have `length` items, is copied to shared memory, before the counters.
template <typename T, int COPIES, int WINDOWS, bool HELD>
__global__ void __launch_bounds__(THREADS, 1)
quantile_cells(const typename Key<T>::type* samples, i64 n, u64* sums, u32 all, u32 window, const u32* starts, u32 step,
               u32 length, const typename Key<T>::type* firsts, const typename Key<T>::type* sizes,
               const typename Key<T>::type* shifts, u32 number, int slot_bits) {
    using K = typename Key<T>::type;
    extern __shared__ u32 shared[];
    K* const held = reinterpret_cast<K*>(shared);
    u32* const counters = reinterpret_cast<u32*>(held + (HELD ? 3 * length : 0));
    if (HELD) {  // count_samples has a barrier before the first sample
        for (u32 i = threadIdx.x; i < length; i += THREADS) {
            held[i] = firsts[i];
            held[length + i] = sizes[i];
            held[2 * length + i] = shifts[i];
        }
    }
    const Lookup<K> lookup{starts, step, HELD ? held : firsts, HELD ? held + length : sizes,
                           HELD ? held + 2 * length : shifts};
    const SeveralCells<T, HELD> locate{{}, lookup, number, slot_bits, all - 1};
    count_samples<K, COPIES, WINDOWS>(samples, n, locate, Windows{sums, all, window}, counters);
}

// `few` cells, without `starts`. `reach`: no key that is not within it of `first` is in a cell; PLAIN: no plain bits. `most`: so
// many keys are kept behind their number, which is always right; their complements, so that zeros stand for the greatest.
template <typename T, bool PLAIN>
__global__ void __launch_bounds__(THREADS, 1)
quantile_keys(const typename Key<T>::type* samples, i64 n, u64* sums, u32 few, const u32* starts, u32 step,
              const typename Key<T>::type* firsts, const typename Key<T>::type* sizes, typename Key<T>::type first,
              typename Key<T>::type reach, u64 most) {
    using K = typename Key<T>::type;
    constexpr int PER_PACK = 16 / sizeof(K);
    const Lookup<K> lookup{starts, step, firsts, sizes, nullptr};
    const auto near = [&](K bits) { return K((PLAIN ? Key<T>::plain(bits) : Key<T>::of(bits)) - first) <= reach; };
    const auto keep = [&](K bits) {
        const K key = Key<T>::of(bits);
        const u32 cell = few ? lookup.template cell<true>(key) : lookup.template cell<false>(key);
        if (K(key - firsts[cell]) >= sizes[cell]) return;
        const u64 place = atomicAdd(sums, u64(1));
        if (place < most) sums[1 + place] = ~u64(key);
    };
    union Pack {
        uint4 words;
        K item[PER_PACK];
    };
    const i64 misaligned = i64(reinterpret_cast<u64>(samples) % 16 / sizeof(K));
    const i64 head = min(n, misaligned ? PER_PACK - misaligned : i64(0)), packs = (n - head) / PER_PACK;
    // One branch for a pack, which is seldom taken.
    for_each_sample(reinterpret_cast<const uint4*>(samples + head), packs, [&](uint4 words) {
        Pack pack{words};
        bool any = false;
#pragma unroll
        for (int i = 0; i < PER_PACK; ++i) any |= near(pack.item[i]);
        if (!any) return;
#pragma unroll 1  // all code of a pass stays in the cache for instructions
        for (int i = 0; i < PER_PACK; ++i) {
            const K bits = pack.item[0];
            if (near(bits)) keep(bits);
#pragma unroll
            for (int j = 1; j < PER_PACK; ++j) pack.item[j - 1] = pack.item[j];
        }
    });
    const i64 thread = i64(blockIdx.x) * THREADS + threadIdx.x, tail = head + packs * PER_PACK;
    if (thread < head && near(samples[thread])) keep(samples[thread]);
    if (thread < n - tail && near(samples[tail + thread])) keep(samples[tail + thread]);
}

// The number of `ends` that a key has reached: of 2 * half - 1 in ascending order for the first `half`, of which the last
// ones may be repeated; at most `most`.
template <typename T>
struct Around : InOrder {
    const typename Key<T>::type* ends;
    u32 half, most;

    __device__ u32 operator()(typename Key<T>::type bits) const {
        const auto key = Key<T>::of(bits);
        u32 reached = 0;
        for (u32 step = half; step; step /= 2) reached += ends[reached + step - 1] <= key ? step : 0;
        return min(reached, most);
    }
};

// HELD: the ends are copied to shared memory, before the counters.
template <typename T, int COPIES, int WINDOWS, bool HELD>
__global__ void __launch_bounds__(THREADS, 1)
quantile_around(const typename Key<T>::type* samples, i64 n, u64* sums, u32 all, u32 window,
                const typename Key<T>::type* ends, u32 half, u32 most) {
    using K = typename Key<T>::type;
    extern __shared__ u32 shared[];
    K* const held = reinterpret_cast<K*>(shared);
    if (HELD) {  // count_samples has a barrier before the first sample
        for (u32 i = threadIdx.x; i < 2 * half; i += THREADS) held[i] = ends[i];
    }
    const Around<T> locate{{}, HELD ? held : ends, half, most};
    u32* const counters = reinterpret_cast<u32*>(held + (HELD ? 2 * half : 0));
    count_samples<K, COPIES, WINDOWS>(samples, n, locate, Windows{sums, all, window}, counters);
}

// Counted in registers: samples less than each of `number` values, and not greater; numbers; all. The last value is repeated.
template <typename T, int FEW>
__global__ void __launch_bounds__(THREADS, 1)
quantile_few(const T* samples, i64 n, u64* sums, u32 number, T a, T b, T c, T d, T e, T f, T g, T h, T i, T j) {
    constexpr int COUNTERS = 2 * FEW + 2;
    __shared__ u32 of_block[COUNTERS];
    const T values[] = {a, b, c, d, e, f, g, h, i, j};
    static_assert(FEW <= sizeof values / sizeof(T), "as many as there are arguments");
    u32 counts[COUNTERS] = {};
    constexpr Next NEXT = FEW > 6 ? Next::LATER : AHEAD;  // counters need the registers of a second tile
    const u32 one = 1 + (gridDim.x >> 31);  // hides the constant from the compiler
    const auto prepare = [&] {
        if (threadIdx.x < COUNTERS) of_block[threadIdx.x] = 0;
        __syncthreads();
    };
    const auto count = [&](T x) {
#pragma unroll
        for (int k = 0; k < FEW; ++k) {
            add_if(counts[2 * k], x < values[k], one);
            add_if(counts[2 * k + 1], x <= values[k], one);
        }
        add_if(counts[2 * FEW], x == x, one);
        ++counts[2 * FEW + 1];
    };
    scan_samples<LOADS, NEXT, true>(samples, n, Share{blockIdx.x, gridDim.x}, prepare, count);
#pragma unroll
    for (int k = 0; k < COUNTERS; ++k) {
#pragma unroll
        for (int apart = 16; apart; apart /= 2) counts[k] += __shfl_xor_sync(0xffffffffu, counts[k], apart);
        if (threadIdx.x % 32 == 0) atomicAdd(of_block + k, counts[k]);
    }
    __syncthreads();
    if (threadIdx.x > 2 * number + 1) return;
    // The counts are sums up to a place; those of the repeated values are passed over.
    const auto up_to = [&](u32 place) { return of_block[place < 2 * number ? place : place + 2 * (FEW - number)]; };
    const u32 own = up_to(threadIdx.x) - (threadIdx.x ? up_to(threadIdx.x - 1) : 0);
    if (own) atomicAdd(sums + threadIdx.x, u64(own));
}
