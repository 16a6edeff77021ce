// Histograms of 10-bit samples. A sample outside of [0, 1024) is not counted.
//
// Variants, naive first; blocks, threads and slice as in the course:
//   global_atomics   a slice of the samples per thread, counters in global memory
//   unrolled         global_atomics, its loop unrolled 512 times
//   ilp              global_atomics, four samples per iteration by hand
//   one_per_thread   no slice and no loop: a thread per sample
//   course_slices    global_atomics as the course writes it: no guard, 32-bit counters, sizes that divide
//   course_unrolled  course_slices, its loop unrolled 512 times
//   course_ilp       course_slices, four samples per iteration by hand
//   shared           slices again, counters in the block's shared memory, added to the global ones at the end
//   inverse          a thread per value, which counts it in the samples that its block holds in shared memory
//   banks            inverse, as many samples held as there are threads, occurrences in a register
//   banks2           banks, two values per thread
//   banks4           banks, four values per thread
//   banks_if         banks with a conditional increment in place of an arithmetic one
//   banks_xor        banks with the exclusive or that the course tries in place of a comparison
//   production       the kernels of the job, in histogram/gpu.cu: shared with enough 16-byte loads in flight
//   no_barrier       shared without __syncthreads; broken: counts while counters are cleared, adds while others count
//   plain_add        global_atomics without atomicAdd; broken: threads overwrite each other's increments
//   past_the_end     global_atomics without a guard; broken: counts what lies behind the samples
//
// All of them are templates, so that only the requested instances are compiled.

#include "common/stream.cuh"

constexpr int VALUES = 1024;  // of a 10-bit sample

template <typename T>
__device__ void count_global(u64* counts, T sample) {
    if (u64(i64(sample)) < VALUES) atomicAdd(counts + sample, u64(1));
}

// First sample and length of a thread's slice; the length is 0 past the end.
struct Slice {
    i64 start;
    int length;

    __device__ Slice(i64 number, int slice, i64 n)
        : start(number * slice), length(start < n ? int(min(i64(slice), n - start)) : 0) {}
};

inline __device__ i64 thread_number() { return i64(blockIdx.x) * blockDim.x + threadIdx.x; }

template <typename T>
__global__ void global_atomics(const T* samples, i64 n, u64* counts, int slice) {
    const Slice mine(thread_number(), slice, n);
    for (int i = 0; i < mine.length; ++i) count_global(counts, samples[mine.start + i]);
}

template <typename T>
__global__ void unrolled(const T* samples, i64 n, u64* counts, int slice) {
    const Slice mine(thread_number(), slice, n);
#pragma unroll 512
    for (int i = 0; i < mine.length; ++i) count_global(counts, samples[mine.start + i]);
}

template <typename T>
__global__ void ilp(const T* samples, i64 n, u64* counts, int slice) {
    const Slice mine(thread_number(), slice, n);
    int i = 0;
    for (; i + 4 <= mine.length; i += 4) {
        count_global(counts, samples[mine.start + i]);
        count_global(counts, samples[mine.start + i + 1]);
        count_global(counts, samples[mine.start + i + 2]);
        count_global(counts, samples[mine.start + i + 3]);
    }
    for (; i < mine.length; ++i) count_global(counts, samples[mine.start + i]);
}

template <typename T>
__global__ void one_per_thread(const T* samples, i64 n, u64* counts) {
    const i64 i = thread_number();
    if (i < n) count_global(counts, samples[i]);
}

// The course's own loops: a sample takes a load, a multiply-add for the address of its counter, and a reduction. A
// sample outside of [0, 1024) counts somewhere else in memory, so the wrapper looks for such samples first.
template <typename T>
__global__ void course_slices(const T* samples, int* counts, int slice) {
    const int start = (blockIdx.x * blockDim.x + threadIdx.x) * slice;
    for (int i = 0; i < slice; ++i) atomicAdd(counts + samples[start + i], 1);
}

template <typename T>
__global__ void course_unrolled(const T* samples, int* counts, int slice) {
    const int start = (blockIdx.x * blockDim.x + threadIdx.x) * slice;
#pragma unroll 512
    for (int i = 0; i < slice; ++i) atomicAdd(counts + samples[start + i], 1);
}

template <typename T>
__global__ void course_ilp(const T* samples, int* counts, int slice) {
    const int start = (blockIdx.x * blockDim.x + threadIdx.x) * slice;
    for (int i = 0; i < slice; i += 4) {
        atomicAdd(counts + samples[start + i], 1);
        atomicAdd(counts + samples[start + i + 1], 1);
        atomicAdd(counts + samples[start + i + 2], 1);
        atomicAdd(counts + samples[start + i + 3], 1);
    }
}

// BARRIERS is false in no_barrier only.
template <typename T, bool BARRIERS>
__global__ void shared(const T* samples, i64 n, u64* counts, int slice) {
    __shared__ u32 local[VALUES];
    for (int value = threadIdx.x; value < VALUES; value += blockDim.x) local[value] = 0;
    if (BARRIERS) __syncthreads();  // no thread counts before all counters are zero
    const Slice mine(thread_number(), slice, n);
    for (int i = 0; i < mine.length; ++i) {
        const T sample = samples[mine.start + i];
        if (u64(i64(sample)) < VALUES) atomicAdd(local + sample, 1u);
    }
    if (BARRIERS) __syncthreads();  // no counter is read before all threads have counted
    for (int value = threadIdx.x; value < VALUES; value += blockDim.x) atomicAdd(counts + value, u64(local[value]));
}

// A block has VALUES threads; here `slice` counts the samples that the whole block holds in dynamic shared memory.
template <typename T>
__global__ void inverse(const T* samples, i64 n, u64* counts, int slice) {
    static_assert(sizeof(T) <= sizeof(int), "samples are held as int");
    extern __shared__ int held[];
    __shared__ u32 local[VALUES];
    const int value = threadIdx.x;
    const Slice ours(blockIdx.x, slice, n);
    local[value] = 0;
    for (int i = threadIdx.x; i < ours.length; i += blockDim.x) held[i] = samples[ours.start + i];
    __syncthreads();
    for (int i = 0; i < ours.length; ++i) {
        if (held[i] == value) ++local[value];
    }
    atomicAdd(counts + value, u64(local[value]));
}

// A block has VALUES / EACH threads and holds VALUES samples; all lanes read the same one, which is a broadcast.
template <typename T, int EACH>
__global__ void banks(const T* samples, i64 n, u64* counts) {
    static_assert(sizeof(T) <= sizeof(int), "samples are held as int");
    static_assert(VALUES % EACH == 0, "the values are shared out evenly");
    constexpr int STRIDE = VALUES / EACH;
    __shared__ int held[VALUES];
    const i64 start = i64(blockIdx.x) * VALUES;
    u32 occurrences[EACH] = {};
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const int i = threadIdx.x + k * STRIDE;
        held[i] = start + i < n ? int(samples[start + i]) : -1;  // -1 is no thread's value
    }
    __syncthreads();
    for (int i = 0; i < VALUES; ++i) {
        const int sample = held[i];
#pragma unroll
        for (int k = 0; k < EACH; ++k) occurrences[k] += sample == int(threadIdx.x) + k * STRIDE;
    }
#pragma unroll
    for (int k = 0; k < EACH; ++k) atomicAdd(counts + threadIdx.x + k * STRIDE, u64(occurrences[k]));
}

template <typename T, bool XOR>
__global__ void banks_if(const T* samples, i64 n, u64* counts) {
    static_assert(sizeof(T) <= sizeof(int), "samples are held as int");
    __shared__ int held[VALUES];
    const i64 start = i64(blockIdx.x) * VALUES;
    const int value = threadIdx.x;
    u32 occurrences = 0;
    held[value] = start + value < n ? int(samples[start + value]) : -1;  // -1 is no thread's value
    __syncthreads();
    for (int i = 0; i < VALUES; ++i) {
        if (XOR) {
            occurrences += value ^ held[i] ? 0 : 1;
        } else if (value == held[i]) {
            ++occurrences;
        }
    }
    atomicAdd(counts + value, u64(occurrences));
}

// Broken: two threads that read the same counter write the same successor, and one count is lost.
template <typename T>
__global__ void plain_add(const T* samples, i64 n, u64* counts, int slice) {
    const Slice mine(thread_number(), slice, n);
    for (int i = 0; i < mine.length; ++i) {
        const T sample = samples[mine.start + i];
        if (u64(i64(sample)) < VALUES) ++counts[sample];
    }
}

// Broken: no bounds check; the wrapper pads the samples, so that out-of-bounds reads stay in its own allocation.
template <typename T>
__global__ void past_the_end(const T* samples, u64* counts, int slice) {
    const i64 start = thread_number() * slice;
    for (int i = 0; i < slice; ++i) count_global(counts, samples[start + i]);
}
