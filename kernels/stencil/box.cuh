// Plain sums of a span, tile by tile: a prefix sum over the elements that enter and leave the window, by all threads of
// a block.
#pragma once

#include "stencil/layers.cuh"
#include "stencil/tile.cuh"

#if ON_GPU
#define OUT_OF_LINE __noinline__
#else
#define OUT_OF_LINE
#endif

constexpr int SPARE = 1;  // elements may grow by 2^SPARE before new grids have to be chosen

// Layers below the first one, and the sums in them of the tile's first window without its last element, and of the next
// tile's: those that a span needed go with it from tile to tile.
struct Kept {
    static constexpr int MOST = 16;  // further ones are made anew
    int places[MOST];
    Cuts starts[2][MOST];
};

// Adds layers to the sums of a thread, those marked in `open`, until they round to their results. So many layers `made`
// are kept; returns how many are then. `for_each` applies a function to that many elements from the tile's first window
// on; `count` outputs are wanted. Not inlined: its registers would be spilled where it is not called.
template <int BLOCK, int COUNT, typename T, typename ForEach>
__device__ OUT_OF_LINE int refine(Rounding (&roundings)[COUNT], u32 open, const Layers<T> first, Kept& kept, int made,
                                  int turn, const ForEach for_each, i64 before, int count, const T* entering,
                                  const T* leaving, double* results) {
    constexpr int WARPS = BLOCK / 32;
    __shared__ Cuts parts[WARPS];
    __shared__ int highest;
    Remainder<T> left(first);
    for (int k = 0; true; ++k) {
        const bool any = __syncthreads_or(open != 0);
        if (!any && k >= made) return made;
        bool fits = k < made;
        int place = 0;
        if (fits) {
#pragma unroll
            for (int j = 0; j < COUNT; ++j)
                if (int(threadIdx.x) * COUNT + j < count) place = max(place, left.place(entering[j]));
            fits = __syncthreads_and(place <= kept.places[k]);
            if (!fits) made = k;
        }
        if (fits) {
            place = kept.places[k];
        } else {
            if (!any) return made;
            if (threadIdx.x == 0) highest = 0;
            place = 0;
            for_each(before + count, [&](T x) { place = max(place, left.place(x)); });
#pragma unroll
            for (int i = 16; i > 0; i /= 2) place = max(place, lane_across(place, i));
            __syncthreads();
            if (threadIdx.x % 32 == 0) atomicMax(&highest, place);
            __syncthreads();
            place = highest;
            if (k < Kept::MOST) {
                if (threadIdx.x == 0) kept.places[k] = place;
                made = k + 1;
            }
        }
        if (place == 0) {
#pragma unroll 1
            for (int j = 0; j < COUNT; ++j)
                if (open >> j & 1) results[j] = roundings[j].all(left.cutter.up());
            return made;
        }
        left.choose(place);
        Cuts start{};
        if (fits) {
            start = kept.starts[turn][k];
        } else {
            for_each(before, [&](T x) { start = start + left.term(x); });
            start = sum_of_all<BLOCK>(start);
        }
        Cuts sums[COUNT], change;
        add_up<false>(left, entering, leaving, sums, change, parts);
        __syncthreads();
        start = start + sum_of_warps_before<BLOCK>(parts);
        if (threadIdx.x == BLOCK - 1 && k < Kept::MOST) kept.starts[turn ^ 1][k] = start + parts[WARPS - 1];
        start = start + change;
#pragma unroll 1
        for (int j = 0; j < COUNT; ++j)
            if (open >> j & 1 && roundings[j].add(left, start + sums[j], results[j])) open &= ~(1u << j);
        left.descend();
    }
}

// Sums of the windows of a span; false if an integer sum overflows. A tile that does not fit into `terms` is passed to
// `defer` by its first output, which returns the output to go on with. Where the grids of `terms` are `chosen`, they
// are tried before the elements are scanned. The ring holds the windows of a tile and of the next one; where `ring`
// elements are too few for that, elements that leave the window are loaded a second time, through a ring of their own.
template <int BLOCK, int COUNT, int AHEAD, typename Terms, typename T, typename Out, typename Defer>
__device__ bool slide(const Span<T, Out>& span, i64 radius, int ring, Terms terms, bool chosen, Defer defer) {
    using Part = typename Terms::Part;
    using Whole = typename Terms::Whole;
    constexpr int TILE = BLOCK * COUNT, WARPS = BLOCK / 32;
    static_assert(COUNT % 2 == 1, "an odd stride keeps lanes on different banks of shared memory");
    __shared__ Part parts[WARPS];
    // Sum of a tile's first window without its last element, and of the next tile's; likewise their marks.
    __shared__ Whole windows[2];
    __shared__ typename Terms::Mark marks[2];
    int turn = 0;
    Out* const ordered = dynamic_shared<Out>();
    Ring<T, COUNT, BLOCK> in{reinterpret_cast<T*>(ordered + TILE), ring};
    Ring<T, COUNT, BLOCK> gone{in.elements + ring + in.EXTRA, ring};
    const bool together = 2 * radius + (1 + AHEAD) * TILE + 2 * in.PER_PACK <= ring;
    // Marks cannot overflow.
    [[maybe_unused]] const bool counted = Terms::LAYERED || 2 * radius + 1 < i64(1) << Marks::BITS;
    [[maybe_unused]] int made;
    const i64 last = span.count + 2 * radius;
    const int own = threadIdx.x * COUNT;

    bool all_hold = true;
    int tile = 0;
    while (tile < span.count) {  // once, except for floats that do not fit into `terms`
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
        // Applies `apply` to that many elements from the tile's first window on.
        const auto for_each = [&](i64 elements, auto apply) {
            if (!together) return span.x.template for_each<BLOCK>(tile, elements, apply);
#pragma unroll 4
            for (int k = threadIdx.x; k < int(elements); k += BLOCK) apply(in.elements[leaves + k]);
        };
        made = 0;
        i64 marked = tile;  // from this output on all elements are known, or assumed, to be finite
        if constexpr (Terms::ADAPTS) {
            if (!chosen) {
                int low, high;
                const bool finite = places<T>(for_each, 2 * radius + min(span.count - tile, TILE), low, high);
                if (!terms.choose(low, high, SPARE, radius, 2 * radius + 1, TILE) || !(finite || counted)) {
                    tile = defer(tile);
                    continue;
                }
            }
            chosen = false;  // a second attempt scans the elements
        }
        Whole first{};
        [[maybe_unused]] bool fit = true;
        [[maybe_unused]] typename Terms::Mark first_marks{};
        for_each(2 * radius, [&](T x) {
            if constexpr (Terms::ADAPTS) {
                fit = fit & terms.fits(finite_part<true>(x));
                first_marks = first_marks + mark_of<typename Terms::Mark>(x);
            }
            first = first + terms.term(finite_part<Terms::ADAPTS>(x));
        });
        first = sum_of_all<BLOCK>(first);
        if (threadIdx.x == BLOCK - 1) windows[turn] = first;
        if constexpr (Terms::ADAPTS) {
            if (!__syncthreads_and(fit & (counted | !first_marks.any()))) continue;
            if (__syncthreads_or(first_marks.any())) {
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
            [[maybe_unused]] const int here = leaves;
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
            if constexpr (Terms::LAYERED) {
                u32 open = 0;
                Rounding roundings[COUNT];
                const double most = terms.most(), up = terms.cutter.up();
#pragma unroll
                for (int j = 0; j < COUNT; ++j) {
                    Rounding rounding = Rounding::of(start + sums[j]);
                    if (rounding.settled(most, up, ordered[own + j]) || own + j >= count) continue;
                    roundings[j] = rounding, open |= 1u << j;
                }
                __shared__ Kept kept;
                const auto from_here = [=](i64 elements, auto apply) {
                    if (!together) return span.x.template for_each<BLOCK>(tile, elements, apply);
#pragma unroll 4
                    for (int k = threadIdx.x; k < int(elements); k += BLOCK) apply(in.elements[in.after(here, k)]);
                };
                if (__syncthreads_or(open != 0 || made > 0))
                    made = refine<BLOCK>(roundings, open, terms, kept, made, turn ^ 1, from_here, 2 * radius,
                                         min(count, TILE), entering, leaving, ordered + own);
            } else {
#pragma unroll
                for (int j = 0; j < COUNT; ++j) {
                    const Whole sum = start + sums[j];
                    ordered[own + j] = terms.result(sum);
                    all_hold = all_hold & (own + j >= count | terms.holds(sum));
                }
            }
            if constexpr (Terms::ADAPTS)
                if (with_marks) {
                    auto &now = marks[turn ^ 1], &next = marks[turn];
                    const bool any = put_marks<WARPS, COUNT>(entering, leaving, now, next, ordered + own);
                    if (any) marked = tile + TILE + 2 * radius;
                }
            store<COUNT>(span.out + tile, ordered, count);
        }
        wait_for_fetched();  // loads in flight have to land before their place is reused
        __syncthreads();
    }
    return all_hold;
}
