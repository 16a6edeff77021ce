// What reduces share over all dtypes: how samples are visited, ordered, and compared across a block.
#pragma once

#include "exact_sum.cuh"
#include "locate.cuh"

// As in reduce.py: what is asked for, and where it is in a partial.
constexpr int SUM = 1, SQUARES = 2, EXTREMES = 4;
constexpr int SUM_WORDS = 34, SQUARE_WORDS = 67, SUM_AT = 11, SQUARES_AT = SUM_AT + SUM_WORDS;
constexpr i64 NOWHERE = 0x7fffffffffffffff;
static_assert(SUM_WORDS * 64 <= SUM_DIGITS * DIGIT_BITS && SQUARE_WORDS * 64 <= SQUARE_DIGITS * DIGIT_BITS,
              "digits cover the words");

// Of a block. With fewer the cells of reduce_wide.cuh fit where a multiprocessor has 64 KiB of shared memory.
template <typename T> constexpr int REDUCE_THREADS = 256;
template <> constexpr int REDUCE_THREADS<float> = 128;
template <> constexpr int REDUCE_THREADS<double> = 128;
constexpr int REDUCE_LOADS = 4;

template <bool CONDITION, typename A, typename B> struct Choose { using type = A; };
template <typename A, typename B> struct Choose<false, A, B> { using type = B; };

// The samples that a thread loads at once, in the order of their indices.
template <typename T> struct Tile {
    static constexpr int PER_LOAD = 16 / sizeof(T), SIZE = REDUCE_LOADS * PER_LOAD, WORDS = 4 * REDUCE_LOADS;
    union {
        uint4 pack[REDUCE_LOADS];
        u32 word[WORDS];
        T item[SIZE];
    };

    static __device__ i64 offset(int i) { return i64(i / PER_LOAD) * (REDUCE_THREADS<T> * PER_LOAD) + i % PER_LOAD; }

    __device__ void load(const T* first) {
#pragma unroll
        for (int k = 0; k < REDUCE_LOADS; ++k)
            pack[k] = __ldcs(reinterpret_cast<const uint4*>(first) + k * REDUCE_THREADS<T>);
    }
};

// Whether the next tile is on its way while one is looked at. Sums of float64 need the registers for themselves.
template <typename T> constexpr bool REDUCE_AHEAD = true;
template <> constexpr bool REDUCE_AHEAD<double> = false;

// Samples in ascending order for every thread.
template <typename T, typename Visitor> __device__ void for_each_tile(const T* samples, i64 n, Visitor& visitor) {
    constexpr int PER_LOAD = Tile<T>::PER_LOAD, PACKS = REDUCE_THREADS<T> * REDUCE_LOADS;
    const i64 misaligned = i64(reinterpret_cast<u64>(samples) % 16 / sizeof(T));
    const i64 head = min(n, misaligned ? PER_LOAD - misaligned : i64(0));
    const i64 tiles = (n - head) / (PACKS * PER_LOAD);
    const i64 thread = i64(blockIdx.x) * REDUCE_THREADS<T> + threadIdx.x;
    if (thread < head) visitor.one(samples + thread);
    const T* at = samples + head + (i64(blockIdx.x) * PACKS + threadIdx.x) * PER_LOAD;
    const i64 stride = i64(gridDim.x) * PACKS * PER_LOAD;
    constexpr bool AHEAD = REDUCE_AHEAD<T>;
    Tile<T> loaded;
    if (AHEAD && blockIdx.x < tiles) loaded.load(at);
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x, at += stride) {
        Tile<T> next;  // of its own: the compiler would wait for one that may be loaded or not
        if constexpr (!AHEAD) loaded.load(at);
        else if (tile + gridDim.x < tiles) next.load(at + stride);
        visitor.tile(loaded, at);
        if constexpr (AHEAD) loaded = next;
    }
#pragma unroll 1
    for (i64 i = head + tiles * PACKS * PER_LOAD + thread; i < n; i += i64(gridDim.x) * REDUCE_THREADS<T>)
        visitor.one(samples + i);
}

// The type that samples are compared in, where both zeros are the same.
template <typename T> struct Wide { using type = T; };
template <> struct Wide<signed char> { using type = int; };
template <> struct Wide<u8> { using type = int; };
template <> struct Wide<short> { using type = int; };
template <> struct Wide<u16> { using type = int; };
template <> struct Wide<float16> { using type = int; };
template <typename T> __device__ typename Wide<T>::type wide(T x) { return x; }
inline __device__ int wide(float16 x) { return x.bits & 0x8000 ? -(x.bits & 0x7fff) : x.bits; }

// A sample as a number.
template <typename T> __device__ T number(T x) { return x; }
inline __device__ float number(float16 x) { return Key<float16>::of(x); }

// Of two float16 numbers in a word the lower or the upper one, which takes the hardware one instruction.
inline __device__ double widened(u32 word, bool upper) {
    const u16 bits = u16(upper ? word >> 16 : word);
#if defined(__CUDA_ARCH__)
    double value;
    asm("cvt.f64.f16 %0, %1;" : "=d"(value) : "h"(bits));
    return value;
#else
    return Key<float16>::of({bits});
#endif
}

template <typename T> __device__ bool is_nan(T) { return false; }
inline __device__ bool is_nan(float16 x) { return (x.bits & 0x7fff) > 0x7c00; }
inline __device__ bool is_nan(float x) { return x != x; }
inline __device__ bool is_nan(double x) { return x != x; }

template <typename T> __device__ bool negative_zero(T) { return false; }
inline __device__ bool negative_zero(float16 x) { return x.bits == 0x8000; }
inline __device__ bool negative_zero(float x) { return __float_as_uint(x) == 0x80000000; }
inline __device__ bool negative_zero(double x) { return u64(__double_as_longlong(x)) == u64(1) << 63; }

// Integers in the order of the samples, those of floats by the bits of the float64 number; both zeros have the same.
inline __device__ i64 to_key(int x) { return x; }
inline __device__ i64 to_key(u32 x) { return x; }
inline __device__ i64 to_key(i64 x) { return x; }
inline __device__ i64 to_key(u64 x) { return i64(x ^ u64(1) << 63); }
inline __device__ i64 to_key(double x) {
    const i64 bits = __double_as_longlong(x + 0.0);
    return bits < 0 ? bits ^ NOWHERE : bits;
}
inline __device__ i64 to_key(float x) { return to_key(double(x)); }

// Where something was found, by the rank of its key: the lowest comes first.
struct Found {
    i64 key, at;
};

inline __device__ Found first(Found a, Found b) {
    return b.key < a.key || (b.key == a.key && b.at < a.at) ? b : a;
}

struct Least {
    template <typename V> static __device__ bool before(V a, V b) { return a < b; }
    static __device__ i64 rank(i64 key) { return key; }
};
struct Greatest {
    template <typename V> static __device__ bool before(V a, V b) { return a > b; }
    static __device__ i64 rank(i64 key) { return ~key; }
};

// What comes first in the block; all threads, and at most 32 warps.
inline __device__ Found first_of_block(Found mine) {
    __shared__ Found of_warp[32];
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const Found other{__shfl_xor_sync(0xffffffff, mine.key, lanes), __shfl_xor_sync(0xffffffff, mine.at, lanes)};
        mine = first(mine, other);
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    for (int i = 0; i < blockDim.x / 32; ++i) mine = first(mine, of_warp[i]);
    __syncthreads();
    return mine;
}

inline __device__ void store_found(i64 nan, Found least, Found greatest, i64* partial) {
    partial[6] = nan;
    partial[7] = least.at;
    partial[8] = greatest.at;
    partial[9] = least.key;
    partial[10] = ~greatest.key;
}

// Infinities and NaN, and the sums of a block as digits.
template <int PARTS> struct Counters {
    static constexpr int SPECIAL = 3;
    u32 special[SPECIAL];  // NaN, +inf, -inf: a launch has less than 2^32 samples
    Digits<PARTS & SUM ? SUM_DIGITS : 1> sum;
    Digits<PARTS & SQUARES ? SQUARE_DIGITS : 1> squares;

    __device__ void clear() {
        if (threadIdx.x < SPECIAL) special[threadIdx.x] = 0;
        sum.clear();
        squares.clear();
    }

    // counts: SPECIAL of them, SUM_DIGITS, SQUARE_DIGITS.
    __device__ void store(i64* counts) const {
        if (threadIdx.x < SPECIAL && special[threadIdx.x])
            atomicAdd(reinterpret_cast<u64*>(counts) + threadIdx.x, u64(special[threadIdx.x]));
        if (PARTS & SUM) sum.store(counts + SPECIAL);
        if (PARTS & SQUARES) squares.store(counts + SPECIAL + SUM_DIGITS);
    }
};
