// Sums of the elements within a radius of each element, along the rows of an array.
//
//   box_range   range of exponents of a sample, from which box chooses its number format for floats
//   box         plain sums, exact, in a time that does not depend on the radius: a block sums the first window of its
//               span, then the differences between elements that enter the window and elements that leave it
//   box_few     floats that box defers, exponents too far apart for its format: short windows, a thread for each
//   box_layers  the same for wider windows: layers of bits, as many as decide the results
//   weighted    weights in shared memory, a few outputs per thread in registers; each product and each sum is rounded
//   few_taps    the same for a number of taps known at compile time

#include "stencil/box.cuh"
#include "stencil/weighted.cuh"

// Threads of a block. Blocks of box have more where windows take so much shared memory that few blocks fit.
constexpr int BLOCK = 128;

// Resident blocks for the launch bounds, given those tuned for Hopper: fewer where the compiler needs more registers or
// a multiprocessor runs fewer threads.
constexpr int registered(int blocks) {
    if (HOPPER) return blocks;
    if (SM_120) return blocks > 1 ? blocks / 2 : 1;
    return blocks > 16 ? 16 : blocks > 1 ? blocks - 1 : 1;
}
constexpr int NARROW_BLOCKS = TURING ? 8 : 10;  // Turing runs 1024 threads: eight blocks

constexpr int FEW = 16, FEW_TILE = 8 * BLOCK;  // of box_few: the largest radius, outputs at a time

// Appends outputs to those deferred to the next kernel: list[0] counts the entries, each of which has its first output,
// counted through all rows, and its number of outputs. A call defers the unit of outputs that a tile lies in, from its
// beginning, and returns the first output behind it.
struct Deferred {
    u64* list;
    i64 first;
    int unit, count;
    __device__ int operator()(int tile) const {
        const int from = tile - tile % unit, to = min(from + unit, count);
        if (threadIdx.x == 0) {
            const u64 number = atomicAdd(list, u64(1));
            list[1 + 2 * number] = u64(first + from);
            list[2 + 2 * number] = u64(to - from);
        }
        return to;
    }
};

// Writes to words[1] and words[2] the range of exponents of a sample: 32 elements out of every 32 * `stride`.
template <typename T>
__global__ void __launch_bounds__(BLOCK)
box_range(const T* x, u64* words, i64 count, i64 stride) {
    int low = 0, high = 0;
    const i64 thread = i64(blockIdx.x) * BLOCK + threadIdx.x;
    for (i64 k = thread / 32 * 32 * stride + thread % 32; k < count; k += i64(gridDim.x) * BLOCK * stride) {
        const T element = x[k];
        if (!is_finite(element) || !size_of(element)) continue;
        low = max(low, Float<T>::PLACES + 1 - place_of(element)), high = max(high, place_of(element));
    }
#pragma unroll
    for (int k = 16; k > 0; k /= 2) low = max(low, lane_across(low, k)), high = max(high, lane_across(high, k));
    if (threadIdx.x % 32 == 0) atomicMax(words + 1, u64(high)), atomicMax(words + 2, u64(low));
}

template <typename T> __device__ int largest(const u64* words) { return int(words[1]); }
template <typename T> __device__ int least(const u64* words) { return Float<T>::PLACES + 1 - int(words[2]); }

// A row has `spans` of `step` outputs, each for one block of SIZE threads, which computes COUNT sums per thread and
// tile while it loads AHEAD tiles. BLOCKS is the number of resident blocks on Hopper. For integers deferred[0] counts
// the threads in which a sum overflowed.
template <typename T, typename Out, int SIZE, int COUNT, int AHEAD, int BLOCKS, typename Sums = Terms<T>>
__global__ void __launch_bounds__(SIZE, registered(BLOCKS))
box(const T* x, Out* out, u64* deferred, const u64* words, i64 length, i64 outputs, i64 start, i64 radius, int outside,
    i64 spans, i64 step, int unit, int ring) {
    const i64 first = blockIdx.x % spans * step;
    const i64 row = blockIdx.x / spans;
    const Span<T, Out> span({x, length, start, outside}, out, outputs, row, first, min(step, outputs - first));
    const Deferred defer{deferred, row * outputs + first, unit, span.count};
    Sums terms;
    bool chosen = false;
    if constexpr (Float<T>::IS)
        if (sizeof(T) == 2 || words[1])  // every float16 fits; the others have been sampled
            chosen = terms.choose(least<T>(words), largest<T>(words), SPARE, radius, 2 * radius + 1, SIZE * COUNT);
    const bool hold = slide<SIZE, COUNT, AHEAD>(span, radius, ring, terms, chosen, defer);
    if (!hold) atomicAdd(deferred, u64(1));
}

// A deferred span.
template <typename T, typename Out>
__device__ Span<T, Out> deferred_span(const u64* deferred, u64 number, const Row<T>& row, Out* out, i64 outputs) {
    const i64 first = i64(deferred[1 + 2 * number]);
    return {row, out, outputs, first / outputs, first % outputs, i64(deferred[2 + 2 * number])};
}

// Outputs that the first layer does not decide are gathered, so that all threads have some.
template <typename T>
__global__ void __launch_bounds__(BLOCK, registered(6))
box_few(const T* x, double* out, const u64* deferred, i64 length, i64 outputs, i64 start, i64 radius, int outside) {
    __shared__ T elements[FEW_TILE + 2 * FEW];
    __shared__ u16 open[FEW_TILE];
    __shared__ int number;
    const int bits = max(Layers<T>::bits_of(2 * radius + 1), 2);
    for (u64 k = blockIdx.x; k < deferred[0]; k += gridDim.x) {
        const Span<T, double> span = deferred_span(deferred, k, Row<T>{x, length, start, outside}, out, outputs);
        for (int tile = 0; tile < span.count; tile += FEW_TILE) {
            const int count = min(span.count - tile, FEW_TILE);
            double* const to = span.out + tile;
            __syncthreads();
            if (threadIdx.x == 0) number = 0;
            for (int i = threadIdx.x; i < count + 2 * int(radius); i += BLOCK) elements[i] = span.x[tile + i];
            __syncthreads();
            for (int i = threadIdx.x; i < count; i += BLOCK)
                if (!sum_of_few<false>(elements + i, int(radius), bits, to[i])) open[atomicAdd(&number, 1)] = u16(i);
            __syncthreads();
            for (int i = threadIdx.x; i < number; i += BLOCK)
                sum_of_few<true>(elements + open[i], int(radius), bits, to[open[i]]);
        }
    }
}

template <typename T, int SIZE, int COUNT, int AHEAD, int BLOCKS>
__global__ void __launch_bounds__(SIZE, registered(BLOCKS))
box_layers(const T* x, double* out, const u64* deferred, i64 length, i64 outputs, i64 start, i64 radius, int outside,
           int ring) {
    const auto none = [](int tile) { return tile; };  // every element fits
    for (u64 k = blockIdx.x; k < deferred[0]; k += gridDim.x) {
        const Span<T, double> span = deferred_span(deferred, k, Row<T>{x, length, start, outside}, out, outputs);
        slide<SIZE, COUNT, AHEAD>(span, radius, ring, Layers<T>{}, false, none);
    }
}

template <typename In, typename T> constexpr bool SAME = false;
template <typename T> constexpr bool SAME<T, T> = true;

// Taps are staged in chunks of MOST, together with the elements to multiply by them; outputs stay in registers. While a
// block computes one chunk of a tile, it loads the next.
template <typename In, typename T>
__global__ void __launch_bounds__(BLOCK, SAME<In, T> ? sizeof(T) == 4 ? NARROW_BLOCKS : 7 : 5)
weighted(const In* x, const T* weights, T* out, i64 length, i64 outputs, i64 start, int taps, int outside, i64 spans,
         i64 step) {
    constexpr int SIZE = Pack<T>::SIZE, OUTPUTS = Pack<T>::OUTPUTS;
    constexpr int TILE = BLOCK * OUTPUTS, MOST = Pack<T>::CHUNK * SIZE;
    const i64 first_output = blockIdx.x % spans * step;
    const Span<In, T> span({x, length, start, outside}, out, outputs, blockIdx.x / spans, first_output,
                           min(step, outputs - first_output));
    T* here = dynamic_shared<T>();
    T* other = here + TILE + 2 * min(MOST, (taps + SIZE - 1) / SIZE * SIZE);
    const int shift = SAME<In, T> ? span.x.misaligned(0) : 0;  // the first tile begins this far before output 0

    const auto stage = [&](T* to, int tile, int first) {
        const int here_taps = min(MOST, taps - first), all = TILE + (here_taps + SIZE - 1) / SIZE * SIZE;
        const i64 begin = i64(tile) + first + span.x.start;
        if (SAME<In, T> && begin >= 0 && begin + all <= length) {
            const In* const from = span.x.x + begin + threadIdx.x * SIZE;
            T* const own = to + threadIdx.x * SIZE;
#pragma unroll
            for (int k = 0; k < TILE; k += BLOCK * SIZE) fetch(own + k, from + k);
            for (int k = TILE; k + int(threadIdx.x) * SIZE < all; k += BLOCK * SIZE) fetch(own + k, from + k);
        } else if (begin >= 0 && begin + all <= length) {
#pragma unroll 8
            for (int k = threadIdx.x; k < all; k += BLOCK) to[k] = T(span.x.x[begin + k]);
        } else {
#pragma unroll 1
            for (int k = threadIdx.x; k < all; k += BLOCK) {
                const i64 place = i64(tile) + first + k;
                to[k] = place >= 0 && place < i64(span.count) + taps - 1 ? T(span.x[place]) : T(0);
            }
        }
        if (taps <= MOST && tile >= 2 * TILE - shift) return;  // both buffers have all the weights
        for (int k = threadIdx.x; k < all - TILE; k += BLOCK) to[all + k] = k < here_taps ? weights[first + k] : T(0);
    };

    T sum[OUTPUTS];
    stage(here, -shift, 0);
    for (int tile = -shift, first = 0; tile < span.count;) {
        const bool ends = taps - first <= MOST;
        const int next_tile = ends ? tile + TILE : tile, next = ends ? 0 : first + MOST;
        wait_for_fetched();
        __syncthreads();
        if (next_tile < span.count) stage(other, next_tile, next);
        if (first == 0) {
#pragma unroll
            for (int j = 0; j < OUTPUTS; ++j) sum[j] = T(-0.0);  // the neutral element: -0.0 + x is x, bit for bit
        }
        const int here_taps = min(MOST, taps - first), all = TILE + (here_taps + SIZE - 1) / SIZE * SIZE;
        multiply(sum, here + threadIdx.x * OUTPUTS, here + all, here_taps);
        if (ends) {
            __syncthreads();
#pragma unroll
            for (int j = 0; j < OUTPUTS; j += SIZE) put_pack(here + threadIdx.x * OUTPUTS + j, sum + j);
            store_packs<OUTPUTS>(span.out, here, tile, span.count);
        }
        T* const swapped = here;
        here = other, other = swapped;
        tile = next_tile, first = next;
    }
}

// The same for a number of taps known at compile time.
template <typename T, int TAPS>
__global__ void __launch_bounds__(BLOCK, sizeof(T) == 4 ? NARROW_BLOCKS : 7)
few_taps(const T* x, const T* weights, T* out, i64 length, i64 outputs, i64 start, int outside, i64 spans,
             i64 step) {
    constexpr int SIZE = Pack<T>::SIZE, OUTPUTS = Pack<T>::OUTPUTS, TILE = BLOCK * OUTPUTS;
    constexpr int ALL = TILE + (TAPS - 1 + SIZE - 1) / SIZE * SIZE;
    const i64 first_output = blockIdx.x % spans * step;
    const Span<T, T> span({x, length, start, outside}, out, outputs, blockIdx.x / spans, first_output,
                          min(step, outputs - first_output));
    constexpr int FACTORS = (TAPS + SIZE - 1) / SIZE * SIZE;
    __shared__ __align__(16) T factors[FACTORS];
    T* here = dynamic_shared<T>();
    T* other = here + ALL;

    const auto stage = [&](T* to, int tile) {
        const i64 begin = i64(tile) + span.x.start;
        if (begin >= 0 && begin + ALL <= length) {
            const T* const from = span.x.x + begin + threadIdx.x * SIZE;
            T* const own = to + threadIdx.x * SIZE;
#pragma unroll
            for (int k = 0; k < ALL; k += BLOCK * SIZE)
                if (k + BLOCK * SIZE <= ALL || k + int(threadIdx.x) * SIZE < ALL) fetch(own + k, from + k);
        } else {
#pragma unroll 1
            for (int k = threadIdx.x; k < ALL; k += BLOCK) {
                const i64 place = i64(tile) + k;
                to[k] = place >= 0 && place < i64(span.count) + TAPS - 1 ? span.x[place] : T(0);
            }
        }
    };

    int tile = -span.x.misaligned(0);  // the first tile begins this far before output 0
    stage(here, tile);
    for (int k = threadIdx.x; k < FACTORS; k += BLOCK) factors[k] = k < TAPS ? weights[k] : T(0);
    for (; tile < span.count; tile += TILE) {
        wait_for_fetched();
        __syncthreads();
        if (tile + TILE < span.count) stage(other, tile + TILE);
        T sum[OUTPUTS];
        multiply_all<TAPS>(sum, here + threadIdx.x * OUTPUTS, factors);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < OUTPUTS; j += SIZE) put_pack(here + threadIdx.x * OUTPUTS + j, sum + j);
        store_packs<OUTPUTS>(span.out, here, tile, span.count);
        T* const swapped = here;
        here = other, other = swapped;
    }
}
