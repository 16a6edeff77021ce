// CUB's sum of floats behind a C function, for one type of samples: -DSAMPLE=float. The variant with the same bits on
// every GPU, in CCCL since 3.1.
#include <cub/device/device_reduce.cuh>

#include <cuda/std/execution>
#include <cuda/stream_ref>

// Returns a CUDA error, or 0.
extern "C" int reproducible_sum(const SAMPLE* samples, int size, SAMPLE* sum, cudaStream_t stream) {
    const auto environment = cuda::std::execution::env{
        cuda::execution::require(cuda::execution::determinism::gpu_to_gpu), cuda::stream_ref{stream}};
    return int(cub::DeviceReduce::Sum(samples, sum, size, environment));
}
