// Sums of the elements within a radius of each, along the rows of an array.
//
//   box       plain sums, exact, in the same time for every radius: a block adds up the first window of its span, then
//             the differences between what comes into the window and what goes out of it
//   box_far   the spans that box leaves: floats whose exponents are too far apart for 128 bits, or NaN and infinities in
//             windows too wide to count them
//   weighted  weights in shared memory, a few outputs per thread in registers; each product and each sum is rounded

#include "sliding_sum.cuh"

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / 32;
constexpr int ITEMS = 7;  // plain sums of a thread at a time: of 64 registers, which let four blocks run, all are used
constexpr int TILE = BLOCK * ITEMS;
static_assert(ITEMS % 2 == 1, "an odd stride keeps lanes on different banks of shared memory");
constexpr int OUTSIDE_ZERO = 0, OUTSIDE_NEAREST = 1;  // and 2: reflect

template <typename T> __device__ T* dynamic_shared() {
    extern __shared__ __align__(16) unsigned char bytes[];
    return reinterpret_cast<T*>(bytes);
}

// A row of `length` elements and what is taken for its neighbourhood; `start` is where output 0 has its window.
template <typename T> struct Row {
    const T* x;
    i64 length, start;
    int outside;

    // Element `k` of the window of output 0, and beyond.
    __device__ T operator[](i64 k) const {
        k += start;
        if (u64(k) < u64(length)) return x[k];
        if (outside == OUTSIDE_ZERO) return T(0);
        if (outside == OUTSIDE_NEAREST) return x[k < 0 ? 0 : length - 1];
        return x[k < 0 ? -1 - k : 2 * length - 1 - k];
    }
};

// TILE elements from `first` on to shared memory; nobody asks what those after `count` are.
template <typename T> __device__ void stage(T* to, const Row<T>& row, i64 first, int count) {
    const i64 start = first + row.start;
    if (start >= 0 && start + TILE <= row.length) {  // as nearly all are
        const T* const from = row.x + start + threadIdx.x;
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) to[k * BLOCK + threadIdx.x] = from[k * BLOCK];
    } else {
#pragma unroll 1
        for (int k = threadIdx.x; k < TILE; k += BLOCK) to[k] = k < count ? row[first + k] : T(0);
    }
}

// Outputs first .. last - 1 of a row: what a block computes.
struct Span {
    unsigned row;  // where a result goes is computed from it as late as can be: that takes fewer registers
    i64 outputs, first, last;
    __device__ Span(i64 outputs, i64 spans, i64 step) : outputs(outputs) {
        row = unsigned(blockIdx.x / spans);
        first = blockIdx.x % spans * step;
        last = min(first + step, outputs);
    }
};

// Sum over all threads before this one. `warps` gets one sum of each warp, which are all there afterwards: before the
// next call there has to be a barrier.
template <typename S> __device__ S sum_before(S value, S* warps, const S& start) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    S sum = value;
#pragma unroll
    for (int k = 1; k < 32; k *= 2) {
        const S other = lane_before(sum, k);
        if (lane >= k) sum = sum + other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    S before = start;
#pragma unroll
    for (int k = 0; k < WARPS - 1; ++k)
        if (k < warp) before = before + warps[k];
    return before + (sum - value);
}

template <typename S> __device__ void add_all(S& sum, const S* warps) {
#pragma unroll
    for (int k = 0; k < WARPS; ++k) sum = sum + warps[k];
}

// Whether a window has no element that is not finite, and so keeps the sum that it has.
template <typename S, typename Out> __device__ bool is_no_mark(Out) { return false; }
template <> inline __device__ bool is_no_mark<Marks>(double mark) { return __double_as_longlong(mark) == NO_MARK; }

template <typename S, typename T>
__device__ bool box_span(Row<T> row, typename Result<T>::type* out, Span span, i64 radius, int base) {
    using Out = typename Result<T>::type;
    __shared__ S warps[WARPS];
    __shared__ S window;  // all of the first output's but the element that comes in last; in registers it would not fit
    T* const entering = dynamic_shared<T>();
    T* const leaving = entering + TILE;
    Out* const ordered = dynamic_shared<Out>();

    S sum = none<S>();
#pragma unroll 4
    for (i64 k = span.first + threadIdx.x; k < span.first + 2 * radius; k += BLOCK)
        sum = sum + Element<S, T>::of(row[k], base);
    sum_before(sum, warps, none<S>());
    if (threadIdx.x == 0) window = none<S>(), add_all(window, warps);

    bool fits = true;
    for (i64 tile = span.first; tile < span.last; tile += TILE) {
        const int count = int(min(span.last - tile, i64(TILE)));
        stage(entering, row, tile + 2 * radius, count);
        stage(leaving, row, tile, count);
        __syncthreads();
        S sums[ITEMS];
        S run = none<S>();
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const int k = threadIdx.x * ITEMS + j;
            run = run + Element<S, T>::of(entering[k], base);
            sums[j] = run;
            run = run - Element<S, T>::of(leaving[k], base);
        }
        const S before = sum_before(run, warps, window);  // after it nobody needs what was staged
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const int k = threadIdx.x * ITEMS + j;
            const S all = before + sums[j];
            ordered[k] = Result<T>::of(all, base);
            fits = fits && (k >= count || Result<T>::fits(all));
        }
        __syncthreads();
        if (threadIdx.x == 0) add_all(window, warps);
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const int k = j * BLOCK + threadIdx.x;
            if (k < count && !is_no_mark<S>(ordered[k])) out[span.row * span.outputs + tile + k] = ordered[k];
        }
        __syncthreads();
    }
    return fits;
}

// Least and largest place of the finite elements in the windows of a span but zeros, and whether all are finite.
template <typename T> __device__ bool places(Row<T> row, Span span, i64 radius, int& least, int& largest) {
    __shared__ int found[2];
    if (threadIdx.x == 0) found[0] = Float<T>::PLACES, found[1] = 0;
    least = Float<T>::PLACES, largest = 0;
    bool finite = true;
#pragma unroll 4
    for (i64 k = span.first + threadIdx.x; k < span.last + 2 * radius; k += BLOCK) {
        const T x = row[k];
        finite = finite && is_finite(x);
        if (x != T(0) && is_finite(x)) least = min(least, place_of(x)), largest = max(largest, place_of(x));
    }
    __syncthreads();
#pragma unroll
    for (int k = 16; k > 0; k /= 2) {
        least = min(least, __shfl_xor_sync(~0u, least, k));
        largest = max(largest, __shfl_xor_sync(~0u, largest, k));
    }
    if (threadIdx.x % 32 == 0) atomicMin(&found[0], least), atomicMax(&found[1], largest);
    finite = __syncthreads_and(finite);
    least = found[0], largest = found[1];
    return finite;
}

// A span, in as few bits as hold its sums; false if it was left (floats), or if a sum does not fit (integers).
template <typename T, bool FLOAT = Float<T>::IS> struct Box {
    static __device__ bool of(Row<T> row, typename Result<T>::type* out, Span span, i64 radius) {
        return box_span<u64, T>(row, out, span, radius, 0);
    }
};
template <> struct Box<i64, false> {
    static __device__ bool of(Row<i64> row, i64* out, Span span, i64 radius) {
        return box_span<Wide, i64>(row, out, span, radius, 0);
    }
};
template <> struct Box<u64, false> {
    static __device__ bool of(Row<u64> row, u64* out, Span span, i64 radius) {
        return box_span<Wide, u64>(row, out, span, radius, 0);
    }
};
template <typename T> struct Box<T, true> {
    static __device__ bool of(Row<T> row, double* out, Span span, i64 radius) {
        int least, largest;
        const bool finite = places(row, span, radius, least, largest);
        // Below 2^bits in magnitude, and one bit for the sign.
        const int bits = largest - least + Float<T>::BITS + 64 - __clzll(2 * radius + 1);
        if (bits >= 128 || (!finite && 2 * radius + 1 >> Marks::BITS)) return false;
        if (bits < 64) box_span<u64, T>(row, out, span, radius, least);
        else box_span<Wide, T>(row, out, span, radius, least);
        if (!finite) box_span<Marks, T>(row, out, span, radius, 0);
        return true;
    }
};

// `spans` of a row, of `step` outputs each, one for a block; `left`: 1 for a span that was left, or does not fit.
template <typename T>
__global__ void __launch_bounds__(BLOCK, 4)
box(const T* x, typename Result<T>::type* out, int* left, i64 length, i64 outputs, i64 start, i64 radius, int outside,
    i64 spans, i64 step) {
    const Span span(outputs, spans, step);
    const Row<T> row{x + span.row * length, length, start, outside};
    const bool done = Box<T>::of(row, out, span, radius);
    const bool all = __syncthreads_and(done);
    if (threadIdx.x == 0) left[blockIdx.x] = !all;
}

// Each thread has outputs that follow one another, and the sum of their window in digits of its own.
template <typename T>
__global__ void __launch_bounds__(BLOCK)
box_far(const T* x, double* out, const int* left, i64 length, i64 outputs, i64 start, i64 radius, int outside,
        i64 spans, i64 step) {
    if (!left[blockIdx.x]) return;
    const Span span(outputs, spans, step);
    const Row<T> row{x + span.row * length, length, start, outside};
    const i64 share = (step + BLOCK - 1) / BLOCK;
    const i64 first = span.first + threadIdx.x * share, last = min(first + share, span.last);
    Digits<T> sum;
    sum.clear();
    for (i64 k = first; k < first + 2 * radius && first < last; ++k) sum.add(row[k], 1);
    for (i64 i = first; i < last; ++i) {
        sum.add(row[i + 2 * radius], 1);
        out[span.row * outputs + i] = sum.sum();
        sum.add(row[i], -1);
    }
}

inline __device__ float one_nan(float x) { return x != x ? __int_as_float(0x7fc00000) : x; }
inline __device__ double one_nan(double x) { return x != x ? __longlong_as_double(0x7ff8000000000000) : x; }

// The next taps of a thread, at most as many as it has outputs: a product and a sum for each tap and output.
template <bool ALL, typename T, int OUTPUTS>
__device__ void multiply(T (&sum)[OUTPUTS], const T* elements, const T* factors, int taps) {
    T window[2 * OUTPUTS - 1];
#pragma unroll
    for (int j = 0; j < 2 * OUTPUTS - 1; ++j) window[j] = elements[j];
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) {
        if (!ALL && i >= taps) return;
        const T factor = factors[i];
#pragma unroll
        for (int j = 0; j < OUTPUTS; ++j) sum[j] += window[i + j] * factor;
    }
}

// Taps are staged CHUNK at a time, with the elements that a block multiplies with them; outputs stay in registers.
template <typename In, typename T, int OUTPUTS>
__global__ void __launch_bounds__(BLOCK, 4)
weighted(const In* x, const T* weights, T* out, i64 length, i64 outputs, i64 start, int taps, int outside, i64 spans) {
    static_assert(OUTPUTS % 2 == 1, "an odd stride keeps lanes on different banks of shared memory");
    constexpr int STEP = BLOCK * OUTPUTS, CHUNK = 32 * OUTPUTS;
    __shared__ T staged[STEP + CHUNK];
    __shared__ T factors[CHUNK];
    const Span span(outputs, spans, STEP);
    const Row<In> row{x + span.row * length, length, start, outside};
    const int count = int(span.last - span.first), own = threadIdx.x * OUTPUTS;
    T sum[OUTPUTS];
#pragma unroll
    for (int j = 0; j < OUTPUTS; ++j) sum[j] = T(-0.0);  // to which anything can be added without a change

    for (int first = 0; first < taps; first += CHUNK) {
        const int here = min(CHUNK, taps - first), needed = count + here - 1;
        // Threads read whole groups of elements, also where fewer taps are left.
        const int all = STEP + (here + OUTPUTS - 1) / OUTPUTS * OUTPUTS - 1;
        const i64 begin = span.first + first + start;
        if (begin >= 0 && begin + all <= length) {
#pragma unroll 8
            for (int k = threadIdx.x; k < all; k += BLOCK) staged[k] = T(row.x[begin + k]);
        } else {
#pragma unroll 1
            for (int k = threadIdx.x; k < all; k += BLOCK)
                staged[k] = k < needed ? T(row[span.first + first + k]) : T(0);
        }
        for (int k = threadIdx.x; k < here; k += BLOCK) factors[k] = weights[first + k];
        __syncthreads();
        int k = 0;
#pragma unroll 1
        for (; k + OUTPUTS <= here; k += OUTPUTS) multiply<true>(sum, staged + own + k, factors + k, OUTPUTS);
        if (k < here) multiply<false>(sum, staged + own + k, factors + k, here - k);
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < OUTPUTS; ++j) staged[own + j] = one_nan(sum[j]);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < OUTPUTS; ++j) {
        const int k = j * BLOCK + threadIdx.x;
        if (k < count) out[span.row * outputs + span.first + k] = staged[k];
    }
}
