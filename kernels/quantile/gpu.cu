// Counts of keys for gpu.py, which describes keys, cells and what each kernel counts.
//
//   quantile_top      all samples, by the upper bits of their keys
//   quantile_cells    samples of a few cells, or their keys
//   quantile_around   samples below, between and above some keys, and equal to each
//
// Samples are read as bits. A block counts in shared memory; if that does not hold all counters, they are divided into
// windows, one per block, and blocks of different windows read the same samples. If it holds more, lanes of a warp have
// copies of their own. A thread adds equal neighbours together: where all samples are equal, it seldom adds at all.

#include "common/stream.cuh"
#include "quantile/keys.cuh"

// The slot of a thread's last samples, and how many there were.
struct Neighbours {
    u32 slot, number;

    template <typename Add>
    __device__ void count(u32 next, Add add) {
        if (next != slot) {
            if (number) add(slot, number);
            slot = next, number = 0;
        }
        ++number;
    }
};

// `slots` counters in windows of `length`, `copies` of each in a block, which is a power of two. `slot_of` gives the slot of
// a key.
template <bool ONE, typename K, typename Slot>
__device__ void count_slots(const K* samples, i64 n, u64* sums, u32 slots, u32 length, u32 copies, Slot slot_of) {
    extern __shared__ u32 shared[];
    const u32 windows = ONE ? 1 : (slots + length - 1) / length;
    const u32 first = ONE ? 0 : blockIdx.x % windows * length, own = min(length, slots - first);
    const auto clear = [&] {
        for (u32 i = threadIdx.x; i < own * copies; i += THREADS) shared[i] = 0;
        __syncthreads();
    };
    const auto add = [&](u32 slot, u32 number) {
        const u32 place = slot - first;
        if (place < own) atomicAdd(shared + place * copies + threadIdx.x % copies, number);
    };
    Neighbours run{0, 0};
    const Share share{blockIdx.x / windows, gridDim.x / windows};
    scan_samples<LOADS, Next::LATER, ONE>(samples, n, share, clear, [&](K bits) { run.count(slot_of(bits), add); });
    if (run.number) add(run.slot, run.number);
    __syncthreads();
    for (u32 i = threadIdx.x; i < own; i += THREADS) {
        u32 sum = 0;
        for (u32 k = 0; k < copies; ++k) sum += shared[i * copies + (threadIdx.x + k) % copies];
        if (sum) atomicAdd(sums + first + i, u64(sum));
    }
}

template <typename T, bool ONE>
__global__ void __launch_bounds__(THREADS, 1)
quantile_top(const typename Key<T>::type* samples, i64 n, u64* sums, u32 slots, u32 length, u32 copies, int shift) {
    using K = typename Key<T>::type;
    count_slots<ONE>(samples, n, sums, slots, length, copies, [=](K bits) { return u32(Key<T>::of(bits) >> shift); });
}

// `keys`: `number` of them, ascending.
template <typename T, bool ONE>
__global__ void __launch_bounds__(THREADS, 1)
quantile_around(const typename Key<T>::type* samples, i64 n, u64* sums, u32 slots, u32 length, u32 copies,
                const typename Key<T>::type* keys, u32 number) {
    using K = typename Key<T>::type;
    count_slots<ONE>(samples, n, sums, slots, length, copies, [=](K bits) {
        const K key = Key<T>::of(bits);
        u32 low = 0, high = number;  // keys before `low` are up to this one, those from `high` on are above
        while (low < high) {
            const u32 middle = (low + high) / 2;
            if (keys[middle] <= key) low = middle + 1;
            else high = middle;
        }
        if (Key<T>::NAN_LAST && key == K(~K(0))) return 2 * number + 1;
        return low && keys[low - 1] == key ? 2 * low - 1 : 2 * low;
    });
}

// `starts`, `step`, `firsts`, `sizes`, `shifts`, `bases`: as cells.py describes a lookup. `first`, `reach`: no key that is
// not within `reach` of `first` is in a cell. `most`: so many keys are kept behind their number, which is always right;
// none if slots are counted.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
quantile_cells(const typename Key<T>::type* samples, i64 n, u64* sums, const u32* starts, u32 step,
               const typename Key<T>::type* firsts, const typename Key<T>::type* sizes,
               const typename Key<T>::type* shifts, const u32* bases, typename Key<T>::type first,
               typename Key<T>::type reach, i64 most) {
    using K = typename Key<T>::type;
    Neighbours run{0, 0};
    const auto add = [&](u32 slot, u32 number) { atomicAdd(sums + slot, u64(number)); };
    const auto count = [&](K bits) {
        const K key = Key<T>::of(bits);
        if (K(key - first) > reach) return;
        u32 cell = starts[key >> (8 * sizeof(K) - 16)];
        for (u32 half = step; half; half /= 2) cell += firsts[cell + half] <= key ? half : 0;
        const K offset = K(key - firsts[cell]);
        if (offset >= sizes[cell]) return;
        if (most) {
            const u64 place = atomicAdd(sums, u64(1));
            if (place < u64(most)) sums[1 + place] = key;
        } else {
            run.count(bases[cell] + u32(offset >> shifts[cell]), add);
        }
    };
    for_each_sample(samples, n, count);
    if (run.number) add(run.slot, run.number);
}
