// Plain sums of windows of any width, tile by tile in the order of the memory: each tile starts from what all before it
// have added up. What leaves the windows comes a second time, from the L2 cache as long as windows are no wider.
#pragma once

#include "sliding_tile.cuh"

// Words that other blocks read while they are written: whole, but in any order.
inline __device__ void put_word(u64* to, u64 word) {
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
#else
    atomicExch(to, word);
#endif
}
inline __device__ u64 get_word(u64* from) {
#if defined(__CUDA_ARCH__)
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
#else
    return atomicAdd(from, u64(0));
#endif
}

// What a tile adds, or what all up to it add: each 32 bits of it in a word that says which of both it is, so that no
// word has to come before another one. Words of tiles that follow one another are next to each other.
constexpr u64 OWN = 1, ALL = 2;
template <typename S> union Parts {
    static constexpr int COUNT = sizeof(S) / 4;
    S sum;
    u32 part[COUNT];
    __device__ Parts() {}
};
template <typename S> __device__ void publish(u64* words, i64 tiles, i64 tile, S sum, u64 what) {
    Parts<S> parts;
    parts.sum = sum;
#pragma unroll
    for (int k = 0; k < Parts<S>::COUNT; ++k)
        if (threadIdx.x % 32 == k) put_word(words + k * tiles + tile, what << 32 | parts.part[k]);
}
template <typename S> __device__ u64 await(u64* words, i64 tiles, i64 tile, S& sum) {
    Parts<S> parts;
    while (true) {
        const u64 word = get_word(words + tile);
        u64 what = word >> 32;
        parts.part[0] = u32(word);
#pragma unroll
        for (int k = 1; k < Parts<S>::COUNT; ++k) {
            const u64 word = get_word(words + k * tiles + tile);
            if (word >> 32 != what) what = 0;
            parts.part[k] = u32(word);
        }
        sum = parts.sum;
        if (what) return what;
    }
}

// What all tiles of a row before this one add, of which the first is `first`; by the lanes of a warp, which publish
// what this tile adds.
template <typename S> __device__ S sum_of_tiles(u64* words, i64 tiles, i64 first, i64 tile, S own) {
    if (tile > first) publish(words, tiles, tile, own, OWN);
    S sum{};
    for (i64 last = tile - 1; last >= first; last -= 32) {
        const i64 other = last - threadIdx.x % 32;
        S value{};
        const u64 what = other >= first ? await(words, tiles, other, value) : ALL;
        const u32 ends = __ballot_sync(~0u, what == ALL);
        if (ends && int(threadIdx.x % 32) >= __ffs(int(ends))) value = S{};
#pragma unroll
        for (int k = 16; k > 0; k /= 2) value = value + lane_across(value, k);
        sum = sum + value;
        if (ends) break;
    }
    publish(words, tiles, tile, sum + own, ALL);
    return sum;
}

// Of floats also how many elements of the windows are not finite, and how many do not fit into the grid.
template <typename S> struct Counted {
    S sum;
    Marks marks;
    u64 others;
};
template <typename S> __device__ Counted<S> operator+(Counted<S> a, Counted<S> b) {
    return {a.sum + b.sum, a.marks + b.marks, a.others + b.others};
}
template <typename S> __device__ Counted<S> operator-(Counted<S> a, Counted<S> b) {
    return {a.sum - b.sum, a.marks - b.marks, a.others - b.others};
}
template <typename S> __device__ Counted<S> lane_before(Counted<S> a, int lanes) {
    return {lane_before(a.sum, lanes), lane_before(a.marks, lanes), lane_before(a.others, lanes)};
}
template <typename S> __device__ Counted<S> lane_across(Counted<S> a, int lanes) {
    return {lane_across(a.sum, lanes), lane_across(a.marks, lanes), lane_across(a.others, lanes)};
}

// What a tile of a chain starts from, and how an element counts in it.
template <typename Terms, typename T, bool ADAPTS = Terms::ADAPTS> struct Link {
    using State = typename Terms::Whole;
    static __device__ State of(const typename Terms::Part& sum) { return State{} + sum; }
    static __device__ State sum(const State& state) { return state; }
    static __device__ bool plain(const State&) { return true; }
};
template <typename Terms, typename T> struct Link<Terms, T, true> {
    using State = Counted<typename Terms::Whole>;
    static __device__ State of(const typename Terms::Part& sum) { return {sum, {0}, 0}; }
    static __device__ typename Terms::Whole sum(const State& state) { return state.sum; }
    static __device__ bool plain(const State& state) { return !state.marks.counts && !state.others; }
    // `marks`: windows are narrow enough to count what is not finite.
    static __device__ State count(const Terms& terms, T x, bool marks) {
        const bool finite = is_finite(x), fits = finite && terms.fits(x);
        return {terms.term(fits ? x : T{}), finite || !marks ? Marks{0} : mark_of(x), u64(finite || !marks) & u64(!fits)};
    }
};

// Sums of windows from `first_output` on; words[0] counts the tiles that have been taken, words[1] and [2] say which
// places elements have, as far as somebody has looked. Returns false if a sum does not fit (integers). Outputs of which
// windows have elements that do not fit (floats) are handed to `leave`.
template <int BLOCK, int COUNT, typename Terms, typename T, typename Out, typename Leave>
__device__ bool chain(const Row<T>& rows, Out* out, u64* words, i64 outputs, i64 radius, i64 tiles, i64 all,
                      const Terms& terms, Leave leave) {
    using Part = typename Terms::Part;
    using Whole = typename Terms::Whole;
    using Links = Link<Terms, T>;
    using State = typename Links::State;
    constexpr int TILE = BLOCK * COUNT, WARPS = BLOCK / 32;
    constexpr int RUN = (TILE * sizeof(T) + 15) / 16 * 16 / sizeof(T) + 16 / sizeof(T);
    static_assert(COUNT % 2 == 1, "an odd stride keeps lanes on different banks of shared memory");
    __shared__ i64 taken[2];
    __shared__ Part parts[WARPS];
    __shared__ State start_of_tile, counted[WARPS];
    Out* const ordered = dynamic_shared<Out>();
    T *here = reinterpret_cast<T*>(ordered + TILE), *other = here + 2 * RUN;  // what leaves, and what comes in
    const int warp = threadIdx.x / 32, own = threadIdx.x * COUNT;
    const bool marks = 2 * radius + 1 < i64(1) << Marks::BITS;
    const i64 last = outputs + 2 * radius;

    const auto row_of = [&](i64 tile) {
        return Row<T>{rows.x + tile / tiles * rows.length, rows.length, rows.start, rows.outside};
    };
    const auto first_of = [&](i64 tile) { return tile % tiles * TILE - 2 * radius; };  // output
    int leaves = 0, enters = 0, next_leaves = 0, next_enters = 0;
    const auto fetch_tile = [&](T* to, i64 tile) {
        const Row<T> row = row_of(tile);
        const i64 first = first_of(tile);
        next_leaves = fetch_run<BLOCK, TILE>(to, row, first, last);
        next_enters = fetch_run<BLOCK, TILE>(to + RUN, row, first + 2 * radius, last);
    };

    if (threadIdx.x == 0) taken[0] = i64(atomicAdd(words, u64(1))), taken[1] = i64(atomicAdd(words, u64(1)));
    __syncthreads();
    i64 tile = taken[0], next = taken[1];
    if (tile < all) fetch_tile(here, tile);
    bool all_hold = true;
    while (tile < all) {
        leaves = next_leaves, enters = next_enters;
        wait_for_fetched();
        __syncthreads();
        if (next < all) fetch_tile(other, next);
        const T *const leaving = here + leaves + own, *const entering = here + RUN + enters + own;
        Part sums[COUNT], before;
        bool plain = add_up<false>(terms, entering, leaving, sums, before, parts);
        if constexpr (Terms::ADAPTS) {
#pragma unroll
            for (int j = 0; j < COUNT; ++j) plain = plain & terms.fits(leaving[j]);
            plain = __syncthreads_and(plain);
        } else {
            __syncthreads();
            plain = true;
        }
        State counted_before = Links::of(before);
        if constexpr (Terms::ADAPTS)
            if (!plain) {
                State run{};
#pragma unroll 1
                for (int j = 0; j < COUNT; ++j)
                    run = run + Links::count(terms, entering[j], marks) - Links::count(terms, leaving[j], marks);
                counted_before = sum_before(run, counted);
                __syncthreads();
            }
        const auto part_of = [&](int k) { return plain ? Links::of(parts[k]) : counted[k]; };
        if (warp == 0) {
            State sum{};
#pragma unroll
            for (int k = 0; k < WARPS; ++k) sum = sum + part_of(k);
            sum = sum_of_tiles(words + 3, all, tile - tile % tiles, tile, sum);
            if (threadIdx.x == 0) start_of_tile = sum;
        } else if (threadIdx.x == 32) {
            taken[0] = i64(atomicAdd(words, u64(1)));
        }
        __syncthreads();
        State start = start_of_tile;
        const i64 first = first_of(tile);
        if (plain && Links::plain(start)) {
            Whole sum = Links::sum(start) + before;
#pragma unroll
            for (int k = 0; k < WARPS - 1; ++k)
                if (k < warp) sum = sum + parts[k];
#pragma unroll
            for (int j = 0; j < COUNT; ++j) {
                if constexpr (Terms::ADAPTS) sums[j] = terms.term(entering[j]);
                const Whole of_window = sum + sums[j];
                if constexpr (Terms::ADAPTS) sum = of_window - terms.term(leaving[j]);
                ordered[own + j] = terms.result(of_window);
                all_hold = all_hold & (u64(first + own + j) >= u64(outputs) | terms.holds(of_window));
            }
        } else if constexpr (Terms::ADAPTS) {
            for (int k = 0; k < warp; ++k) start = start + part_of(k);
            start = start + counted_before;
            bool some = false;
#pragma unroll 1
            for (int j = 0; j < COUNT; ++j) {
                start = start + Links::count(terms, entering[j], marks);
                ordered[own + j] = start.marks.counts ? start.marks.value() : terms.result(start.sum);
                some = some | (start.others && u64(first + own + j) < u64(outputs));
                start = start - Links::count(terms, leaving[j], marks);
            }
            if (__syncthreads_or(some) && threadIdx.x == 0)
                leave(tile / tiles, max(first, i64(0)), min(first + TILE, outputs));
        }
        __syncthreads();
        Out* const to = out + tile / tiles * outputs;
        const i64 count = min(outputs - first, i64(TILE));
        if (first >= 0) store<BLOCK, TILE>(to + first, ordered, int(count));
        else if (first + count > 0) store<BLOCK, TILE>(to, ordered - first, int(first + count));
        tile = next, next = taken[0];
        T* const swapped = here;
        here = other, other = swapped;
    }
    return all_hold;
}
