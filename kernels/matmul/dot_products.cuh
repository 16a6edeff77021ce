// Uncertain elements as sums of their terms in order: squares of C with many of them as a whole, tile by tile through shared
// memory; otherwise a thread per element.
#pragma once

#include "matmul/certificate.cuh"
#include "matmul/nonfinite.cuh"

constexpr int SIDE = 64;         // of a square of C
constexpr int MANY = 32;         // uncertain elements of a square from which on computing all is faster
constexpr int SLICE = 16;        // terms at a time, of all elements
constexpr int STEP = 64;         // terms that a thread computes, or skips as zeros, together
constexpr int DOT_THREADS = 256;

// The uncertain elements of a square, and where its rows and columns have nonzero numbers (Line).
struct Uncertain {
    int count, early[2], late[2];
    u16 chosen[SIDE * SIDE];
};

// Double-buffered slices of all rows and columns of a square. `some` has a bit for each term: whether any row, or any column,
// is nonzero there; triple-buffered, so that clearing it needs no barrier.
struct Slices {
    double a[2][SLICE][SIDE + 1], b[2][SLICE][SIDE];
    u32 some[3][2];
};

template <typename F> struct Dots {
    using Storage = typename F::Storage;
    using Large = typename F::Large;
    // Of one pair of matrices; `before`: numbers of a line in earlier parts; row, column: where the square begins.
    const Storage *a, *b;
    const Large *largest_a, *largest_b;
    const u64 *seen_a, *seen_b;
    i64 rows, inner, columns, before, row, column;
    bool last, scaled;
    u8* terms;
    double* sums;
    Storage* result;
    u64* overflowed;

    __device__ bool exists(i64 i, i64 j) const { return i < rows && j < columns; }
    __device__ static int power(u64 largest) { return HALF_WAY - F::exponent(largest); }
    __device__ double scale(u64 largest) const { return scaled ? power_of_two(power(largest)) : 1; }

    // Lists the uncertain elements, with all threads of the block.
    __device__ void find(Uncertain& uncertain) const {
        const int thread = int(threadIdx.x);
        if (thread == 0) uncertain.count = 0;
        if (thread < 2) uncertain.early[thread] = uncertain.late[thread] = 0;
        __syncthreads();
        for (int i = thread; i < SIDE * SIDE; i += DOT_THREADS) {
            const i64 own_row = row + i / SIDE, own_column = column + i % SIDE;
            if (exists(own_row, own_column) && terms[own_row * columns + own_column] == UNCERTAIN)
                uncertain.chosen[atomicAdd(&uncertain.count, 1)] = u16(i);
        }
        for (int i = thread; i < 2 * SIDE; i += DOT_THREADS) {
            const bool of_b = i >= SIDE;
            const i64 line = of_b ? column + i - SIDE : row + i;
            if (line < (of_b ? columns : rows)) {
                const Line is(of_b ? seen_b : seen_a, line);
                atomicMax(&uncertain.early[of_b], is.early);
                atomicMax(&uncertain.late[of_b], is.late);
            }
        }
        __syncthreads();
    }

    // Stores the sum of an element up to the end of this part; after the last part the result.
    __device__ void store(i64 own_row, i64 own_column, double sum) const {
        const i64 element = own_row * columns + own_column;
        sums[element] = sum;
        if (!last) return;
        if (is_finite(sum)) {
            const int powers = scaled ? power(largest_a[own_row]) + power(largest_b[own_column]) : 0;
            result[element] = rounded<F>(sum, -powers);
            terms[element] = 0;
        } else {
            atomicAdd(overflowed, u64(1));
        }
    }

    // A thread per uncertain element.
    __device__ void some(const Uncertain& uncertain) const {
        for (int i = int(threadIdx.x); i < uncertain.count; i += DOT_THREADS) {
            const i64 own_row = row + uncertain.chosen[i] / SIDE, own_column = column + uncertain.chosen[i] % SIDE;
            const double scale_a = scale(largest_a[own_row]), scale_b = scale(largest_b[own_column]);
            const Span span(Line(seen_a, own_row), Line(seen_b, own_column));
            const i64 start = max(span.first - before, i64(0)), end = min(span.end - before, inner);
            const Storage *const of_a = a + own_row * inner, *const of_b = b + own_column;
            double sum = before ? sums[own_row * columns + own_column] : 0;
            // Lanes stay at the same terms, for coalesced reads. Terms outside of the span are zeros.
            for (i64 step = 0; step < inner; step += STEP) {
                if (step + STEP <= start || step >= end) continue;
                const i64 stop = min(step + STEP, inner);
#pragma unroll 4
                for (i64 k = step; k < stop; ++k) sum += F::real(of_a[k]) * scale_a * (F::real(of_b[k * columns]) * scale_b);
            }
            store(own_row, own_column, sum);
        }
    }

    // Computes the whole square and stores only its uncertain elements: a thread has every 16th row and column, four of
    // each. Adding zeros does not change a sum that began with +0, so terms outside the nonzero spans of the rows and
    // columns are skipped, and those where all rows or all columns are zero.
    __device__ void all(const Uncertain& uncertain, Slices& slices) const {
        constexpr int EACH = SIDE / 16, LOADS = SIDE * SLICE / DOT_THREADS;
        const int thread = int(threadIdx.x), down = thread / 16, across = thread % 16;
        const auto is_uncertain = [&](int i, int j) {
            const i64 own_row = row + down + 16 * i, own_column = column + across + 16 * j;
            return exists(own_row, own_column) && terms[own_row * columns + own_column] == UNCERTAIN;
        };
        double sum[EACH][EACH], scale_a[LOADS], next_a[LOADS], next_b[LOADS];
#pragma unroll
        for (int i = 0; i < EACH; ++i)
#pragma unroll
            for (int j = 0; j < EACH; ++j)
                sum[i][j] = before && is_uncertain(i, j) ? sums[(row + down + 16 * i) * columns + column + across + 16 * j] : 0;
        // Neighbouring threads load neighbouring terms of A, and neighbouring columns of B.
        const i64 own_column = column + thread % SIDE;
        const double scale_b = own_column < columns ? scale(largest_b[own_column]) : 0;
#pragma unroll
        for (int i = 0; i < LOADS; ++i) scale_a[i] = row + down + 16 * i < rows ? scale(largest_a[row + down + 16 * i]) : 0;
        const auto load = [&](i64 k) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const i64 own_row = row + down + 16 * i, place = k + thread / SIDE + i * (DOT_THREADS / SIDE);
                const bool has_a = own_row < rows && k + across < inner;
                const bool has_b = own_column < columns && place < inner;
                next_a[i] = has_a ? F::real(a[own_row * inner + k + across]) * scale_a[i] : 0;
                next_b[i] = has_b ? F::real(b[place * columns + own_column]) * scale_b : 0;
            }
        };
        const i64 first = MOST_INNER - min(uncertain.early[0], uncertain.early[1]);
        const i64 past = min(uncertain.late[0], uncertain.late[1]);
        const i64 start = max(first - before, i64(0)) / SLICE * SLICE, end = min(past - before, inner);
        if (thread < 6) slices.some[thread / 2][thread % 2] = 0;
        load(start);
        __syncthreads();
        int number = 0;
        for (i64 k = start; k < end; k += SLICE, ++number) {
            auto& of_rows = slices.a[number % 2];
            auto& of_columns = slices.b[number % 2];
            u32* const some = slices.some[number % 3];
            u32 some_a = 0, some_b = 0;
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const int place = thread / SIDE + i * (DOT_THREADS / SIDE);
                of_rows[across][down + 16 * i] = next_a[i];
                of_columns[place][thread % SIDE] = next_b[i];
                some_a |= u32(next_a[i] != 0) << across;
                some_b |= u32(next_b[i] != 0) << place;
            }
            for (int distance = 16; distance; distance /= 2) {
                some_a |= __shfl_xor_sync(~0u, some_a, distance);
                some_b |= __shfl_xor_sync(~0u, some_b, distance);
            }
            if (thread % 32 == 0) {
                atomicOr(&some[0], some_a);
                atomicOr(&some[1], some_b);
            }
            __syncthreads();
            const u32 not_zero = some[0] & some[1];
            if (thread < 2) slices.some[(number + 2) % 3][thread] = 0;
            load(k + SLICE);
#pragma unroll
            for (int place = 0; place < SLICE; ++place) {
                if (!(not_zero >> place & 1)) continue;
                double of_a[EACH], of_b[EACH];
#pragma unroll
                for (int i = 0; i < EACH; ++i) {
                    of_a[i] = of_rows[place][down + 16 * i];
                    of_b[i] = of_columns[place][across + 16 * i];
                }
#pragma unroll
                for (int i = 0; i < EACH; ++i)
#pragma unroll
                    for (int j = 0; j < EACH; ++j) sum[i][j] += of_a[i] * of_b[j];
            }
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i)
#pragma unroll
            for (int j = 0; j < EACH; ++j)
                if (is_uncertain(i, j)) store(row + down + 16 * i, column + across + 16 * j, sum[i][j]);
    }
};
