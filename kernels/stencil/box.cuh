// Plain sums of a span, tile by tile: what comes into a window and goes out of it, added up by all threads of a block.
#pragma once

#include "stencil/terms.cuh"

constexpr int SPARE = 1;  // elements may become 2^SPARE times as large before grids are chosen anew

// Outputs of a row that follow one another: `x` and `out` are what they are computed from and where they go.
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

// Results of a warp's part of a tile from shared memory, as many as there are outputs left.
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

// What is added to a window's sum from the first output of a tile to each of a thread; false if an element does not
// fit. Where there may be elements that are not finite (MARKED), they count as zeros. `before` is what threads of the
// warp before this one add, `parts` gets what each warp adds.
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

// Windows with elements that are not finite get what they sum to. `start` has those of the tile's first window, `next`
// gets those of the next tile's, both in shared memory. Returns whether one came in.
template <int WARPS, int COUNT, typename T>
__device__ bool put_marks(const T* entering, const T* leaving, const Marks& start, Marks& next, double* results) {
    __shared__ Marks parts[WARPS];
    Marks sums[COUNT], run{}, in{};
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
        const Marks mark = mark_of(entering[j]);
        in = in + mark, run = run + mark;
        sums[j] = run;
        run = run - mark_of(leaving[j]);
    }
    Marks before = sum_before(run, parts);
    const bool any = __syncthreads_or(in.counts != 0);
    before = before + start + sum_of_warps_before<WARPS * 32>(parts);
    if (threadIdx.x == WARPS * 32 - 1) next = before + run;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
        const Marks sum = before + sums[j];
        if (sum.counts) results[j] = sum.value();
    }
    return any;
}

// Sums of the windows of a span; false if one does not fit (integers). Where a tile does not fit into `terms`, `leave`
// gets its first output, and says with which to go on. Whether it has been `chosen` what they are added up in is tried
// before anybody looks at the elements. In the ring is what the windows of a tile and the next one have; where `ring`
// elements are too few for that, what leaves them comes once more, through a ring of its own.
template <int BLOCK, int COUNT, int AHEAD, typename Terms, typename T, typename Out, typename Leave>
__device__ bool slide(const Span<T, Out>& span, i64 radius, int ring, Terms terms, bool chosen, Leave leave) {
    using Part = typename Terms::Part;
    using Whole = typename Terms::Whole;
    constexpr int TILE = BLOCK * COUNT, WARPS = BLOCK / 32;
    static_assert(COUNT % 2 == 1, "an odd stride keeps lanes on different banks of shared memory");
    __shared__ Part parts[WARPS];
    // All elements of a tile's first window but the one that comes in last; and of the next tile's.
    __shared__ Whole windows[2];
    __shared__ Marks marks[2];
    int turn = 0;
    Out* const ordered = dynamic_shared<Out>();
    Ring<T, COUNT, BLOCK> in{reinterpret_cast<T*>(ordered + TILE), ring};
    Ring<T, COUNT, BLOCK> gone{in.elements + ring + in.EXTRA, ring};
    const bool together = 2 * radius + (1 + AHEAD) * TILE + 2 * in.PER_PACK <= ring;
    [[maybe_unused]] const bool counted = 2 * radius + 1 < i64(1) << Marks::BITS;  // as many marks as there may be
    const i64 last = span.count + 2 * radius;
    const int own = threadIdx.x * COUNT;

    bool all_hold = true;
    int tile = 0;
    while (tile < span.count) {  // once, but for floats that do not fit into what they are added up in
        int leaves = in.start(span.x, tile), enters = leaves + int(2 * radius);
        if (together) {
            in.fetch_packs(span.x, (enters + TILE + in.PER_PACK - 1) / in.PER_PACK * in.PER_PACK, last);
        } else {
            leaves = gone.start(span.x, tile), enters = in.start(span.x, tile + 2 * radius);
            in.fetch_packs(span.x, TILE + in.PER_PACK, last);
            gone.fetch_packs(span.x, TILE + in.PER_PACK, last);
        }
        wait_for_fetched();
        __syncthreads();
        // `apply` to the first elements.
        const auto for_each = [&](i64 elements, auto apply) {
            if (!together) return span.x.template for_each<BLOCK>(tile, elements, apply);
#pragma unroll 4
            for (int k = threadIdx.x; k < int(elements); k += BLOCK) apply(in.elements[leaves + k]);
        };
        i64 marked = tile;  // the first output from which on all elements may be taken for finite
        if constexpr (Terms::ADAPTS) {
            if (!chosen) {
                int low, high;
                const bool finite = places<T>(for_each, 2 * radius + min(span.count - tile, TILE), low, high);
                if (!terms.choose(low, high, SPARE, radius, 2 * radius + 1, TILE) || !(finite || counted)) {
                    tile = leave(tile);
                    continue;
                }
            }
            chosen = false;  // if it is tried again
        }
        Whole first{};
        [[maybe_unused]] bool fit = true;
        [[maybe_unused]] Marks first_marks{};
        for_each(2 * radius, [&](T x) {
            if constexpr (Terms::ADAPTS) {
                fit = fit & terms.fits(finite_part<true>(x));
                first_marks = first_marks + mark_of(x);
            }
            first = first + terms.term(finite_part<Terms::ADAPTS>(x));
        });
        first = sum_of_all<BLOCK>(first);
        if (threadIdx.x == BLOCK - 1) windows[turn] = first;
        if constexpr (Terms::ADAPTS) {
            if (!__syncthreads_and(fit & (counted | !first_marks.counts))) continue;
            if (__syncthreads_or(first_marks.counts != 0)) {
                first_marks = sum_of_all<BLOCK>(first_marks);
                if (threadIdx.x == BLOCK - 1) marks[turn] = first_marks;
                marked += 2 * radius;
            }
        }
        const auto fetch_tile = [&](int at) {
            if (span.count - tile > at) {
                in.template fetch_tile<TILE>(span.x, last);
                if (!together) gone.template fetch_tile<TILE>(span.x, last);
            }
            end_batch();
        };
#pragma unroll
        for (int k = 1; k < AHEAD; ++k) fetch_tile(k * TILE);
        for (; tile < span.count; tile += TILE) {
            wait_for_fetched<AHEAD - 1>();
            __syncthreads();
            fetch_tile(AHEAD * TILE);
            Part sums[COUNT], before;
            const T* const entering = in.elements + in.after(enters, own);
            const T* const leaving = (together ? in.elements : gone.elements) + in.after(leaves, own);
            enters = in.after(enters, TILE), leaves = in.after(leaves, TILE);
            bool with_marks = tile < marked;
            if constexpr (Terms::ADAPTS) {
                while (true) {
                    fit = with_marks ? add_up<true>(terms, entering, leaving, sums, before, parts)
                                     : add_up<false>(terms, entering, leaving, sums, before, parts);
                    fit = __syncthreads_and(fit);
                    if (fit || with_marks || !counted) break;
                    if (threadIdx.x == BLOCK - 1) marks[turn] = {};
                    with_marks = true;
                }
                if (!fit) break;
            } else {
                add_up<false>(terms, entering, leaving, sums, before, parts);
                __syncthreads();
            }

            Whole start = windows[turn] + sum_of_warps_before<BLOCK>(parts);
            turn ^= 1;
            if (threadIdx.x == BLOCK - 1) windows[turn] = start + parts[WARPS - 1];
            start = start + before;
            const int count = span.count - tile;
#pragma unroll
            for (int j = 0; j < COUNT; ++j) {
                const Whole sum = start + sums[j];
                ordered[own + j] = terms.result(sum);
                all_hold = all_hold & (own + j >= count | terms.holds(sum));
            }
            if constexpr (Terms::ADAPTS)
                if (with_marks) {
                    auto &here = marks[turn ^ 1], &next = marks[turn];
                    const bool any = put_marks<WARPS, COUNT>(entering, leaving, here, next, ordered + own);
                    if (any) marked = tile + TILE + 2 * radius;
                }
            store<COUNT>(span.out + tile, ordered, count);
        }
        wait_for_fetched();  // what is on its way has to be there before anything else comes to its place
        __syncthreads();
    }
    return all_hold;
}
