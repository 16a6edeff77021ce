// Stencil: out[i] = x[i - radius] + ... + x[i + radius], where x is zero outside of the array.
//
// Variants, each with the same result; radius as in the course (3 and 1000), block is the number of threads per block:
//   global_memory    one output per thread, every sample read from global memory
//   shared_halo      the block's samples and a halo of radius on both sides in shared memory
//   production       the kernels of the job, in stencil/gpu.cu: sums slide from window to window, exact
//   missing_barrier  shared_halo without __syncthreads; broken: sums read samples that are not there yet
//   past_the_end     global_memory without a guard; broken: reads and writes outside of the array
//
// int samples are summed in i64, floats in double, rounded once at the end. Every kernel here adds each sample of the
// window once and never subtracts: integers are exact, an infinity or a NaN affects only windows that contain it, and a
// float sum of w samples is off by at most (w - 1) * 2^-53 times the sum of their magnitudes, to first order.

#include "common/types.cuh"

template <typename T>
struct Sum {
    using in_full = double;  // type of the accumulator
    using out = T;
};
template <>
struct Sum<int> {
    using in_full = i64;
    using out = i64;
};

template <typename T>
using Full = typename Sum<T>::in_full;
template <typename T>
using Out = typename Sum<T>::out;

inline __device__ i64 thread_number() { return i64(blockIdx.x) * blockDim.x + threadIdx.x; }

template <typename T>
__global__ void global_memory(const T* x, Out<T>* out, i64 n, int radius) {
    const i64 i = thread_number();
    if (i >= n) return;
    const i64 last = min(i + radius, n - 1);
    Full<T> sum = 0;
    for (i64 k = max(i - radius, i64(0)); k <= last; ++k) sum += x[k];
    out[i] = Out<T>(sum);
}

// Copies samples first .. first + count - 1 to shared memory, with zeros outside of the array.
template <typename T>
__device__ void hold(T* held, const T* __restrict__ x, i64 n, i64 first, int count) {
#pragma unroll 8
    for (int k = threadIdx.x; k < count; k += blockDim.x) held[k] = u64(first + k) < u64(n) ? x[first + k] : T(0);
}

template <typename T>
__device__ T* dynamic_shared() {
    extern __shared__ __align__(16) unsigned char bytes[];
    return reinterpret_cast<T*>(bytes);
}

// BARRIER is false in missing_barrier only.
template <typename T, bool BARRIER>
__global__ void shared_halo(const T* x, Out<T>* out, i64 n, int radius) {
    T* const held = dynamic_shared<T>();
    hold(held, x, n, i64(blockIdx.x) * blockDim.x - radius, blockDim.x + 2 * radius);
    if (BARRIER) __syncthreads();
    const i64 i = thread_number();
    if (i >= n) return;
    Full<T> sum = 0;
    for (int k = 0; k <= 2 * radius; ++k) sum += held[threadIdx.x + k];
    out[i] = Out<T>(sum);
}

// Broken: no bounds check; the wrapper pads both arrays, so that accesses outside stay in its own allocations.
template <typename T>
__global__ void past_the_end(const T* x, Out<T>* out, int radius) {
    const i64 i = thread_number();
    Full<T> sum = 0;
    for (i64 k = i - radius; k <= i + radius; ++k) sum += x[k];
    out[i] = Out<T>(sum);
}
