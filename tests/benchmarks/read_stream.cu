// Reads an array once and does nothing with it: the limit of every kernel that reads its input once.
//
//   read_stream    16-byte streaming loads, four in flight, persistent grid: the access pattern of histogram.cu

extern "C" __global__ void __launch_bounds__(1024, 2) read_stream(const uint4* data, long long packs, unsigned* sink) {
    unsigned seen = 0;
    const long long stride = (long long)gridDim.x * blockDim.x * 4;
    for (long long i = (long long)blockIdx.x * blockDim.x * 4 + threadIdx.x; i + 3 * blockDim.x < packs; i += stride) {
        uint4 pack[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) pack[k] = __ldcs(data + i + k * blockDim.x);
#pragma unroll
        for (int k = 0; k < 4; ++k) seen ^= pack[k].x ^ pack[k].y ^ pack[k].z ^ pack[k].w;
    }
    if (seen == 0x9e3779b9u) atomicAdd(sink, 1u);  // practically never, but the compiler cannot know
}
