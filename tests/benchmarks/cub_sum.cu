// CUB's sum of floats behind a C function, for one type of samples: -DSAMPLE=float. The one that gives the same bits on
// any GPU; it is in CCCL from 3.1 on.
#include <cub/device/device_reduce.cuh>

#include <cuda/std/execution>
#include <cuda/stream_ref>

// A CUDA error, or 0.
extern "C" int reproducible_sum(const SAMPLE* samples, int size, SAMPLE* sum, cudaStream_t stream) {
    const auto environment = cuda::std::execution::env{
        cuda::execution::require(cuda::execution::determinism::gpu_to_gpu), cuda::stream_ref{stream}};
    return int(cub::DeviceReduce::Sum(samples, sum, size, environment));
}
