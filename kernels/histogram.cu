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
// a wider counter would become a compare-and-swap loop. The wrapper keeps the samples of a block below 2^32. SHARED =
// false is for more slots than shared memory holds: u64 counters in global memory.
// Thresholds are exact in the type of the key (kernels/binning.py), so nothing here rounds, whatever the edges.

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

constexpr int THREADS = 1024;
constexpr int LOADS = 4;  // independent 16-byte loads in flight per thread: enough to cover the latency of memory

// Two blocks a multiprocessor where 2048 threads fit on one: it asks for at most 32 registers.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 750 || __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || \
    __CUDA_ARCH__ >= 1200
constexpr int BLOCKS_PER_SM = 1;
#else
constexpr int BLOCKS_PER_SM = 2;
#endif

struct float16 {
    u16 bits;
};

// The type that samples are compared in: their own, but 16-bit ones widen, exactly.
template <typename T>
struct Key {
    using type = T;
    static __device__ T of(T x) { return x; }
};
template <>
struct Key<short> {
    using type = int;
    static __device__ int of(short x) { return x; }
};
template <>
struct Key<u16> {
    using type = int;
    static __device__ int of(u16 x) { return x; }
};
template <>
struct Key<float16> {
    using type = float;
    static __device__ float of(float16 x) {
        const u32 magnitude = (x.bits & 0x7fffu) << 13;
        // Moving the exponent by a multiplication keeps subnormals exact; 2^112 is the difference of the biases.
        float value = __uint_as_float(magnitude) * 5.192296858534828e33f;
        if (magnitude >= 0x0f800000u) value = __uint_as_float(magnitude | 0x7f800000u);  // infinity and NaN
        return (x.bits & 0x8000u) ? -value : value;
    }
};

template <typename K>
struct Unsigned {
    using type = u32;
};
template <>
struct Unsigned<i64> {
    using type = u64;
};
template <>
struct Unsigned<u64> {
    using type = u64;
};

// The type that a guess is computed in: its error stays below one bin for up to 2^20 bins, corrections do the rest.
template <typename K>
struct Guess {
    using type = float;
};
template <>
struct Guess<double> {
    using type = double;
};
template <>
struct Guess<i64> {
    using type = double;
};
template <>
struct Guess<u64> {
    using type = double;
};

template <typename K>
__device__ typename Unsigned<K>::type distance(K x, K first) {
    using U = typename Unsigned<K>::type;
    return U(x) - U(first);
}
inline __device__ float distance(float x, float first) { return x - first; }
inline __device__ double distance(double x, double first) { return x - first; }

template <typename K>
struct Shift {
    K first;                            // smallest sample of the first bin
    typename Unsigned<K>::type reach;   // distance of the last sample that the shift places
    int shift;
    K end;                              // smallest sample of the overflow, where has_end
    bool has_end;
    u32 bins;

    __device__ u32 operator()(K x) const {
        const auto offset = distance(x, first);
        if (offset <= reach) return u32(offset >> shift) + 1;
        if (x < first) return 0;
        return has_end && x >= end ? bins + 1 : bins;  // the last edge is closed: what lies on it is in the last bin
    }
};

template <typename K>
struct Regular {
    const K* thresholds;
    int count;  // thresholds, at least one
    typename Guess<K>::type scale, offset;
    u32 bins;

    __device__ u32 operator()(K x) const {
        if (x != x) return bins + 2;
        if (!(x >= thresholds[0])) return 0;
        using G = typename Guess<K>::type;
        const G guess = G(distance(x, thresholds[0])) * scale + offset;
        int i = guess < G(count - 1) ? int(guess) : count - 1;
        while (i > 0 && x < thresholds[i]) --i;
        while (i + 1 < count && x >= thresholds[i + 1]) ++i;
        return u32(i) + 1;
    }
};

template <typename K>
struct Search {
    const K* thresholds;
    int count;
    u32 bins;

    __device__ u32 operator()(K x) const {
        if (x != x) return bins + 2;
        int low = 0, high = count;
        while (low < high) {
            const int middle = (low + high) >> 1;
            if (x >= thresholds[middle]) low = middle + 1;
            else high = middle;
        }
        return u32(low);
    }
};

struct Value {
    __device__ u32 operator()(u8 x) const { return x; }
};

// Every thread counts its share of the samples: whole tiles by 16-byte loads, what is before and after them one by one.
template <typename T, typename Count>
__device__ void for_each_sample(const T* samples, i64 n, Count count) {
    constexpr int PER_LOAD = 16 / sizeof(T);
    constexpr int TILE = THREADS * LOADS;  // 16-byte packs that a block counts at a time
    const i64 misaligned = i64(reinterpret_cast<u64>(samples) % 16 / sizeof(T));
    const i64 head = min(n, misaligned ? PER_LOAD - misaligned : i64(0));
    const i64 tiles = (n - head) / (TILE * PER_LOAD);

    const auto* packs = reinterpret_cast<const uint4*>(samples + head) + threadIdx.x;
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        union {
            uint4 pack[LOADS];
            T item[LOADS * PER_LOAD];
        } loaded;
#pragma unroll
        for (int k = 0; k < LOADS; ++k) loaded.pack[k] = __ldcs(packs + tile * TILE + k * THREADS);
#pragma unroll
        for (int j = 0; j < LOADS * PER_LOAD; ++j) count(loaded.item[j]);
    }

    const i64 thread = i64(blockIdx.x) * THREADS + threadIdx.x;
    if (thread < head) count(samples[thread]);
    for (i64 i = head + tiles * TILE * PER_LOAD + thread; i < n; i += i64(gridDim.x) * THREADS) count(samples[i]);
}

// COPIES > 1 spreads the counters of one value over lanes: for narrow samples the increments bound the kernel, and lanes
// that increment the same bank wait for each other.
template <typename T, int COPIES, bool SHARED, typename Locate>
__device__ void count_samples(const T* samples, i64 n, Locate locate, u32 counters, const u32* slot_of, u64* slots) {
    static_assert((COPIES & (COPIES - 1)) == 0 && COPIES <= 32, "a copy is chosen by the low bits of the lane");
    if constexpr (!SHARED) {
        for_each_sample(samples, n, [&](T x) { atomicAdd(slots + locate(Key<T>::of(x)), u64(1)); });
    } else {
        extern __shared__ u32 counted[];
        for (u32 i = threadIdx.x; i < counters * COPIES; i += THREADS) counted[i] = 0;
        __syncthreads();
        const u32 copy = threadIdx.x % COPIES;
        for_each_sample(samples, n, [&](T x) { atomicAdd(counted + locate(Key<T>::of(x)) * COPIES + copy, 1u); });
        __syncthreads();
        for (u32 i = threadIdx.x; i < counters; i += THREADS) {
            u64 sum = 0;
            for (int k = 0; k < COPIES; ++k) sum += counted[i * COPIES + (threadIdx.x + k) % COPIES];
            if (sum) atomicAdd(slots + (slot_of ? slot_of[i] : i), sum);
        }
    }
}

template <typename T, int COPIES, bool SHARED>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
histogram_shift(const T* samples, i64 n, u32 bins, u64* slots, typename Key<T>::type first,
                typename Unsigned<typename Key<T>::type>::type reach, int shift, typename Key<T>::type end,
                bool has_end) {
    const Shift<typename Key<T>::type> locate{first, reach, shift, end, has_end, bins};
    count_samples<T, COPIES, SHARED>(samples, n, locate, bins + 3, nullptr, slots);
}

template <typename T, int COPIES, bool SHARED>
__global__ void __launch_bounds__(THREADS, 1)
histogram_regular(const T* samples, i64 n, u32 bins, u64* slots, const typename Key<T>::type* thresholds, int count,
                  typename Guess<typename Key<T>::type>::type scale,
                  typename Guess<typename Key<T>::type>::type offset) {
    const Regular<typename Key<T>::type> locate{thresholds, count, scale, offset, bins};
    count_samples<T, COPIES, SHARED>(samples, n, locate, bins + 3, nullptr, slots);
}

template <typename T, int COPIES, bool SHARED>
__global__ void __launch_bounds__(THREADS, 1)
histogram_search(const T* samples, i64 n, u32 bins, u64* slots, const typename Key<T>::type* thresholds, int count) {
    const Search<typename Key<T>::type> locate{thresholds, count, bins};
    count_samples<T, COPIES, SHARED>(samples, n, locate, bins + 3, nullptr, slots);
}

template <int COPIES>
__global__ void __launch_bounds__(THREADS, 1)
histogram_bytes(const u8* samples, i64 n, const u32* slot_of, u64* slots) {
    count_samples<u8, COPIES, true>(samples, n, Value{}, 256, slot_of, slots);
}
