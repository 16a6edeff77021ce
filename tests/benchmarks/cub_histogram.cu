// CUB's histogram behind a C function, for one type of samples: -DSAMPLE=int -DLEVEL=int.
#include <cub/device/device_histogram.cuh>

// Returns the bytes of scratch memory needed if `scratch` is null. Otherwise counts samples in bins of equal widths, or in
// those between `levels` if it is not null. Negative: a CUDA error.
extern "C" long long histogram(const SAMPLE* samples, long long size, int* counts, int bins, double lower, double upper,
                               const LEVEL* levels, void* scratch, size_t bytes, cudaStream_t stream) {
    const cudaError_t error =
        levels ? cub::DeviceHistogram::HistogramRange(scratch, bytes, samples, counts, bins + 1, levels, size, stream)
               : cub::DeviceHistogram::HistogramEven(scratch, bytes, samples, counts, bins + 1, LEVEL(lower),
                                                     LEVEL(upper), size, stream);
    return error == cudaSuccess ? (long long)(bytes) : -(long long)(error);
}
