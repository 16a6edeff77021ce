// Reduce: exact sum, exact sum of squares, minimum and maximum with their places, NaN and infinities, in one pass.
//
//   moments     each block adds the digits of its sums to those of all blocks and stores its extremes; the last block
//               turns everything into a partial (kernels/reduce/partial.py)
//   combine     merges two partials
//   place       shifts the positions in a partial
//
// Integers are summed in registers as wide as needed. Floats are too, while the exponents that a thread sees are close
// (Levels): it keeps a window of exponents and moves it when a tile lies outside but fits into one, together with the
// other lanes of its warp if one window holds all their samples. Tiles that fit no window go to cells in shared memory:
// the thread's (Columns) or the block's lanes' (Lanes). With squares, such tiles are deferred, the next ones with them
// unseen, until all others are done and registers are free. Nothing is rounded either way, so windows, blocks and order
// do not show in the result. A tile is the 16-byte loads that a thread has in flight; single samples come before the
// first tile and after the last.
//
// Gains on an H200, as shares of a plain read; "all" is everything in one pass:
//   packed minima, dot products, carries by multiply-add, loads ahead    uint8 all 0.67 to 0.90, int64 all 0.51 to 0.87
//   plain sums of a tile's squares                                       float16 all 0.79 to 0.89
//   loads ahead into registers of their own, and
//   one sum per tile of the first level's remainders                     float32 all 0.83 to 0.87
//   columns of cells, for sums of any bits                               float32 0.17 to 0.88, float64 0.27 to 0.51
//   numbers split by additions instead of shifts, the same               float64 0.51 to 0.62, paced 0.75
//   one launch, whose last block makes the partial; no window tried
//   for 15 tiles after one fit none                                      float32 sum 0.93 to 0.96, any bits 0.85 to 0.92
//   a plain sum of the squares of remainders                             float64 all 0.83 to 0.93
//   extremes and magnitudes from integer minima of the bits;
//   float64 compared in full only where one may be new                   float64 all 0.79 to 0.90, float32 0.86 to 0.89
//   loads ahead for float64, too                                         float64 sum 0.89 to 0.91
//   tiles that fit no window deferred; digits of 22 bits
//   per lane of a block: any bits, all                                   float32 0.35 to 0.41, float64 0.11 to 0.46
//   the whole warp to cells, loads ahead that nothing waits on:
//   any bits, sum                                                        float32 0.93 to 0.96, float64 0.76 to 0.92

#include "reduce/last_block.cuh"
#include "reduce/visitor.cuh"

// Blocks per multiprocessor: three of 256 threads leave 80 registers a thread, two leave 128. Either number keeps the
// memory busy as long as nothing spills.
template <typename T, int PARTS> constexpr int REDUCE_BLOCKS = 3;
template <> constexpr int REDUCE_BLOCKS<float, SUM | SQUARES> = 2;
template <> constexpr int REDUCE_BLOCKS<float, SUM | SQUARES | EXTREMES> = 2;
template <> constexpr int REDUCE_BLOCKS<double, SUM> = 2;  // shared memory holds the cells of two
template <> constexpr int REDUCE_BLOCKS<double, SUM | EXTREMES> = 2;
template <> constexpr int REDUCE_BLOCKS<double, SUM | SQUARES> = 2;
template <> constexpr int REDUCE_BLOCKS<double, SUM | SQUARES | EXTREMES> = 2;
template <> constexpr int REDUCE_BLOCKS<float16, SUM | SQUARES | EXTREMES> = HOPPER ? 3 : 2;  // elsewhere 80 registers spill

template <typename T, int PARTS>
__global__ void __launch_bounds__(REDUCE_THREADS, (REDUCE_BLOCKS<T, PARTS>))
moments(const T* samples, i64 n, i64 code, u64* totals, i64* partial) {
    constexpr bool DEFER = DEFERS<T, PARTS>;
    __shared__ Counters<PARTS> shared;
    __shared__ typename Choose<DEFER, DeferredTiles, int>::type deferred;
    const Walk<T> walk(samples, n);
    Tile<T> first;
    walk.start(first);  // in flight while the block sets up
    shared.clear();
    if constexpr (DEFER) deferred.clear();
    __syncthreads();

    typename Extremes<T, PARTS>::Best best;
    Visitor<T, PARTS> visitor(samples, shared, best, reinterpret_cast<DeferredTiles*>(&deferred));
    walk.visit(first, visitor);
    visitor.close();
    if constexpr (DEFER) visit_deferred(walk, deferred, visitor, shared);
    shared.store(visitor.extremes.lowest(), visitor.extremes.highest(), totals);
    if (is_last(totals)) finish<T, PARTS>(walk, code, totals, partial);
}

// Launched with two warps.
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

// Launched with three threads: first NaN, minimum, maximum.
__global__ void place(i64* partial, i64 start) {
    i64& at = partial[6 + threadIdx.x];
    if (at != NOWHERE) at += 2 * start;
}
