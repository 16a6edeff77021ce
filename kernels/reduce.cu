// Reduce: exact sum, exact sum of squares, minimum and maximum with their places, NaN and infinities, in one pass.
//
//   moments     every block reads its share, counts what it sums in digits of its own, and leaves a row of extremes
//   finish      digits and rows of all blocks to a partial (kernels/reduce.py)
//   combine     two partials to one
//
// Integers add up in registers, as wide as it takes. Floats do, too, as long as the exponents of what a thread sees are
// close (Levels): it keeps a window of exponents and moves it where a tile lies outside but fits into one. Only tiles
// that no window holds, and infinities and NaN, are taken number by number, to the digits in shared memory (Digits).
// Either way nothing is rounded, so windows, blocks and order do not show in the result.
// A tile is the 16-byte loads that a thread has in flight; single samples come before the first and after the last.

#include "reduce_integer.cuh"
#include "reduce_float.cuh"

// On a multiprocessor: 3 leave 80 registers to each thread. All of 64 bytes at once take more where bytes are squared.
template <typename T, int PARTS> constexpr int REDUCE_BLOCKS = sizeof(T) == 1 && PARTS & SQUARES ? 2 : 3;

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

    __device__ Found found(const T* samples) const {
        if (at == NOWHERE) return {NOWHERE, NOWHERE};
        i64 index = at;
        if (in_tile) {
            int i = 0;
            while (i < Tile<T>::SIZE - 1 && !(wide(samples[at + Tile<T>::offset(i)]) == best)) ++i;
            index += Tile<T>::offset(i);
        }
        return {Order::rank(to_key(number(samples[index]))), position(samples, index)};
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

    __device__ void tile(const T (&items)[Tile<T>::SIZE], const T* at) {
        if (sums.tile(items, at, shared)) {
            if (PARTS & EXTREMES) {
                auto low = wide(items[0]), high = low;
#pragma unroll
                for (int i = 1; i < Tile<T>::SIZE; ++i) {
                    low = min(low, wide(items[i]));
                    high = max(high, wide(items[i]));
                }
                see(low, high, at - samples, true);
            }
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
__global__ void __launch_bounds__(REDUCE_THREADS, (REDUCE_BLOCKS<T, PARTS>))
moments(const T* samples, i64 n, i64* counts, i64* rows) {
    __shared__ Counters<PARTS> shared;
    shared.clear();
    __syncthreads();

    Visitor<T, PARTS> visitor(samples, shared);
    for_each_tile(samples, n, visitor);
    visitor.sums.close(shared);

    if (PARTS & EXTREMES) {
        const Found least = first_of_block(visitor.least.found(samples));
        const Found greatest = first_of_block(visitor.greatest.found(samples));
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
    if (threadIdx.x == 0) {
        to_words(counts + 3, SUM_DIGITS, reinterpret_cast<u64*>(partial) + SUM_AT, SUM_WORDS);
    } else if (threadIdx.x == 32) {
        to_words(counts + 3 + SUM_DIGITS, SQUARE_DIGITS, reinterpret_cast<u64*>(partial) + SQUARES_AT, SQUARE_WORDS);
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
