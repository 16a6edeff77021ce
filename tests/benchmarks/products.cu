// Rate of separately rounded products and sums in registers: the limit of weighted windows.

template <typename T> __global__ void __launch_bounds__(256) products(T* out, T factor, T term, int rounds) {
    constexpr int COUNT = 16;  // independent chains per thread
    T x[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) x[k] = T(threadIdx.x + k);
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) x[k] = x[k] * factor + term;
    }
    T sum = 0;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) sum += x[k];
    out[blockIdx.x * 256 + threadIdx.x] = sum;
}
