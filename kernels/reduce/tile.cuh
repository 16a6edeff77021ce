// Common to all dtypes: the order in which samples are visited, their keys, reductions over a warp and a block.
#pragma once

#include "reduce/exact_sum.cuh"
#include "common/types.cuh"

// As in partial.py: parts, and their places in a partial.
constexpr int SUM = 1, SQUARES = 2, EXTREMES = 4;
constexpr int SUM_WORDS = 34, SQUARE_WORDS = 67, SUM_AT = 11, SQUARES_AT = SUM_AT + SUM_WORDS;
constexpr i64 NOWHERE = 0x7fffffffffffffff;
constexpr u32 NONE = 0xffffffff, ALL_LANES = 0xffffffff;
static_assert(SUM_WORDS * 64 <= SUM_DIGITS * DIGIT_BITS && SQUARE_WORDS * 64 <= SQUARE_DIGITS * DIGIT_BITS,
              "digits cover the words");

constexpr int REDUCE_THREADS = 256;  // of a block
template <typename T> constexpr int REDUCE_LOADS = 4;

template <bool CONDITION, typename A, typename B> struct Choose { using type = A; };
template <typename A, typename B> struct Choose<false, A, B> { using type = B; };

// The samples that a thread loads at once, in index order.
template <typename T> struct Tile {
    static constexpr int PER_LOAD = 16 / sizeof(T), LOADS = REDUCE_LOADS<T>;
    static constexpr int SIZE = LOADS * PER_LOAD, WORDS = 4 * LOADS;
    union {
        uint4 pack[LOADS];
        u32 word[WORDS];
        T item[SIZE];
    };

    static __device__ i64 offset(int i) { return i64(i / PER_LOAD) * (REDUCE_THREADS * PER_LOAD) + i % PER_LOAD; }

    __device__ void load(const T* first) {
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            pack[k] = __ldcs(reinterpret_cast<const uint4*>(first) + k * REDUCE_THREADS);
    }

    // If `there`. Predicated in assembler: the compiler would wait at once for a conditional load.
    __device__ void load_if(bool there, const T* first) {
#if ON_GPU
        const auto* const packs = reinterpret_cast<const uint4*>(first);
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            asm volatile("{ .reg .pred there; setp.ne.s32 there, %4, 0; @there ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%5]; }"
                         : "=r"(pack[k].x), "=r"(pack[k].y), "=r"(pack[k].z), "=r"(pack[k].w)
                         : "r"(int(there)), "l"(packs + k * REDUCE_THREADS));
#else
        if (there) load(first);
#endif
    }
};

// What a block visits: whole tiles of all its threads, and single samples before the first and after the last. Numbers
// follow the indices: samples before the tiles are 0, tiles count from 1, samples after them have the next number.
template <typename T> struct Walk {
    static constexpr int PER_LOAD = Tile<T>::PER_LOAD, SIZE = REDUCE_THREADS * Tile<T>::SIZE;
    const T* samples;
    i64 n, head, tiles;

    __device__ Walk(const T* samples, i64 n) : samples(samples), n(n), head(head_of(samples, n)), tiles((n - head) / SIZE) {}

    // Starts to load the block's first tile, if there is one.
    __device__ void start(Tile<T>& tile) const {
        if (blockIdx.x < tiles) tile.load(samples + first_of(blockIdx.x));
    }

    // Index of the first sample with a number; if it has none, one past those with lower numbers.
    __device__ i64 start_of(i64 number) const {
        return number == 0 ? 0 : number > tiles + 1 ? n : head + (number - 1) * SIZE;
    }

    static __device__ i64 head_of(const T* samples, i64 n) {
        const i64 misaligned = i64(reinterpret_cast<u64>(samples) % 16 / sizeof(T));
        return min(n, misaligned ? PER_LOAD - misaligned : i64(0));
    }

    // `loaded` comes from start. The next tile is in flight while one is processed.
    template <typename Visitor> __device__ void visit(Tile<T>& loaded, Visitor& visitor) const {
        const int count = int(tiles), stride = int(gridDim.x);
        for (int tile = blockIdx.x; tile < count; tile += stride) {
            Tile<T> next;
            next.load_if(tile + stride < count, samples + first_of(tile + stride));
            const int passes = visitor.tile(loaded, first_of(tile), tile + 1, count);
            if (passes) {
                tile += passes * stride;
                next.load_if(tile + stride < count, samples + first_of(tile + stride));
            }
            loaded = next;
        }
        const i64 single = n - tiles * SIZE;
#pragma unroll 1
        for (i64 s = i64(blockIdx.x) * REDUCE_THREADS + threadIdx.x; s < single;
             s += i64(gridDim.x) * REDUCE_THREADS)
            visitor.one(s < head ? s : s + tiles * SIZE, s < head ? 0 : u32(tiles) + 1);
    }

    // Index of a thread's first sample in a tile.
    __device__ i64 first_of(i64 tile, int thread = threadIdx.x) const { return head + tile * SIZE + thread * PER_LOAD; }
};

// The type that samples are compared in; both zeros are equal.
template <typename T> struct Wide { using type = T; };
template <> struct Wide<i8> { using type = int; };
template <> struct Wide<u8> { using type = int; };
template <> struct Wide<i16> { using type = int; };
template <> struct Wide<u16> { using type = int; };
template <> struct Wide<float16> { using type = int; };
template <typename T> __device__ typename Wide<T>::type wide(T x) { return x; }
inline __device__ int wide(float16 x) { return x.bits & 0x8000 ? -(x.bits & 0x7fff) : x.bits; }

// A sample as a number to compute with.
template <typename T> __device__ T number(T x) { return x; }
inline __device__ float number(float16 x) { return widen(x); }

// The lower or upper of two float16 numbers in a word: one instruction.
inline __device__ double widened(u32 word, bool upper) {
    const u16 bits = u16(upper ? word >> 16 : word);
#if ON_GPU
    double value;
    asm("cvt.f64.f16 %0, %1;" : "=d"(value) : "h"(bits));
    return value;
#else
    return widen({bits});
#endif
}

template <typename T> constexpr bool HAS_NAN = false;
template <> constexpr bool HAS_NAN<float16> = true;
template <> constexpr bool HAS_NAN<float> = true;
template <> constexpr bool HAS_NAN<double> = true;
template <typename T> __device__ bool is_nan(T) { return false; }
inline __device__ bool is_nan(float16 x) { return (x.bits & 0x7fff) > 0x7c00; }
inline __device__ bool is_nan(float x) { return x != x; }
inline __device__ bool is_nan(double x) { return x != x; }

template <typename T> __device__ T infinite(bool negative);
template <> inline __device__ float16 infinite(bool negative) { return {u16(negative ? 0xfc00 : 0x7c00)}; }
template <> inline __device__ float infinite(bool negative) { return __uint_as_float(negative ? 0xff800000 : 0x7f800000); }
template <> inline __device__ double infinite(bool negative) {
    return __longlong_as_double(i64(negative ? 0xfff0000000000000 : 0x7ff0000000000000));
}

template <typename T> __device__ bool negative_zero(T) { return false; }
inline __device__ bool negative_zero(float16 x) { return x.bits == 0x8000; }
inline __device__ bool negative_zero(float x) { return __float_as_uint(x) == 0x80000000; }
inline __device__ bool negative_zero(double x) { return u64(__double_as_longlong(x)) == u64(1) << 63; }

// Keys: integers in the order of the samples, for floats from the bits of the float64 number; both zeros have one key.
inline __device__ i64 to_key(int x) { return x; }
inline __device__ i64 to_key(u32 x) { return x; }
inline __device__ i64 to_key(i64 x) { return x; }
inline __device__ i64 to_key(u64 x) { return i64(x ^ u64(1) << 63); }
inline __device__ i64 to_key(double x) {
    const i64 bits = __double_as_longlong(x + 0.0);
    return bits < 0 ? bits ^ NOWHERE : bits;
}
inline __device__ i64 to_key(float x) { return to_key(double(x)); }

// Sum, minimum, maximum and bitwise or over the lanes of a warp.
#if HAS_WARP_REDUCE
inline __device__ u32 sum_of_warp(u32 x) { return __reduce_add_sync(ALL_LANES, x); }
inline __device__ u32 least_of_warp(u32 x) { return __reduce_min_sync(ALL_LANES, x); }
inline __device__ u32 greatest_of_warp(u32 x) { return __reduce_max_sync(ALL_LANES, x); }
inline __device__ u32 bits_of_warp(u32 x) { return __reduce_or_sync(ALL_LANES, x); }
#else
template <typename Join> __device__ u32 joined_of_warp(u32 x, Join join) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = join(x, __shfl_xor_sync(ALL_LANES, x, lanes));
    return x;
}
inline __device__ u32 sum_of_warp(u32 x) { return joined_of_warp(x, [](u32 a, u32 b) { return a + b; }); }
inline __device__ u32 least_of_warp(u32 x) { return joined_of_warp(x, [](u32 a, u32 b) { return min(a, b); }); }
inline __device__ u32 greatest_of_warp(u32 x) { return joined_of_warp(x, [](u32 a, u32 b) { return max(a, b); }); }
inline __device__ u32 bits_of_warp(u32 x) { return joined_of_warp(x, [](u32 a, u32 b) { return a | b; }); }
#endif

// A key and where it was found; the lowest key comes first, then the lowest position.
struct Found {
    i64 key, at;
};

inline __device__ Found first(Found a, Found b) {
    return b.key < a.key || (b.key == a.key && b.at < a.at) ? b : a;
}

inline __device__ Found first_of_warp(Found mine) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        mine = first(mine, {__shfl_xor_sync(ALL_LANES, mine.key, lanes), __shfl_xor_sync(ALL_LANES, mine.at, lanes)});
    return mine;
}

struct Least {
    static constexpr int BETTER = -1;
    template <typename V> static __device__ bool before(V a, V b) { return a < b; }
    static __device__ i64 rank(i64 key) { return key; }
};
struct Greatest {
    static constexpr int BETTER = 1;
    template <typename V> static __device__ bool before(V a, V b) { return a > b; }
    static __device__ i64 rank(i64 key) { return ~key; }
};

// A block's digits: those of the sum, then those of the squares.
constexpr int SQUARES_FROM = SUM_DIGITS, DIGITS = SQUARES_FROM + SQUARE_DIGITS;
static_assert(DIGITS <= REDUCE_THREADS, "a thread for each");
// Totals that all blocks add to and the last one resets to zero: blocks done; counts of NaN, +inf and -inf; NONE minus the
// index of the first NaN; digits. Then, per block, rank and tile number of its least and greatest sample, stored as four
// arrays.
constexpr int ARRIVED = 0, SPECIAL = 1, FIRST_NAN = 4, TOTAL_DIGITS = 5, FOUND = TOTAL_DIGITS + DIGITS;

// Places of the unit bit in a block's digits.
constexpr int SUM_PLACE = SUM_BITS, SQUARE_PLACE = SQUARES_FROM * DIGIT_BITS + SQUARE_BITS;

// A block's counts of infinities and NaN, its sums as digits, and the extremes of its warps.
template <int PARTS> struct Counters {
    static constexpr int COUNT = PARTS & SQUARES ? DIGITS : PARTS & SUM ? SUM_DIGITS : 0;
    u32 special[3];  // NaN, +inf, -inf: a launch has less than 2^32 samples
    u32 first_nan;
    Found least[REDUCE_THREADS / 32], greatest[REDUCE_THREADS / 32];
    Digits<COUNT ? COUNT : 1> digits;

    __device__ void clear() {
        if (threadIdx.x < 3) special[threadIdx.x] = 0;
        if (threadIdx.x == 0) first_nan = NONE;
        digits.clear();
    }

    // Counts; for NaN the first index, too.
    __device__ void count_special(int kind, u32 count, u32 place) {
        if (!count) return;
        atomicAdd(&special[kind], count);
        if (kind == 0 && PARTS & EXTREMES) atomicMin(&first_nan, place);
    }

    // Called by all threads at the end, with their extremes.
    __device__ void store(Found lowest, Found highest, u64* totals) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
        if (PARTS & EXTREMES) {
            lowest = first_of_warp(lowest);
            highest = first_of_warp(highest);
            if (lane == 0) least[warp] = lowest, greatest[warp] = highest;
        }
        __syncthreads();
        if (threadIdx.x < COUNT) {
            const i64 digit = digits.digit(threadIdx.x);
            if (digit) atomicAdd(&totals[TOTAL_DIGITS + threadIdx.x], u64(digit));
        }
        if (warp > 0) return;
        if (PARTS & EXTREMES) {
            lowest = first_of_warp(least[lane % warps]);
            highest = first_of_warp(greatest[lane % warps]);
            u64* const extremes = totals + FOUND + blockIdx.x;
            const u64 column = gridDim.x;
            if (lane == 0) extremes[0] = u64(lowest.key), extremes[column] = u64(lowest.at);
            if (lane == 1) extremes[2 * column] = u64(highest.key), extremes[3 * column] = u64(highest.at);
        }
        if (lane < 3 && special[lane]) atomicAdd(&totals[SPECIAL + lane], u64(special[lane]));
        if (lane == 3 && first_nan != NONE) atomicMax(&totals[FIRST_NAN], u64(NONE - first_nan));
    }
};
