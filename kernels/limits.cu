// The limits that kernels are measured against, and what is launched around a measurement.
//
//   read_stream     reads an array once as histogram.cu does: the limit of every kernel that reads its input once
//   displace_cache  reads an array once by ordinary loads, so that it takes the place of whatever was in the cache

#include "stream.cuh"

// Practically never true, but the compiler cannot know, and so cannot drop the loads.
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
