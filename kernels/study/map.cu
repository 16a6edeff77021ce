// Elementwise: out[i] = a[i] + b[i], and the other operations of two or three arrays, with the bits that NumPy gives.
//
// Variants, each with the same result (`product` multiplies):
//   one_thread    one thread adds all elements, one after the other
//   one_block     one block: thread i adds elements i, i + blockDim, ...
//   grid          many blocks: one element per thread
//   matrix_2d     blocks and grid in two dimensions: thread (x, y) adds element (row y, column x)
//   product       element by element product in one block with as many threads as elements
//   production    the kernel of the job, in map/gpu.cu: any operation; 16-byte loads and stores
//   no_index      one_block without an index; broken: every thread adds every element, in place, over the others
//   past_the_end  grid without its guard; broken: threads beyond the last element write into what lies behind it
//
// From the courses: 1 and 256 threads in one block; blocks of 1024 threads, one per element; blocks of 32 x 32 threads
// for matrices (all the `block` of the wrapper); one block of 400 threads for the product of 400 elements.

#include "map/operations.cuh"

template <typename T>
__global__ void one_thread(const T* a, const T* b, T* out, i64 n) {
    for (i64 i = 0; i < n; ++i) out[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void one_block(const T* a, const T* b, T* out, i64 n) {
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) out[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void grid(const T* a, const T* b, T* out, i64 n) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void matrix_2d(const T* a, const T* b, T* out, i64 rows, i64 columns) {
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 row = i64(blockIdx.y) * blockDim.y + threadIdx.y;
    const i64 i = row * columns + column;
    if (row < rows && column < columns) out[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void product(const T* a, const T* b, T* out, i64 n) {
    const i64 i = threadIdx.x;
    if (i < n) out[i] = Multiply::of(a[i], b[i], T());
}

template <typename T>
__global__ void no_index(const T* a, T* b, i64 n) {
    for (i64 i = 0; i < n; ++i) b[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void past_the_end(const T* a, const T* b, T* out) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    out[i] = Add::of(a[i], b[i], T());
}
