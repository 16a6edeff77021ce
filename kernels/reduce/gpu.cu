// Reduce: exact sum, exact sum of squares, minimum and maximum with their places, NaN and infinities, in one pass.
//
//   moments     every block reads its share, and leaves what it found: digits of its sums, and its extremes; the last
//               one to do so makes a partial of it all (kernels/reduce/partial.py)
//   combine     two partials to one
//   place       a partial counts its places from another index of the samples
//
// Integers add up in registers, as wide as it takes. Floats do, too, as long as the exponents of what a thread sees are
// close (Levels): it keeps a window of exponents and moves it where a tile lies outside but fits into one, together with
// the other lanes of its warp if one window holds what all of them see. Only tiles that no window holds go elsewhere, to
// cells in shared memory: those of the thread (Columns), or of the block's lanes (Lanes). Where squares are asked for, a
// block leaves such tiles, and with them the next ones unseen, and goes through them once it has seen all others: then
// there are registers. Either way nothing is rounded, so windows, blocks and order do not show in the result. A tile is
// the 16-byte loads that a thread has in flight; single samples come before the first and after the last.
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
//   tiles that no window holds left for later; digits of 22 bits
//   for each lane of a block: any bits, all                              float32 0.35 to 0.41, float64 0.11 to 0.46
//   the whole warp to cells, loads ahead that nothing waits for:
//   any bits, sum                                                        float32 0.93 to 0.96, float64 0.76 to 0.92

#include "reduce/last_block.cuh"
#include "reduce/visitor.cuh"

// Blocks of a multiprocessor: three of 256 threads have 80 registers a thread, two 128. Either keep the memory busy, as
// long as nothing is spilled.
template <typename T, int PARTS> constexpr int REDUCE_BLOCKS = 3;
template <> constexpr int REDUCE_BLOCKS<float, SUM | SQUARES> = 2;
template <> constexpr int REDUCE_BLOCKS<float, SUM | SQUARES | EXTREMES> = 2;
template <> constexpr int REDUCE_BLOCKS<double, SUM> = 2;  // more have no room for their cells
template <> constexpr int REDUCE_BLOCKS<double, SUM | EXTREMES> = 2;
template <> constexpr int REDUCE_BLOCKS<double, SUM | SQUARES> = 2;
template <> constexpr int REDUCE_BLOCKS<double, SUM | SQUARES | EXTREMES> = 2;
template <> constexpr int REDUCE_BLOCKS<float16, SUM | SQUARES | EXTREMES> = HOPPER ? 3 : 2;  // elsewhere 80 spill

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
