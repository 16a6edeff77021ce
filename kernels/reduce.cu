// Reduce: exact sum, exact sum of squares, minimum and maximum with their places, NaN and infinities, in one pass.
//
//   moments     every block reads its share, and leaves what it found: digits of its sums, and its extremes; the last
//               one to do so makes a partial of it all (kernels/reduce.py)
//   combine     two partials to one
//   place       a partial counts its places from another index of the samples
//
// Integers add up in registers, as wide as it takes. Floats do, too, as long as the exponents of what a thread sees are
// close (Levels): it keeps a window of exponents and moves it where a tile lies outside but fits into one, together with
// the other lanes of its warp if one window holds what all of them see. Only tiles that no window holds go elsewhere: to
// cells of the thread's own in shared memory (Columns), or number by number to the digits of the block (Digits). Either
// way nothing is rounded, so windows, blocks and order do not show in the result. A tile is the 16-byte loads that a
// thread has in flight; single samples come before the first and after the last.
//
// What it gained on an H200, as shares of the read stream; "all" is everything in one pass:
//   packed minima, dot products, carries by multiply-add, loads ahead    uint8 all 0.67 to 0.90, int64 all 0.51 to 0.87
//   plain sums of a tile's squares                                       float16 all 0.79 to 0.89
//   loads ahead into registers of their own, and
//   one sum a tile for what the first level leaves                       float32 all 0.83 to 0.87
//   columns of cells, for sums of any bits                               float32 0.17 to 0.88, float64 0.27 to 0.51
//   numbers split by additions instead of shifts, the same               float64 0.51 to 0.62, with a pace 0.75
//   one launch, whose last block makes the partial; no windows tried
//   for 15 tiles where none held one                                     float32 sum 0.93 to 0.96, any bits 0.85 to 0.92
//   a plain sum of the squares of what is left                           float64 all 0.83 to 0.93
//   extremes and magnitudes from integer minima of the bits,
//   of float64 looked at in full only where one may be new               float64 all 0.79 to 0.90, float32 0.86 to 0.89
//   loads ahead for float64, too                                         float64 sum 0.89 to 0.91

#include "reduce_extremes.cuh"
#include "reduce_finish.cuh"
#include "reduce_float.cuh"
#include "reduce_integer.cuh"
#include "reduce_left.cuh"

// Blocks of a multiprocessor: three of 256 threads have 80 registers a thread, two 128. Either keep the memory busy, as
// long as nothing is spilled.
template <typename T, int PARTS> constexpr int REDUCE_BLOCKS = 3;
template <> constexpr int REDUCE_BLOCKS<float, SUM | SQUARES> = 2;
template <> constexpr int REDUCE_BLOCKS<float, SUM | SQUARES | EXTREMES> = 2;
template <> constexpr int REDUCE_BLOCKS<double, SUM> = 2;  // more have no room for their cells
template <> constexpr int REDUCE_BLOCKS<double, SUM | EXTREMES> = 2;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
template <> constexpr int REDUCE_BLOCKS<double, SUM | SQUARES | EXTREMES> = 2;  // with 80 registers two are spilled
#endif

template <typename T, int PARTS> struct Visitor {
    static constexpr bool LEFT = LEAVES<T, PARTS>;
    static constexpr bool AT_ONCE = sizeof(T) > 2 && HAS_NAN<T> && PARTS & SUM && !LEFT;  // in cells, what no window holds
    const T* samples;
    Counters<PARTS>& shared;
    Sums<T, PARTS> sums;
    Extremes<T, PARTS> extremes;
    typename Choose<AT_ONCE, Columns<T, PARTS>, int>::type columns{};
    Marks* marks;
    int wild = 0;  // of the next tiles that go to cells without a look at windows

    __device__ Visitor(const T* samples, Counters<PARTS>& shared, typename Extremes<T, PARTS>::Best& best, Marks* marks)
        : samples(samples), shared(shared), extremes(best), marks(marks) {}

    __device__ void one(i64 index, u32 number) {
        const T x = samples[index];
        if (is_nan(x)) return shared.count_special(0, 1, u32(index));
        if constexpr (PARTS & EXTREMES) extremes.template see<true>(wide(x), wide(x), number);
        if constexpr (HAS_NAN<T>) {
            if (!sums.finite(x)) return shared.count_special(wide(x) > 0 ? 1 : 2, 1, 0);
        }
        sums.one(x, shared);
    }

    // All lanes; how many of the next tiles the warp leaves unseen.
    __device__ int tile(Tile<T>& tile, i64 index, int number, int tiles) {
        Extent<T, PARTS> extent(tile);
        const bool seen = HAS_NAN<T> && !finite(extent);
        if constexpr (HAS_NAN<T>) {
            if (seen) {
                clean(tile);
                extent = Extent<T, PARTS>(tile);
            }
        }
        if constexpr (PARTS & EXTREMES) extremes.template tile<false>(tile, extent, seen, number);
        if constexpr (AT_ONCE) {
            if (wild || !sums.holds(tile, extent, shared)) {
                wild = wild ? wild - 1 : 63;
                take(tile, index, columns);
            } else {
                sums.add(tile, extent);
            }
        } else {
            const bool held = sums.holds(tile, extent, shared);
            if constexpr (LEFT) {
                if (!held) return marks->leave(number, tiles);
            }
            sums.add(tile, extent);
        }
        if constexpr (HAS_NAN<T>) {
            if (seen) count_specials(index, number);
        }
        return 0;
    }

    // All lanes, of a tile that was left.
    template <typename Cells> __device__ void again(Tile<T>& tile, i64 index, u32 number, Cells& cells) {
        const Extent<T, PARTS> extent(tile);
        const bool seen = !extent.finite;
        if (seen) clean(tile);
        if constexpr (PARTS & EXTREMES) extremes.template tile<true>(tile, extent, seen, number);
        if (seen) count_specials(index, number);
        take(tile, index, cells);
    }

    // All lanes.
    __device__ void close() {
        sums.close(shared);
        if constexpr (AT_ONCE && ROOMY)
            if (columns.tiles) columns.empty(shared);
    }

  private:
    // What no window holds.
    template <typename Cells> __device__ void take(const Tile<T>& tile, i64 index, Cells& cells) {
        if constexpr (ROOMY) return cells.add(tile, shared);
#pragma unroll 1
        for (int i = 0; i < Tile<T>::SIZE; ++i) {
            const T x = samples[index + Tile<T>::offset(i)];  // again, because registers have no index
            if (sums.finite(x)) sums.one(x, shared);
        }
    }

    template <typename E> static __device__ bool finite(const E& extent) {
        if constexpr (HAS_NAN<T>) return extent.finite;
        return true;
    }

    // Puts zeros in the place of NaN and infinities.
    static __device__ void clean(Tile<T>& tile) {
#pragma unroll
        for (int i = 0; i < Tile<T>::SIZE; ++i)
            if (!Sums<T, PARTS>::finite(tile.item[i])) tile.item[i] = T{};
    }

    // Of a tile with NaN or infinities: counts them, and sees its extremes.
    __device__ void count_specials(i64 index, u32 number) {
        using Value = typename Wide<T>::type;
        u32 nan = 0, positive = 0, negative = 0, first = NONE;
        Value low = wide(infinite<T>(false)), high = wide(infinite<T>(true));
#pragma unroll 1
        for (int i = Tile<T>::SIZE - 1; i >= 0; --i) {
            const i64 at = index + Tile<T>::offset(i);
            const T x = samples[at];  // again: there are zeros in the registers
            if (sums.finite(x)) {
                low = wide(x) < low ? wide(x) : low;
                high = wide(x) > high ? wide(x) : high;
            } else if (is_nan(x)) {
                ++nan;
                first = u32(at);
            } else if (wide(x) > 0) {
                ++positive;
            } else {
                ++negative;
            }
        }
        if (PARTS & EXTREMES && nan < Tile<T>::SIZE) {
            extremes.template see<true>(negative ? wide(infinite<T>(true)) : low,
                                        positive ? wide(infinite<T>(false)) : high, number);
        }
        shared.count_special(0, nan, first);
        shared.count_special(1, positive, 0);
        shared.count_special(2, negative, 0);
    }
};

template <typename T, int PARTS>
__global__ void __launch_bounds__(REDUCE_THREADS, (REDUCE_BLOCKS<T, PARTS>))
moments(const T* samples, i64 n, i64 code, u64* totals, i64* partial) {
    constexpr bool LEFT = LEAVES<T, PARTS>;
    __shared__ Counters<PARTS> shared;
    __shared__ typename Choose<LEFT, Marks, int>::type marks;
    const Walk<T> walk(samples, n);
    Tile<T> first;
    walk.start(first);  // it comes while the block prepares itself
    shared.clear();
    if constexpr (LEFT) marks.clear();
    __syncthreads();

    typename Extremes<T, PARTS>::Best best;
    Visitor<T, PARTS> visitor(samples, shared, best, reinterpret_cast<Marks*>(&marks));
    walk.visit(first, visitor);
    visitor.close();
    if constexpr (LEFT) look_again(walk, marks, visitor, shared);
    shared.store(visitor.extremes.lowest(), visitor.extremes.highest(), totals);
    if (is_last(totals)) finish<T, PARTS>(walk, code, totals, partial);
}

// Two warps' worth of threads.
__global__ void combine(const i64* a, const i64* b, i64* partial) {
    if (threadIdx.x == 0) {
        add_words(reinterpret_cast<const u64*>(a) + SUM_AT, reinterpret_cast<const u64*>(b) + SUM_AT,
                  reinterpret_cast<u64*>(partial) + SUM_AT, SUM_WORDS);
        for (int i = 0; i < 6; ++i) partial[i] = i < 2 ? a[i] : a[i] + b[i];
        const Found least = first({a[9], a[7]}, {b[9], b[7]}), greatest = first({~a[10], a[8]}, {~b[10], b[8]});
        partial[6] = min(a[6], b[6]);
        partial[7] = least.at;
        partial[8] = greatest.at;
        partial[9] = least.key;
        partial[10] = ~greatest.key;
    } else if (threadIdx.x == 32) {
        add_words(reinterpret_cast<const u64*>(a) + SQUARES_AT, reinterpret_cast<const u64*>(b) + SQUARES_AT,
                  reinterpret_cast<u64*>(partial) + SQUARES_AT, SQUARE_WORDS);
    }
}

// Three threads: the first NaN, the minimum, the maximum.
__global__ void place(i64* partial, i64 start) {
    i64& at = partial[6 + threadIdx.x];
    if (at != NOWHERE) at += 2 * start;
}
