// Clipping: count the samples at either end of what the converter can say.

template <typename T>
__global__ void clipping(const T* samples, long long n, T lowest, T highest, unsigned long long* counts) {
    unsigned long long low = 0, high = 0;
    const long long threads = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
        low += samples[i] <= lowest;
        high += samples[i] >= highest;
    }
    if (low) atomicAdd(counts, low);
    if (high) atomicAdd(counts + 1, high);
}
