// The limits that kernels are compared with, and a kernel that clears the cache between measurements.
//
//   read_stream     reads an array once as histogram/gpu.cu does: the limit of every kernel that reads its input once
//   displace_cache  reads an array once by ordinary loads, which evict whatever was in the cache
//   merge           reads some arrays once and writes one: the limit of every kernel with as many inputs and one output

#include "common/stream.cuh"

// Practically never true, but the compiler cannot tell, and so cannot drop the loads.
__device__ void keep(u32 seen, u32* sink) {
    if (seen == 0x9e3779b9u) atomicAdd(sink, 1u);
}

__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) read_stream(const u32* data, i64 n, u32* sink) {
    u32 seen = 0;
    for_each_sample(data, n, [&](u32 x) { seen ^= x; });
    keep(seen, sink);
}

__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) displace_cache(const u32* data, i64 n, u32* sink) {
    u32 seen = 0;
    const i64 stride = i64(gridDim.x) * THREADS;
#pragma unroll 8
    for (i64 i = i64(blockIdx.x) * THREADS + threadIdx.x; i < n; i += stride) seen ^= data[i];
    keep(seen, sink);
}

constexpr int MERGE_THREADS = 256;

// One 16-byte pack of each array per thread; only the first SOURCES arrays are read. Ordinary loads: on an H200,
// streaming ones (__ldcs) take 3 % longer next to one array that is written, 6 % next to more.
template <int SOURCES>
__global__ void __launch_bounds__(MERGE_THREADS)
merge(const u32* a, const u32* b, const u32* c, u32* out, i64 packs) {
    const i64 i = i64(blockIdx.x) * MERGE_THREADS + threadIdx.x;
    if (i >= packs) return;
    const u32* const sources[] = {a, b, c};
    uint4 read[SOURCES], sum{};
#pragma unroll
    for (int k = 0; k < SOURCES; ++k) read[k] = reinterpret_cast<const uint4*>(sources[k])[i];
#pragma unroll
    for (int k = 0; k < SOURCES; ++k)
        sum = {sum.x ^ read[k].x, sum.y ^ read[k].y, sum.z ^ read[k].z, sum.w ^ read[k].w};
    reinterpret_cast<uint4*>(out)[i] = sum;
}
