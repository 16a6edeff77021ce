// Matrix product: C = A B, with A of rows x inner and B of inner x columns, all row-major.
//
// Variants, all but `production` and `cublas` with the same bits for the same A and B:
//   blocks_1d        one thread per element of C, in blocks along its rows
//   blocks_2d        blocks of x by y, x along the columns: a warp reads B and writes C side by side
//   uncoalesced      blocks_2d with x and y exchanged: neighbours in a warp are whole rows apart in memory
//   rolled           blocks_2d with the loop over k as written: the compiler unrolls no part of it
//   unrolled         blocks_2d with the loop over k unrolled
//   whole_rows       the rows of A and the columns of B that a block needs, whole, in shared memory
//   unrolled_rows    whole_rows with the loop over k unrolled
//   shared_tile      square tiles of A and B in shared memory, x wide, one after the other
//   shared_sums      shared_tile with the sums of C in shared memory, too, instead of a register per thread
//   register_tiled   micro x micro elements per thread, 16-byte loads, the next tile in flight during this one
//   production       the kernels of the job, in kernels/matmul: exact sums by residues, rounded once
//   cublas           cuBLAS with TF32 off, in an order of its own: the yardstick, no kernel of this file
//   past_the_end     blocks_2d with k up to inner; broken: reads one element past the end of each row and column
//   missing_barrier  shared_tile without its second barrier; broken: a tile is replaced while others still read it
//   stale_tile       shared_tile that fills only what exists; broken: past a ragged edge the tile before is multiplied
//
// From the courses: x of blocks_1d (blockDim.x), x and y of the blocks in two dimensions (blockDim.x, blockDim.y), x of
// shared_tile (X); `micro` is ours.
//
// Bits are the same because each element is one chain of fused multiply-adds, k = 0, 1, ..., inner - 1, starting at +0.
// Tiles are padded with -0 in A and +0 in B: adding their product, -0, changes no sum, not even -0.
// past_the_end gets padded copies of A and B, so that its out-of-bounds reads stay in its own memory.

#include "study/matmul_register.cuh"

constexpr int MAX_THREADS = 1024;  // per block: limits a thread's registers so that such a block fits

// Dot product of a row of A and a column of B, whose elements are `stride` apart.
template <typename T>
__device__ T dot(const T* __restrict__ row, const T* __restrict__ column, i64 inner, i64 stride) {
    T sum = 0;
    for (i64 k = 0; k < inner; ++k) sum = fma(row[k], column[k * stride], sum);
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
blocks_1d(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    const i64 element = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 row = element / columns, column = element % columns;
    if (row < rows) c[element] = dot(a + row * inner, b + column, inner, columns);
}

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
blocks_2d(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 row = i64(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) c[row * columns + column] = dot(a + row * inner, b + column, inner, columns);
}

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
uncoalesced(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    const i64 row = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 column = i64(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) c[row * columns + column] = dot(a + row * inner, b + column, inner, columns);
}

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
unrolled(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 row = i64(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    T sum = 0;
#pragma unroll 16
    for (i64 k = 0; k < inner; ++k) sum = fma(a[row * inner + k], b[k * columns + column], sum);
    c[row * columns + column] = sum;
}

// The same with the loop unrolled so many times, once for not at all.
template <int TIMES, typename T>
__device__ T dot_unrolled(const T* __restrict__ row, const T* __restrict__ column, i64 inner, i64 stride) {
    T sum = 0;
#pragma unroll TIMES
    for (i64 k = 0; k < inner; ++k) sum = fma(row[k], column[k * stride], sum);
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
rolled(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 row = i64(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) {
        c[row * columns + column] = dot_unrolled<1>(a + row * inner, b + column, inner, columns);
    }
}

// Dynamic shared memory: (blockDim.x + blockDim.y) * inner elements.
template <typename T, bool UNROLLED>
__device__ void by_rows(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner,
                        i64 columns) {
    extern __shared__ double shared[];
    T* const rows_of_a = reinterpret_cast<T*>(shared);       // [blockDim.y][inner]
    T* const columns_of_b = rows_of_a + blockDim.y * inner;  // [inner][blockDim.x]
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 row = i64(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row < rows) {
        for (i64 k = threadIdx.x; k < inner; k += blockDim.x) rows_of_a[threadIdx.y * inner + k] = a[row * inner + k];
    }
    if (column < columns) {
        for (i64 k = threadIdx.y; k < inner; k += blockDim.y) {
            columns_of_b[k * blockDim.x + threadIdx.x] = b[k * columns + column];
        }
    }
    __syncthreads();
    if (row < rows && column < columns) {
        const T* const row_of_a = rows_of_a + threadIdx.y * inner;
        const T* const column_of_b = columns_of_b + threadIdx.x;
        c[row * columns + column] = UNROLLED ? dot_unrolled<16>(row_of_a, column_of_b, inner, blockDim.x)
                                             : dot(row_of_a, column_of_b, inner, blockDim.x);
    }
}

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
whole_rows(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    by_rows<T, false>(a, b, c, rows, inner, columns);
}

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
unrolled_rows(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    by_rows<T, true>(a, b, c, rows, inner, columns);
}

template <typename T, int X, bool SECOND_BARRIER>
__device__ void by_tiles(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner,
                         i64 columns) {
    static_assert(X * X <= MAX_THREADS, "a block has a thread for each element of a tile");
    __shared__ T tile_a[X][X], tile_b[X][X];
    const i64 column = i64(blockIdx.x) * X + threadIdx.x;
    const i64 row = i64(blockIdx.y) * X + threadIdx.y;
    T sum = 0;
    for (i64 first = 0; first < inner; first += X) {
        const i64 k_a = first + threadIdx.x, k_b = first + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < rows && k_a < inner ? a[row * inner + k_a] : T(-0.0);
        tile_b[threadIdx.y][threadIdx.x] = k_b < inner && column < columns ? b[k_b * columns + column] : T(0);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < X; ++k) sum = fma(tile_a[threadIdx.y][k], tile_b[k][threadIdx.x], sum);
        if (SECOND_BARRIER) __syncthreads();
    }
    if (row < rows && column < columns) c[row * columns + column] = sum;
}

template <typename T, int X>
__global__ void __launch_bounds__(X * X)
shared_tile(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    by_tiles<T, X, true>(a, b, c, rows, inner, columns);
}

// Volatile, so that the compiler keeps no sum in a register.
template <typename T, int X>
__global__ void __launch_bounds__(X * X)
shared_sums(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    __shared__ T tile_a[X][X], tile_b[X][X];
    __shared__ volatile T sums[X][X];
    const i64 column = i64(blockIdx.x) * X + threadIdx.x;
    const i64 row = i64(blockIdx.y) * X + threadIdx.y;
    sums[threadIdx.y][threadIdx.x] = 0;
    for (i64 first = 0; first < inner; first += X) {
        const i64 k_a = first + threadIdx.x, k_b = first + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < rows && k_a < inner ? a[row * inner + k_a] : T(-0.0);
        tile_b[threadIdx.y][threadIdx.x] = k_b < inner && column < columns ? b[k_b * columns + column] : T(0);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < X; ++k) {
            sums[threadIdx.y][threadIdx.x] =
                fma(tile_a[threadIdx.y][k], tile_b[k][threadIdx.x], T(sums[threadIdx.y][threadIdx.x]));
        }
        __syncthreads();
    }
    if (row < rows && column < columns) c[row * columns + column] = sums[threadIdx.y][threadIdx.x];
}

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
past_the_end(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 row = i64(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) {
        c[row * columns + column] = dot(a + row * inner, b + column, inner + 1, columns);
    }
}

template <typename T, int X>
__global__ void __launch_bounds__(X * X)
missing_barrier(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    by_tiles<T, X, false>(a, b, c, rows, inner, columns);
}

// As the course has it, but for its special case of a single last column.
template <typename T, int X>
__global__ void __launch_bounds__(X * X)
stale_tile(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    __shared__ T tile_a[X][X], tile_b[X][X];
    const i64 column = i64(blockIdx.x) * X + threadIdx.x;
    const i64 row = i64(blockIdx.y) * X + threadIdx.y;
    T sum = 0;
    for (i64 first = 0; first < inner; first += X) {
        const i64 k_a = first + threadIdx.x, k_b = first + threadIdx.y;
        if (row < rows && k_a < inner) tile_a[threadIdx.y][threadIdx.x] = a[row * inner + k_a];
        if (k_b < inner && column < columns) tile_b[threadIdx.y][threadIdx.x] = b[k_b * columns + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < X; ++k) sum = fma(tile_a[threadIdx.y][k], tile_b[k][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < rows && column < columns) c[row * columns + column] = sum;
}
