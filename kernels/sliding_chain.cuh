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
// What has been published of a tile: the words that are looked at first, and later what is in them.
template <typename S> struct Awaited {
    static constexpr int FEW = Few<S>::COUNT, MOST = Parts<S>::COUNT;
    u64 word[FEW];

    __device__ void look(u64* words, int tiles, int tile) {
#pragma unroll
        for (int k = 0; k < FEW; ++k) word[k] = get_word(words + i64(k) * tiles + tile);
    }
    // Waits for it; returns which of both it is.
    __device__ u64 wait(u64* words, int tiles, int tile, S& sum) {
        while (true) {
            Parts<S> parts;
            const u64 what = word[0] >> 32;
            bool same = what != 0;
#pragma unroll
            for (int k = 0; k < FEW; ++k) {
                same = same & word[k] >> 32 == what;
                parts.part[k] = u32(word[k]);
            }
            if (FEW < MOST && (what & MORE)) {
#pragma unroll
                for (int k = FEW; k < MOST; ++k) {
                    const u64 more = get_word(words + i64(k) * tiles + tile);
                    same = same & more >> 32 == what;
                    parts.part[k] = u32(more);
                }
            }
            sum = parts.sum;
            if (same) return what;
            look(words, tiles, tile);
        }
    }
};

// Sum over the lanes of a warp, in all of them.
template <typename S> __device__ S sum_of_warp(S value) {
#pragma unroll
    for (int k = 16; k > 0; k /= 2) value = value + lane_across(value, k);
    return value;
}

// Of what the lanes have of the tiles before, the nearest in the first lane, up to the first with all before it; and
// whether there is such a one.
template <typename S> __device__ bool sum_of_nearest(S& value, bool ends) {
    const u32 those = __ballot_sync(~0u, ends);
    if (those && int(threadIdx.x % 32) >= __ffs(int(those))) value = S{};
    value = sum_of_warp(value);
    return those != 0;
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
        const bool marked = marks && !finite;
        return {terms.term(fits ? x : T{}), marked ? mark_of(x) : Marks{0}, u64(!marked && !fits)};
    }
    // What the elements of a thread add.
    template <int COUNT>
    static __device__ State run(const Terms& terms, const T* entering, const T* leaving, bool marks) {
        State sum{};
#pragma unroll 1
        for (int j = 0; j < COUNT; ++j) sum = sum + count(terms, entering[j], marks) - count(terms, leaving[j], marks);
        return sum;
    }
};

// Sums of all windows; words[0] counts the tiles that have been taken. Returns false if a sum does not fit (integers).
// Outputs of which windows have elements that do not fit (floats) are handed to `leave`. While a tile is added up, the
// next one is on its way, and each thread looks at what one of the tiles before the last one has published, which gets
// its sums then: all others had time to.
template <int BLOCK, int COUNT, typename Terms, typename T, typename Out, typename Leave>
__device__ bool chain(const Row<T>& rows, Out* out, u64* words, i64 outputs, i64 radius, int tiles, int all,
                      const Terms& terms, Leave leave) {
    using Part = typename Terms::Part;
    using Whole = typename Terms::Whole;
    using Links = Link<Terms, T>;
    using State = typename Links::State;
    constexpr int TILE = BLOCK * COUNT, WARPS = BLOCK / 32;
    constexpr int RUN = (TILE * sizeof(T) + 15) / 16 * 16 / sizeof(T) + 16 / sizeof(T);
    static_assert(COUNT % 2 == 1, "an odd stride keeps lanes on different banks of shared memory");
    __shared__ int taken;
    __shared__ Part parts[WARPS];
    __shared__ State starts[WARPS], counted[WARPS], near_sums[WARPS];
    __shared__ int near_ends[WARPS];
    __shared__ State totals[2], of_warps[2][WARPS];  // what a tile and the one before add, and the warps before one
    Out* const ordered = dynamic_shared<Out>();
    T* buffers = reinterpret_cast<T*>(ordered + TILE);  // three times what leaves, and what comes in
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = threadIdx.x * COUNT;
    const int near = min(BLOCK, int(gridDim.x + 63) / 32 * 32);
    const bool marks = 2 * radius + 1 < i64(1) << Marks::BITS;
    const i64 last = outputs + 2 * radius;
    u64* const published = words + 3;

    struct Place {
        int number, row, tile;  // among all, and in the row
        int leaves, enters;     // in shared memory
        __device__ int first() const { return number - tile; }
    };
    const auto fetch_tile = [&](int number, int buffer) {
        Place place{number, number / tiles, number % tiles, 0, 0};
        const Row<T> row{rows.x + i64(place.row) * rows.length, rows.length, rows.start, rows.outside};
        const i64 first = i64(place.tile) * TILE;
        const int at = 2 * RUN * buffer;
        place.leaves = own + at + fetch_run<BLOCK, TILE>(buffers + at, row, first - 2 * radius, last);
        place.enters = own + at + RUN + fetch_run<BLOCK, TILE>(buffers + at + RUN, row, first, last);
        return place;
    };
    const auto take = [&] { taken = int(min(atomicAdd(words, u64(1)), u64(all))); };

    if (threadIdx.x == 0) take();
    __syncthreads();
    Place place{taken, 0, 0, 0, 0}, before_it{all, 0, 0, 0, 0}, next{all, 0, 0, 0, 0};
    if (place.number < all) place = fetch_tile(place.number, 0);
    // The second one when all blocks have their first one: of two that follow one another, taken by one block, all
    // others would wait for the second until it has done with the first, again and again.
    wait_for_fetched();
    __syncthreads();
    if (threadIdx.x == 0) take();

    bool all_hold = true, plain = true, plain_before = true;
    Part before{}, last_before{};  // what threads of the warp before this one add to a tile, and to the one before
    for (int turn = 1, odd = 0; place.number < all || before_it.number < all; turn = (turn + 1) % 3, odd ^= 1) {
        wait_for_fetched();
        __syncthreads();
        next.number = taken;
        const int other = before_it.number - 1 - int(threadIdx.x);
        const bool looks = before_it.number < all && int(threadIdx.x) < near && other >= before_it.first();
        Awaited<State> awaited;
        if (looks) awaited.look(published, all, other);
        if (next.number < all) next = fetch_tile(next.number, turn);
        const bool here = place.number < all;
        plain = true;
        if (here) {
            Part sums[COUNT];
            plain = add_up<false>(terms, buffers + place.enters, buffers + place.leaves, sums, before, parts);
            if constexpr (Terms::ADAPTS) {
#pragma unroll
                for (int j = 0; j < COUNT; ++j) plain = plain & terms.fits(buffers[place.leaves + j]);
            } else {
                plain = true;
            }
        }
        if (before_it.number < all && int(threadIdx.x) < near) {
            State value{};
            const bool ends = looks ? (awaited.wait(published, all, other, value) & ALL) != 0 : true;
            const bool ended = sum_of_nearest(value, ends);
            if (lane == 0) near_sums[warp] = value, near_ends[warp] = ended;
        }
        plain = __syncthreads_and(plain);
        if constexpr (Terms::ADAPTS)
            if (!plain) {
                const T *const entering = buffers + place.enters, *const leaving = buffers + place.leaves;
                sum_before(Links::template run<COUNT>(terms, entering, leaving, marks), counted);
                __syncthreads();
            }
        if (warp == 0) {
            if (here) {
                State total{};
                if (lane < WARPS) total = plain ? Links::of(parts[lane]) : counted[lane];
                State sum = total;
#pragma unroll
                for (int k = 1; k < WARPS; k *= 2) {
                    const State others = lane_before(sum, k);
                    if (lane >= k) sum = sum + others;
                }
                if (lane < WARPS) of_warps[odd][lane] = sum - total;
                total = sum_of_warp(total);
                if (lane == 0) totals[odd] = total;
                publish(published, all, place.number, total, place.tile ? OWN : ALL);
            }
            if (before_it.number < all) {
                const bool takes_part = lane < near / 32;
                State sum = takes_part ? near_sums[lane] : State{};
                bool done = sum_of_nearest(sum, takes_part && near_ends[lane]);
                for (int far = before_it.number - 1 - near; !done; far -= 32) {
                    State value{};
                    bool ends = true;
                    if (far - lane >= before_it.first()) {
                        Awaited<State> further;
                        further.look(published, all, far - lane);
                        ends = (further.wait(published, all, far - lane, value) & ALL) != 0;
                    }
                    done = sum_of_nearest(value, ends);
                    sum = sum + value;
                }
                if (before_it.tile) publish(published, all, before_it.number, sum + totals[odd ^ 1], ALL);
                if (lane < WARPS) starts[lane] = sum + of_warps[odd ^ 1][lane];
            }
            if (lane == 0 && next.number < all) take();
        }
        __syncthreads();
        if (before_it.number < all) {
            const T *const entering = buffers + before_it.enters, *const leaving = buffers + before_it.leaves;
            State start = starts[warp];
            const i64 first = i64(before_it.tile) * TILE - 2 * radius;  // output
            if (plain_before && Links::plain(start)) {
                Whole sum = Links::sum(start) + last_before;
#pragma unroll
                for (int j = 0; j < COUNT; ++j) {
                    const Whole of_window = sum + terms.term(entering[j]);
                    sum = of_window - terms.term(leaving[j]);
                    ordered[own + j] = terms.result(of_window);
                    all_hold = all_hold & (u64(first + own + j) >= u64(outputs) | terms.holds(of_window));
                }
            } else if constexpr (Terms::ADAPTS) {
                __shared__ State unused[WARPS];
                start = start + sum_before(Links::template run<COUNT>(terms, entering, leaving, marks), unused);
                bool some = false;
#pragma unroll 1
                for (int j = 0; j < COUNT; ++j) {
                    start = start + Links::count(terms, entering[j], marks);
                    ordered[own + j] = start.marks.counts ? start.marks.value() : terms.result(start.sum);
                    some = some | (start.others && u64(first + own + j) < u64(outputs));
                    start = start - Links::count(terms, leaving[j], marks);
                }
                if (some) leave(i64(before_it.row), max(first + own, i64(0)), min(first + own + COUNT, outputs));
            }
            __syncthreads();
            Out* const to = out + i64(before_it.row) * outputs;
            const i64 count = min(outputs - first, i64(TILE));
            if (first >= 0) store<BLOCK, TILE>(to + first, ordered, int(count));
            else if (first + count > 0) store<BLOCK, TILE>(to, ordered - first, int(first + count));
        }
        before_it = place, place = next, last_before = before, plain_before = plain;
    }
    return all_hold;
}
