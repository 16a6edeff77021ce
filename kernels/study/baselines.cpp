// What the kernels are measured against on a CPU: one thread and plain loops, as the courses begin.
#include <cstdint>

namespace {

template <typename T>
void add(const T* a, const T* b, T* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

// One addition after the other: without permission to reorder sums, the compiler keeps their order.
template <typename T>
double sum(const T* samples, int64_t n) {
    double total = 0;
    for (int64_t i = 0; i < n; ++i) total += samples[i];
    return total;
}

template <typename T>
void transpose(const T* in, T* out, int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) out[column * rows + row] = in[row * columns + column];
    }
}

// Row by column, k innermost.
template <typename T>
void product(const T* a, const T* b, T* c, int64_t rows, int64_t inner, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
            T total = 0;
            for (int64_t k = 0; k < inner; ++k) total += a[row * inner + k] * b[k * columns + column];
            c[row * columns + column] = total;
        }
    }
}

}  // namespace

extern "C" {

// Samples outside of [0, 1024) are not counted.
void histogram_loop(const int32_t* samples, int64_t* counts, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        if (uint32_t(samples[i]) < 1024) ++counts[samples[i]];
    }
}
void add_float32(const float* a, const float* b, float* out, int64_t n) { add(a, b, out, n); }
double sum_float32(const float* samples, int64_t n) { return sum(samples, n); }
void transpose_float32(const float* in, float* out, int64_t rows, int64_t columns) { transpose(in, out, rows, columns); }
void product_float32(const float* a, const float* b, float* c, int64_t rows, int64_t inner, int64_t columns) {
    product(a, b, c, rows, inner, columns);
}
void product_float64(const double* a, const double* b, double* c, int64_t rows, int64_t inner, int64_t columns) {
    product(a, b, c, rows, inner, columns);
}
}
