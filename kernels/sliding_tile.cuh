// Plain sums of a span, tile by tile: what comes into a window and goes out of it, added up by all threads of a block.
#pragma once

#include "sliding_terms.cuh"

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

// Whether a window has no element that is not finite, and so keeps the sum that it has.
template <typename Part> constexpr bool SPARSE = false;
template <> constexpr bool SPARSE<Marks> = true;
template <typename Part, typename Out> __device__ bool is_no_mark(Out) { return false; }
template <> inline __device__ bool is_no_mark<Marks>(double mark) { return __double_as_longlong(mark) == NO_MARK; }

// Results of a tile from shared memory, as many as there are outputs left.
template <int BLOCK, typename Part, int TILE, typename Out>
__device__ void store(Out* out, const Out* from, int count) {
    if (count >= TILE && !SPARSE<Part> && reinterpret_cast<u64>(out) % 16 == 0) {
        auto* const to = reinterpret_cast<uint4*>(out) + threadIdx.x;
        const auto* const packs = reinterpret_cast<const uint4*>(from) + threadIdx.x;
#pragma unroll
        for (int k = 0; k < TILE / 2; k += BLOCK)
            if (k + BLOCK <= TILE / 2 || int(threadIdx.x) < TILE / 2 - k) __stcs(to + k, packs[k]);
    } else {
#pragma unroll 1
        for (int k = threadIdx.x; k < min(count, TILE); k += BLOCK)
            if (!is_no_mark<Part>(from[k])) out[k] = from[k];
    }
}

// What is added to a window's sum from the first output of a tile to each of a thread; false if an element does not
// fit. `before` is what threads of the warp before this one add, `parts` gets what each warp adds.
template <typename Terms, typename T, int COUNT>
__device__ bool add_up(const Terms& terms, const T* entering, const T* leaving, typename Terms::Part (&sums)[COUNT],
                       typename Terms::Part& before, typename Terms::Part* parts) {
    bool fits = true;
    typename Terms::Part run{};
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
        const T x = entering[j];
        fits = fits & terms.fits(x);
        run = run + terms.term(x);
        sums[j] = run;
        run = run - terms.term(leaving[j]);
    }
    before = sum_before(run, parts);
    return fits;
}

// Sums of the windows of a span; false if one does not fit (integers). Where a tile does not fit into `terms`, `leave`
// gets its first output, and says with which to go on. In the ring is what the windows of a tile and the next one
// have; where `ring` elements are too few for that, what leaves them comes once more, through a ring of its own.
template <int BLOCK, int COUNT, typename Terms, typename T, typename Out, typename Leave>
__device__ bool slide(const Span<T, Out>& span, i64 radius, int ring, Terms terms, Leave leave) {
    using Part = typename Terms::Part;
    using Whole = typename Terms::Whole;
    constexpr int TILE = BLOCK * COUNT, WARPS = BLOCK / 32;
    static_assert(COUNT % 2 == 1, "an odd stride keeps lanes on different banks of shared memory");
    __shared__ Part parts[WARPS];
    // All elements of a tile's first window but the one that comes in last; and of the next tile's.
    __shared__ Whole windows[2];
    int turn = 0;
    Out* const ordered = dynamic_shared<Out>();
    Ring<T, COUNT, BLOCK> in{reinterpret_cast<T*>(ordered + TILE), ring};
    Ring<T, COUNT, BLOCK> gone{in.elements + ring + in.EXTRA, ring};
    const bool together = 2 * radius + 2 * TILE + 2 * in.PER_PACK <= ring;
    const i64 last = span.count + 2 * radius;

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
        // `apply` to the elements of the first windows.
        const auto for_each = [&](i64 elements, auto apply) {
            if (!together) return span.x.template for_each<BLOCK>(tile, elements, apply);
#pragma unroll 4
            for (int k = threadIdx.x; k < int(elements); k += BLOCK) apply(in.elements[leaves + k]);
        };
        if (!terms.open(for_each, radius, min(span.count - tile, TILE), TILE)) {
            tile = leave(tile);
            continue;
        }
        Whole first{};
        for_each(2 * radius, [&](T x) { first = first + terms.term(x); });
        first = sum_of_all<BLOCK>(first);
        if (threadIdx.x == BLOCK - 1) windows[turn] = first;
        for (; tile < span.count; tile += TILE) {
            wait_for_fetched();
            __syncthreads();
            if (span.count - tile > TILE) {
                in.template fetch_tile<TILE>(span.x, last);
                if (!together) gone.template fetch_tile<TILE>(span.x, last);
            }
            const int own = threadIdx.x * COUNT;
            Part sums[COUNT], before;
            const T* const leaving = together ? in.elements : gone.elements;
            const bool fits = add_up(terms, in.elements + in.after(enters, own), leaving + in.after(leaves, own), sums,
                                     before, parts);
            enters = in.after(enters, TILE), leaves = in.after(leaves, TILE);
            if constexpr (Terms::ADAPTS) {
                if (!__syncthreads_and(fits)) break;
            } else {
                __syncthreads();
            }

            Whole start = windows[turn];
#pragma unroll
            for (int k = 0; k < WARPS - 1; ++k)
                if (k < int(threadIdx.x) / 32) start = start + parts[k];
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
            __syncthreads();
            store<BLOCK, Part, TILE>(span.out + tile, ordered, count);
        }
        wait_for_fetched();  // what is on its way has to be there before anything else comes to its place
        __syncthreads();
    }
    return all_hold;
}
