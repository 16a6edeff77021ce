// What is done to a tile: sums of what enters and leaves the windows of a span, marks of elements that are not finite,
// storing.
#pragma once

#include "stencil/terms.cuh"

// Consecutive outputs of a row: `x` is the row shifted to the first of them, `out` where they are stored.
template <typename T, typename Out> struct Span {
    Row<T> x;
    Out* out;
    int count;
    __device__ Span(Row<T> row, Out* out, i64 outputs, i64 at, i64 first, i64 count)
        : x(row), out(out), count(int(count)) {
        x.x += at * x.length;
        x.start += first;
        this->out += at * outputs + first;
    }
};

// Stores a warp's part of a tile from shared memory, `left` outputs at most.
template <int COUNT, typename Out> __device__ void store(Out* out, const Out* from, int left) {
    constexpr int PART = 32 * COUNT;
    const int lane = threadIdx.x % 32, first = int(threadIdx.x) / 32 * PART;
    out += first, from += first, left -= first;
    __syncwarp();
    if (left >= PART && reinterpret_cast<u64>(out) % 16 == 0) {
        auto* const to = reinterpret_cast<uint4*>(out) + lane;
        const auto* const packs = reinterpret_cast<const uint4*>(from) + lane;
#pragma unroll
        for (int k = 0; k < PART / 2; k += 32)
            if (k + 32 <= PART / 2 || lane < PART / 2 - k) __stcs(to + k, packs[k]);
    } else {
#pragma unroll 1
        for (int k = lane; k < min(left, PART); k += 32) out[k] = from[k];
    }
}

// The window of an output is the tile's first window without its last element, plus `before`, which is the change over
// earlier threads of the warp, plus the output's own `sums`; `parts` gets the total of each warp. Returns false if an
// element does not fit into `terms`. Elements that are not finite count as zeros where there may be some (MARKED).
template <bool MARKED, typename Terms, typename T, int COUNT>
__device__ bool add_up(const Terms& terms, const T* entering, const T* leaving, typename Terms::Part (&sums)[COUNT],
                       typename Terms::Part& before, typename Terms::Part* parts) {
    bool fits = true;
    typename Terms::Part run{};
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
        const T x = finite_part<MARKED>(entering[j]);
        if constexpr (Terms::ADAPTS) fits = fits & terms.fits(x);
        run = run + terms.term(x);
        sums[j] = run;
        run = run - terms.term(finite_part<MARKED>(leaving[j]));
    }
    before = sum_before(run, parts);
    return fits;
}

// Replaces the results of windows that have NaN or infinities. `start` has the marks of the tile's first window, `next`
// gets those of the next tile's; both are in shared memory. Returns whether a marked element entered.
template <int WARPS, int COUNT, typename Mark, typename T>
__device__ bool put_marks(const T* entering, const T* leaving, const Mark& start, Mark& next, double* results) {
    __shared__ Mark parts[WARPS];
    Mark sums[COUNT], run{}, in{};
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
        const Mark mark = mark_of<Mark>(entering[j]);
        in = in + mark, run = run + mark;
        sums[j] = run;
        run = run - mark_of<Mark>(leaving[j]);
    }
    Mark before = sum_before(run, parts);
    const bool any = __syncthreads_or(in.any());
    before = before + start + sum_of_warps_before<WARPS * 32>(parts);
    if (threadIdx.x == WARPS * 32 - 1) next = before + run;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
        const Mark sum = before + sums[j];
        if (sum.any()) results[j] = sum.value();
    }
    return any;
}
