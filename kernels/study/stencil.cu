// Stencil: out[i] = x[i - radius] + ... + x[i + radius], and x is zero outside of the array.
//
// Variants, each with the same result; radius is that of the course (3 and 1000), block the threads of a block:
//   global_memory    one output per thread, every sample read from global memory
//   shared_halo      the block's samples and a halo of radius on both sides in shared memory
//   production       additions shared between neighbours: end of a stretch + common core + start of the next
//   missing_barrier  shared_halo without __syncthreads; broken: sums read samples that are not there yet
//   past_the_end     global_memory without a guard; broken: reads and writes outside of the array
//
// int samples are summed in i64 and float ones in double, rounded once at the end. Every variant adds each sample of
// the window once and nothing else, and never subtracts: integers are exact, an infinity or a NaN stays in its windows,
// and a float sum of w samples is off by at most (w - 1) * 2^-53 times the sum of their magnitudes, to first order.

#include "common/stream.cuh"

template <typename T>
struct Sum {
    using in_full = double;  // what samples are summed in
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

// Samples first .. first + count - 1 into shared memory, zeros where there are none.
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

// Sums of the values of all lanes of a group before this one (STEP 1: below it, -1: above it); lanes of a group are
// consecutive.
template <int LANES, int STEP, typename S>
__device__ S sum_before(S value) {
    const int lane = threadIdx.x % LANES;
    const int place = STEP > 0 ? lane : LANES - 1 - lane;
#pragma unroll
    for (int k = 1; k < LANES; k *= 2) {
        const S other = STEP > 0 ? __shfl_up_sync(~0u, value, k, LANES) : __shfl_down_sync(~0u, value, k, LANES);
        if (place >= k) value += other;
    }
    const S before = STEP > 0 ? __shfl_up_sync(~0u, value, 1, LANES) : __shfl_down_sync(~0u, value, 1, LANES);
    return place ? before : S(0);
}

template <int LANES, typename S>
__device__ S sum_of_group(S value) {
#pragma unroll
    for (int k = LANES / 2; k > 0; k /= 2) value += __shfl_xor_sync(~0u, value, k, LANES);
    return value;
}

// A group of LANES threads has LENGTH = LANES * ITEMS consecutive outputs. With s[k] the samples from the first one's
// window on, output i is
//     (s[i] + ... + s[LENGTH - 2])  +  (s[LENGTH - 1] + ... + s[2r])  +  (s[2r + 1] + ... + s[2r + i]):
// the core in the middle is in all their windows, and the ends of one stretch and the starts of the other are two scans
// for the whole group. That is 2 + (2r + 1) / LENGTH additions per output, not 2r + 1.
template <typename T, int LANES, int ITEMS>
__global__ void __launch_bounds__(256)
production(const T* x, Out<T>* out, i64 n, int radius) {
    static_assert(32 % LANES == 0, "a group lies within a warp");
    static_assert(ITEMS % 2 == 1, "an odd stride keeps lanes on different banks of shared memory");
    constexpr int LENGTH = LANES * ITEMS;  // 2 * radius + 2 at most: the wrapper chooses
    constexpr int WARP = 32 * ITEMS;       // outputs of a warp
    T* const held = dynamic_shared<T>();
    const int tile = blockDim.x * ITEMS;
    const i64 first = i64(blockIdx.x) * tile;
    hold(held, x, n, first - radius, tile + 2 * radius);
    __syncthreads();

    const int lane = threadIdx.x % LANES;
    const T* const s = held + (threadIdx.x - lane) * ITEMS;
    Full<T> core = 0;
    for (int k = LENGTH - 1 + lane; k <= 2 * radius; k += LANES) core += s[k];
    Full<T> sum[ITEMS];
    Full<T> start = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        const int i = lane * ITEMS + j;
        if (i > 0) start += s[2 * radius + i];
        sum[j] = start;
    }
    Full<T> end = 0;
#pragma unroll
    for (int j = ITEMS - 1; j >= 0; --j) {
        const int i = lane * ITEMS + j;
        if (i < LENGTH - 1) end += s[i];
        sum[j] += end;
    }
    core = sum_of_group<LANES>(core) + sum_before<LANES, 1>(start) + sum_before<LANES, -1>(end);
    __syncthreads();  // the samples are used up: their place is taken by the sums, so that a warp writes them in order

    const int warp = threadIdx.x / 32;
    Out<T>* const ordered = dynamic_shared<Out<T>>() + warp * WARP;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) ordered[threadIdx.x % 32 * ITEMS + j] = Out<T>(sum[j] + core);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        const int k = j * 32 + threadIdx.x % 32;
        const i64 i = first + warp * WARP + k;
        if (i < n) out[i] = ordered[k];
    }
}

// Broken: the wrapper sees to it that what is read and written outside belongs to nobody else.
template <typename T>
__global__ void past_the_end(const T* x, Out<T>* out, int radius) {
    const i64 i = thread_number();
    Full<T> sum = 0;
    for (i64 k = i - radius; k <= i + radius; ++k) sum += x[k];
    out[i] = Out<T>(sum);
}
