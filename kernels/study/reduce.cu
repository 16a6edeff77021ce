// Reduction: the sum or the maximum of an array of any length, as partials that the host finishes in index order.
//
// Variants, each with the same result (floating-point sums: within the bound of kernels/study/reduce.py):
//   modulo           one sample per thread in shared memory; every second, fourth, ... thread adds its neighbour's
//   sequential       the first half of the threads adds the second half: no modulo, and whole warps fall idle
//   any_size         halves rounded up, so that the block need not be a power of two
//   atomic_max       no loop: every thread raises one maximum by an atomic operation; maximum only
//   warp_shuffle     sequential down to one warp, which exchanges registers and needs no barrier
//   production       the kernel of the job, in reduce/gpu.cu: exact sums, rounded once; one partial for all
//   float_drift      one float accumulator per thread; broken: every addition rounds to float, and the errors add up
//   missing_barrier  sequential without the barriers in and before its loop; broken: a warp reads what is yet unwritten
//   past_the_end     sequential without its guard; broken: the last block adds what lies behind the last sample
//
// From the courses: the loops, and `block`, the size MAX of the array that one block reduces (1024, one per thread).
// Their kernels reduce an array of one block; here every block reduces its own part, and the host combines the
// partials. No sum uses atomic operations, so its order is fixed and its bits are reproducible.

#include "common/types.cuh"

// Accumulators are wider than the samples: integers cannot wrap, floats round in double.
template <typename T> struct Wide { using type = double; };
template <> struct Wide<int> { using type = i64; };

template <typename T> struct Sum {
    using Sample = T;
    using Partial = typename Wide<T>::type;
    static __device__ Partial identity() { return 0; }
    static __device__ Partial of(T x) { return x; }
    static __device__ Partial combine(Partial a, Partial b) { return a + b; }
};

// Integers in the order of the samples, so that one integer maximum serves all types, atomic or not. A float's bits are
// sign and magnitude: as integers, positive floats are in order, and flipping the magnitude reverses the order of
// negative ones. -0.0 comes right below +0.0. NaN of either sign is the largest, as in numpy.max.
__device__ inline int ordered(int x) { return x; }
__device__ inline int ordered(float x) {
    const int bits = __float_as_int(x);
    return x != x ? 0x7fffffff : bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ inline i64 ordered(double x) {
    const i64 bits = __double_as_longlong(x);
    return x != x ? 0x7fffffffffffffff : bits ^ (bits >> 63 & 0x7fffffffffffffff);
}

template <typename T> struct Max {
    using Sample = T;
    using Partial = decltype(ordered(T()));
    static __device__ Partial identity() { return Partial(u64(1) << (8 * sizeof(Partial) - 1)); }
    static __device__ Partial of(T x) { return ordered(x); }
    static __device__ Partial combine(Partial a, Partial b) { return max(a, b); }
};

template <typename Partial> __device__ Partial* shared_array() {
    static_assert(sizeof(Partial) <= sizeof(u64), "the array is aligned to 8 bytes");
    extern __shared__ u64 words[];
    return reinterpret_cast<Partial*>(words);
}

// One sample per thread, copied to shared memory; the identity past the end of the array.
template <typename Op>
__device__ typename Op::Partial* fill_block(const typename Op::Sample* samples, i64 n) {
    auto* const vect = shared_array<typename Op::Partial>();
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    vect[threadIdx.x] = i < n ? Op::of(samples[i]) : Op::identity();
    __syncthreads();
    return vect;
}

template <typename Op>
__global__ void modulo(const typename Op::Sample* samples, i64 n, typename Op::Partial* partials) {
    auto* const vect = fill_block<Op>(samples, n);
    const int tid = threadIdx.x, size = blockDim.x;
    for (int offset = 1; offset < size; offset *= 2) {
        if (tid % (offset * 2) == 0 && tid + offset < size) vect[tid] = Op::combine(vect[tid], vect[tid + offset]);
        __syncthreads();
    }
    if (tid == 0) partials[blockIdx.x] = vect[0];
}

template <typename Op>
__global__ void sequential(const typename Op::Sample* samples, i64 n, typename Op::Partial* partials) {
    auto* const vect = fill_block<Op>(samples, n);
    const int tid = threadIdx.x, size = blockDim.x;
    for (int offset = size / 2; offset > 0; offset /= 2) {
        if (tid < offset) vect[tid] = Op::combine(vect[tid], vect[tid + offset]);
        __syncthreads();
    }
    if (tid == 0) partials[blockIdx.x] = vect[0];
}

template <typename Op>
__global__ void any_size(const typename Op::Sample* samples, i64 n, typename Op::Partial* partials) {
    auto* const vect = fill_block<Op>(samples, n);
    const int tid = threadIdx.x, size = blockDim.x;
    // Of s + b values the last b are added to the first b; if their number is odd, the middle one waits.
    for (int s = (size - 1) / 2 + 1, b = size / 2; b > 0; b = s / 2, s = (s - 1) / 2 + 1) {
        if (tid < b) vect[tid] = Op::combine(vect[tid], vect[tid + s]);
        __syncthreads();
    }
    if (tid == 0) partials[blockIdx.x] = vect[0];
}

// One partial for all blocks, which the wrapper has set to the identity.
template <typename Op>
__global__ void atomic_max(const typename Op::Sample* samples, i64 n, typename Op::Partial* partial) {
    auto* const vect = fill_block<Op>(samples, n);
    const int tid = threadIdx.x;
    if (tid > 0) atomicMax(&vect[0], vect[tid]);  // vect[0] is the supposed maximum
    __syncthreads();
    if (tid == 0) atomicMax(partial, vect[0]);
}

// The first lane ends with the result of the whole warp; the other lanes' results are meaningless.
template <typename Op> __device__ typename Op::Partial reduce_warp(typename Op::Partial value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffff, value, offset));
    return value;
}

template <typename Op>
__global__ void warp_shuffle(const typename Op::Sample* samples, i64 n, typename Op::Partial* partials) {
    auto* const vect = fill_block<Op>(samples, n);
    const int tid = threadIdx.x, size = blockDim.x;
    for (int offset = size / 2; offset >= 32; offset /= 2) {
        if (tid < offset) vect[tid] = Op::combine(vect[tid], vect[tid + offset]);
        __syncthreads();
    }
    if (tid >= 32) return;
    const auto whole = reduce_warp<Op>(vect[tid]);
    if (tid == 0) partials[blockIdx.x] = whole;
}

// One block, one partial per thread.
__global__ void float_drift(const float* samples, i64 n, double* partials) {
    float total = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) total += samples[i];
    partials[threadIdx.x] = total;
}

// A warp may be late; with LATE half of them are, so that the race shows every time. Without, it is what is timed.
template <typename Op, bool LATE>
__global__ void missing_barrier(const typename Op::Sample* samples, i64 n, typename Op::Partial* partials) {
    auto* const vect = shared_array<typename Op::Partial>();
    const int tid = threadIdx.x, size = blockDim.x;
    const i64 i = i64(blockIdx.x) * size + tid;
    if (LATE) {
        vect[tid] = Op::identity();  // a premature read may find the right value, left there by an earlier block
        __syncthreads();
        if (tid >= size / 2) for (const i64 began = clock64(); clock64() - began < 20000;) {}
    }
    vect[tid] = i < n ? Op::of(samples[i]) : Op::identity();
    for (int offset = size / 2; offset > 0; offset /= 2) {
        if (tid < offset) vect[tid] = Op::combine(vect[tid], vect[tid + offset]);
    }
    if (tid == 0) partials[blockIdx.x] = vect[0];
}

template <typename Op>
__global__ void past_the_end(const typename Op::Sample* samples, i64, typename Op::Partial* partials) {
    auto* const vect = shared_array<typename Op::Partial>();
    const int tid = threadIdx.x, size = blockDim.x;
    vect[tid] = Op::of(samples[i64(blockIdx.x) * size + tid]);
    __syncthreads();
    for (int offset = size / 2; offset > 0; offset /= 2) {
        if (tid < offset) vect[tid] = Op::combine(vect[tid], vect[tid + offset]);
        __syncthreads();
    }
    if (tid == 0) partials[blockIdx.x] = vect[0];
}
