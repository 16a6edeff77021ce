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

// What a tile adds, or what all up to it add: each 32 bits of it in a word that says which of both it is, so that no
// word has to come before another one. Words of tiles that follow one another are next to each other. Where only the
// first FEW are not zero (see Few), the others are not there.
constexpr u64 OWN = 1, ALL = 2, MORE = 4;
template <typename S> struct Few {
    static constexpr int COUNT = sizeof(S) / 4;
    static __device__ bool enough(const S&) { return true; }
};
template <typename S> struct Few<Counted<S>> {
    static constexpr int COUNT = sizeof(S) / 4;
    static __device__ bool enough(const Counted<S>& a) { return !a.marks.counts && !a.others; }
};
template <typename S> union Parts {
    static constexpr int COUNT = sizeof(S) / 4;
    S sum;
    u32 part[COUNT];
    __device__ Parts() : sum{} {}
};
template <typename S> __device__ void publish(u64* words, int tiles, int tile, S sum, u64 what) {
    Parts<S> parts;
    parts.sum = sum;
    const int count = Few<S>::enough(sum) ? Few<S>::COUNT : Parts<S>::COUNT;
    if (count > Few<S>::COUNT) what |= MORE;
#pragma unroll
    for (int k = 0; k < Parts<S>::COUNT; ++k)
        if (threadIdx.x % 32 == k && k < count) put_word(words + i64(k) * tiles + tile, what << 32 | parts.part[k]);
}
template <typename S> __device__ u64 await(u64* words, int tiles, int tile, S& sum) {
    constexpr int FEW = Few<S>::COUNT, MOST = Parts<S>::COUNT;
    while (true) {
        Parts<S> parts;
        u64 word[MOST];
#pragma unroll
        for (int k = 0; k < FEW; ++k) word[k] = get_word(words + i64(k) * tiles + tile);
        const u64 what = word[0] >> 32;
        bool same = what != 0;
        if (FEW < MOST && (what & MORE)) {
#pragma unroll
            for (int k = FEW; k < MOST; ++k) {
                word[k] = get_word(words + i64(k) * tiles + tile);
                same = same & word[k] >> 32 == what;
                parts.part[k] = u32(word[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < FEW; ++k) {
            same = same & word[k] >> 32 == what;
            parts.part[k] = u32(word[k]);
        }
        sum = parts.sum;
        if (same) return what;
    }
}

// Sum over the lanes of a warp, in all of them.
template <typename S> __device__ S sum_of_warp(S value) {
#pragma unroll
    for (int k = 16; k > 0; k /= 2) value = value + lane_across(value, k);
    return value;
}

// What all tiles of a row before this one add, of which the first is `first`, for the lanes of the first warp; `own` is
// what this tile adds, in these lanes. It and the sum of both are published. Each thread waits for one of the tiles
// before, as many as are on their way.
template <int BLOCK, typename S> __device__ S sum_of_tiles(u64* words, int tiles, int first, int tile, S own) {
    constexpr int WARPS = BLOCK / 32;
    __shared__ S sums[WARPS];
    __shared__ int ended[WARPS];
    __shared__ int done;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int near = min(BLOCK, int(gridDim.x + 63) / 32 * 32);
    if (warp == 0 && tile > first) publish(words, tiles, tile, own, OWN);
    S sum{};
    for (int last = tile - 1; last >= first; last -= near) {
        if (int(threadIdx.x) < near) {
            const int other = last - int(threadIdx.x);
            S value{};
            const u64 what = other >= first ? await(words, tiles, other, value) : ALL;
            const u32 ends = __ballot_sync(~0u, (what & ALL) != 0);
            if (ends && lane >= __ffs(int(ends))) value = S{};
            value = sum_of_warp(value);
            if (lane == 0) sums[warp] = value, ended[warp] = ends != 0;
        }
        __syncthreads();
        if (warp == 0) {
            const bool takes_part = lane < near / 32;
            const u32 ends = __ballot_sync(~0u, takes_part && ended[lane]);
            sum = sum + sum_of_warp(takes_part && (!ends || lane < __ffs(int(ends))) ? sums[lane] : S{});
            if (lane == 0) done = ends != 0;
        }
        __syncthreads();
        if (done) break;
    }
    if (warp == 0) publish(words, tiles, tile, sum + own, ALL);
    return sum;
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
__device__ bool chain(const Row<T>& rows, Out* out, u64* words, i64 outputs, i64 radius, int tiles, int all,
                      const Terms& terms, Leave leave) {
    using Part = typename Terms::Part;
    using Whole = typename Terms::Whole;
    using Links = Link<Terms, T>;
    using State = typename Links::State;
    constexpr int TILE = BLOCK * COUNT, WARPS = BLOCK / 32;
    constexpr int RUN = (TILE * sizeof(T) + 15) / 16 * 16 / sizeof(T) + 16 / sizeof(T);
    constexpr bool AGAIN = sizeof(Part) > 8;  // sums are made again, where there are not the registers to keep them
    static_assert(COUNT % 2 == 1, "an odd stride keeps lanes on different banks of shared memory");
    __shared__ int taken[2];
    __shared__ Part parts[WARPS];
    __shared__ State starts[WARPS], counted[WARPS];
    Out* const ordered = dynamic_shared<Out>();
    T *here = reinterpret_cast<T*>(ordered + TILE), *other = here + 2 * RUN;  // what leaves, and what comes in
    const int warp = threadIdx.x / 32, own = threadIdx.x * COUNT;
    const bool marks = 2 * radius + 1 < i64(1) << Marks::BITS;
    const i64 last = outputs + 2 * radius;

    struct Place {
        int row, tile;  // of the row
        int leaves, enters;
    };
    const auto fetch_tile = [&](T* to, int tile) {
        Place place{tile / tiles, tile % tiles, 0, 0};
        const Row<T> row{rows.x + i64(place.row) * rows.length, rows.length, rows.start, rows.outside};
        const i64 first = i64(place.tile) * TILE;
        place.leaves = fetch_run<BLOCK, TILE>(to, row, first - 2 * radius, last);
        place.enters = RUN + fetch_run<BLOCK, TILE>(to + RUN, row, first, last);
        return place;
    };

    if (threadIdx.x == 0) taken[0] = int(atomicAdd(words, u64(1)));
    __syncthreads();
    int tile = taken[0];
    Place place{}, next_place{};
    if (tile < all) next_place = fetch_tile(here, tile);
    // The second one when all blocks have their first one: of two that follow one another, taken by one block, all others
    // would wait for the second until it has done with the first, again and again.
    wait_for_fetched();
    __syncthreads();
    if (threadIdx.x == 0) taken[1] = int(atomicAdd(words, u64(1)));
    __syncthreads();
    int next = taken[1];
    bool all_hold = true;
    while (tile < all) {
        place = next_place;
        wait_for_fetched();
        __syncthreads();
        if (next < all) next_place = fetch_tile(other, next);
        const T *const leaving = here + place.leaves + own, *const entering = here + place.enters + own;
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
        State of_warp{}, all_before{};  // in a lane of the first warp what a warp adds, and those before it
        if (warp == 0) {
            const int lane = threadIdx.x;
            if (lane < WARPS) of_warp = plain ? Links::of(parts[lane]) : counted[lane];
            all_before = of_warp;
#pragma unroll
            for (int k = 1; k < WARPS; k *= 2) {
                const State others = lane_before(all_before, k);
                if (lane >= k) all_before = all_before + others;
            }
            all_before = all_before - of_warp;
            of_warp = sum_of_warp(of_warp);
        } else if (threadIdx.x == 32) {
            taken[0] = int(atomicAdd(words, u64(1)));
        }
        all_before = all_before + sum_of_tiles<BLOCK>(words + 3, all, tile - place.tile, tile, of_warp);
        if (threadIdx.x < WARPS) starts[threadIdx.x] = all_before;
        __syncthreads();
        State start = starts[warp];
        const i64 first = i64(place.tile) * TILE - 2 * radius;  // output
        if (__syncthreads_and(plain && Links::plain(start))) {
            Whole sum = Links::sum(start) + before;
#pragma unroll
            for (int j = 0; j < COUNT; ++j) {
                if constexpr (AGAIN) sums[j] = terms.term(entering[j]);
                const Whole of_window = sum + sums[j];
                if constexpr (AGAIN) sum = of_window - terms.term(leaving[j]);
                ordered[own + j] = terms.result(of_window);
                all_hold = all_hold & (u64(first + own + j) >= u64(outputs) | terms.holds(of_window));
            }
        } else if constexpr (Terms::ADAPTS) {
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
                leave(i64(place.row), max(first, i64(0)), min(first + TILE, outputs));
        }
        __syncthreads();
        Out* const to = out + i64(place.row) * outputs;
        const i64 count = min(outputs - first, i64(TILE));
        if (first >= 0) store<BLOCK, TILE>(to + first, ordered, int(count));
        else if (first + count > 0) store<BLOCK, TILE>(to, ordered - first, int(first + count));
        tile = next, next = taken[0];
        T* const swapped = here;
        here = other, other = swapped;
    }
    return all_hold;
}
