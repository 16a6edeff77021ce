// Reduce: exact sum, exact sum of squares, minimum and maximum with their places, NaN and infinities, in one pass.
//
//   moments     every block reads its share, counts what it sums in digits of its own, and leaves a row of extremes
//   finish      digits and rows of all blocks to a partial (kernels/reduce.py)
//   combine     two partials to one
//
// Integers add up in registers, as wide as it takes. Floats do, too, as long as the exponents of what a thread sees are
// close (Levels): it keeps a window of exponents and moves it where a tile lies outside but fits into one. Only tiles
// that no window holds go elsewhere: to cells of the thread's own in shared memory (Columns), or, as infinities and NaN
// do, number by number to the digits of the block (Digits). Either way nothing is rounded, so windows, blocks and order
// do not show in the result. A tile is the 16-byte loads that a thread has in flight; single samples come before the
// first and after the last.
//
// What it gained on an H200, as shares of the read stream; "all" is everything in one pass:
//   packed minima, dot products, carries by multiply-add, loads ahead,
//   a finish by warps, together                                 uint8 all 0.67 to 0.90, int64 all 0.51 to 0.87
//   extremes looked up by those threads only that have one      int16 all 0.86 to 0.93
//   that, and plain sums of a tile's squares                    float16 all 0.79 to 0.89
//   loads ahead into registers of their own, and
//   one sum a tile for what the first level leaves              float32 all 0.83 to 0.87
//   no loads ahead, but more threads                            float64 all 0.79 to 0.82 (moments alone)
//   columns of cells, for sums of any bits                      float32 0.17 to 0.88, float64 0.27 to 0.51

#include "reduce_integer.cuh"
#include "reduce_float.cuh"

// Threads of a multiprocessor: 768 have 80 registers each, 640 have 96. Either keep the memory busy, as long as nothing
// is spilled.
template <typename T, int PARTS> constexpr int REDUCE_RESIDENT = 768;
template <> constexpr int REDUCE_RESIDENT<float, SUM | SQUARES> = 640;
template <> constexpr int REDUCE_RESIDENT<float, SUM | SQUARES | EXTREMES> = 640;
template <typename T, int PARTS>
constexpr int REDUCE_BLOCKS = REDUCE_RESIDENT<T, PARTS> / REDUCE_THREADS<T>;

// Place of a sample in a partial: twice the index, and one for -0.0.
template <typename T> __device__ i64 position(const T* samples, i64 index) {
    return 2 * index + negative_zero(samples[index]);
}

// The least sample that a thread has seen, by the order of Order, and where. Of tiles it only knows the first place
// where it was; which of the tile's samples it is, is looked up in the end.
template <typename T, typename Order> struct Extreme {
    using Value = typename Wide<T>::type;
    Value best = {};
    i64 at = NOWHERE;
    bool in_tile = false;

    __device__ void see(Value value, i64 index, bool tile) {
        if (Order::before(value, best) || at == NOWHERE) {
            best = value;
            at = index;
            in_tile = tile;
        }
    }

    // What comes first in the block. Only threads that have seen the least of all, in the first row of tiles where it
    // is, look up where: in all that they loaded there, at once.
    __device__ Found of_block(const T* samples) const {
        const Found mine{at == NOWHERE ? NOWHERE : Order::rank(to_key(best)), at}, row = first_of_block(mine);
        i64 index = at;
        if (at == NOWHERE || mine.key != row.key || at - row.at >= REDUCE_THREADS<T> * Tile<T>::PER_LOAD) {
            index = NOWHERE;
        } else if (in_tile) {
            Tile<T> again;
            again.load(samples + at);
            int place = Tile<T>::SIZE - 1;
#pragma unroll
            for (int i = Tile<T>::SIZE - 2; i >= 0; --i)
                if (wide(again.item[i]) == best) place = i;
            index += Tile<T>::offset(place);
        }
        Found found{NOWHERE, NOWHERE};
        if (index != NOWHERE) found = {Order::rank(to_key(number(samples[index]))), position(samples, index)};
        return first_of_block(found);
    }
};

template <typename T, int PARTS> struct Visitor {
    const T* samples;
    Counters<PARTS>& shared;
    Sums<T, PARTS> sums;
    Extreme<T, Least> least;
    Extreme<T, Greatest> greatest;
    i64 first_nan = NOWHERE;

    __device__ Visitor(const T* samples, Counters<PARTS>& shared) : samples(samples), shared(shared) {}

    __device__ void one(const T* at) {
        if (is_nan(*at)) first_nan = min(first_nan, i64(at - samples));
        else if (PARTS & EXTREMES) see(wide(*at), wide(*at), at - samples, false);
        sums.one(*at, shared);
    }

    __device__ void tile(const Tile<T>& tile, const T* at) {
        const Extent<T, PARTS> extent(tile);
        if (sums.tile(tile, at, extent, shared)) {
            if (PARTS & EXTREMES) see(extent.low, extent.high, at - samples, true);
            return;
        }
        // Some are not numbers or not finite; read again, because registers have no index.
#pragma unroll 1
        for (int i = 0; i < Tile<T>::SIZE; ++i) one(at + Tile<T>::offset(i));
    }

  private:
    using Value = typename Wide<T>::type;
    __device__ void see(Value low, Value high, i64 index, bool tile) {
        least.see(low, index, tile);
        greatest.see(high, index, tile);
    }
};

template <typename T, int PARTS>
__global__ void __launch_bounds__(REDUCE_THREADS<T>, (REDUCE_BLOCKS<T, PARTS>))
moments(const T* samples, i64 n, i64* counts, i64* rows) {
    __shared__ Counters<PARTS> shared;
    shared.clear();
    Columns<T, PARTS>::clear();
    __syncthreads();

    Visitor<T, PARTS> visitor(samples, shared);
    for_each_tile(samples, n, visitor);
    visitor.sums.close(shared);

    if (PARTS & EXTREMES) {
        const Found least = visitor.least.of_block(samples);
        const Found greatest = visitor.greatest.of_block(samples);
        const i64 nan = first_of_block({visitor.first_nan, 0}).key;
        if (threadIdx.x == 0) {
            i64* const row = rows + 5 * i64(blockIdx.x);
            row[0] = nan == NOWHERE ? nan : 2 * nan;
            row[1] = least.at;
            row[2] = greatest.at;
            row[3] = least.key;
            row[4] = greatest.key;
        }
    }
    __syncthreads();
    shared.store(counts);
}

// One block; `counts` as Counters::store leaves them, as many rows as there were blocks.
__global__ void finish(const i64* counts, const i64* rows, int count, i64 code, i64 parts, i64 samples, i64* partial) {
    const int warp = threadIdx.x / 32;
    if (warp == 0) {
        to_words<SUM_DIGITS, SUM_WORDS>(counts + 3, reinterpret_cast<u64*>(partial) + SUM_AT);
    } else if (warp == 1) {
        to_words<SQUARE_DIGITS, SQUARE_WORDS>(counts + 3 + SUM_DIGITS, reinterpret_cast<u64*>(partial) + SQUARES_AT);
    } else if (threadIdx.x == 64) {
        partial[0] = code;
        partial[1] = parts;
        partial[2] = samples;
        for (int i = 0; i < 3; ++i) partial[3 + i] = counts[i];
    }
    Found least{NOWHERE, NOWHERE}, greatest{NOWHERE, NOWHERE}, nan{NOWHERE, 0};
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const i64* const row = rows + 5 * i64(i);
        nan.key = min(nan.key, row[0]);
        least = first(least, {row[3], row[1]});
        greatest = first(greatest, {row[4], row[2]});
    }
    least = first_of_block(least);
    greatest = first_of_block(greatest);
    nan = first_of_block(nan);
    if (threadIdx.x == 0) store_found(nan.key, least, greatest, partial);
}

// Two warps' worth of threads.
__global__ void combine(const i64* a, const i64* b, i64* partial) {
    if (threadIdx.x == 0) {
        add_words(reinterpret_cast<const u64*>(a) + SUM_AT, reinterpret_cast<const u64*>(b) + SUM_AT,
                  reinterpret_cast<u64*>(partial) + SUM_AT, SUM_WORDS);
        for (int i = 0; i < 6; ++i) partial[i] = i < 2 ? a[i] : a[i] + b[i];
        store_found(min(a[6], b[6]), first({a[9], a[7]}, {b[9], b[7]}), first({~a[10], a[8]}, {~b[10], b[8]}), partial);
    } else if (threadIdx.x == 32) {
        add_words(reinterpret_cast<const u64*>(a) + SQUARES_AT, reinterpret_cast<const u64*>(b) + SQUARES_AT,
                  reinterpret_cast<u64*>(partial) + SQUARES_AT, SQUARE_WORDS);
    }
}
