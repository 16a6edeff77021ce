// Transpose: out[column][row] = in[row][column]. Elements are moved as unsigned integers of their size, so that no bit
// changes; rows * columns may exceed 2^31.
//
// Variants, each with the same result:
//   naive            one thread per element: reads along a row, writes down a column
//   shared_tile      through a tile in shared memory: reads and writes global memory along rows
//   padded_tile      one more column in the tile: a column of it lies in as many banks as it has elements
//   production       the kernels of the job, in kernels/transpose: 16-byte loads and stores, several in flight
//   missing_barrier  padded_tile without its barrier; broken: a thread reads its element before another has stored it
//   past_the_end     naive without its guard; broken: threads of a ragged tile read and write past the end
//
// From the course: tiles of 32 x 32, one thread per element of a tile, one column of padding (TILE = 32).
// The grid is one-dimensional, tile after tile along the rows of `in`, so that no shape hits the limit of 65535 blocks
// in a second dimension.

#include "common/types.cuh"

struct Place {
    i64 row, column;
};

// First element of this block's tile.
template <int SIDE>
__device__ Place first_of_tile(i64 columns) {
    const unsigned across = unsigned((columns + SIDE - 1) / SIDE);
    return {i64(blockIdx.x / across) * SIDE, i64(blockIdx.x % across) * SIDE};
}

template <typename T, int TILE>
__global__ void __launch_bounds__(TILE * TILE) naive(const T* in, T* out, i64 rows, i64 columns) {
    const Place first = first_of_tile<TILE>(columns);
    const i64 row = first.row + threadIdx.y, column = first.column + threadIdx.x;
    if (row < rows && column < columns) out[column * rows + row] = in[row * columns + column];
}

template <typename T, int TILE>
__global__ void __launch_bounds__(TILE * TILE) shared_tile(const T* in, T* out, i64 rows, i64 columns) {
    __shared__ T tile[TILE][TILE];
    const Place first = first_of_tile<TILE>(columns);
    const i64 row = first.row + threadIdx.y, column = first.column + threadIdx.x;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = in[row * columns + column];
    __syncthreads();
    const i64 out_row = first.column + threadIdx.y, out_column = first.row + threadIdx.x;
    if (out_row < columns && out_column < rows) out[out_row * rows + out_column] = tile[threadIdx.x][threadIdx.y];
}

template <typename T, int TILE>
__global__ void __launch_bounds__(TILE * TILE) padded_tile(const T* in, T* out, i64 rows, i64 columns) {
    __shared__ T tile[TILE][TILE + 1];
    const Place first = first_of_tile<TILE>(columns);
    const i64 row = first.row + threadIdx.y, column = first.column + threadIdx.x;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = in[row * columns + column];
    __syncthreads();
    const i64 out_row = first.column + threadIdx.y, out_column = first.row + threadIdx.x;
    if (out_row < columns && out_column < rows) out[out_row * rows + out_column] = tile[threadIdx.x][threadIdx.y];
}

template <typename T, int TILE>
__global__ void __launch_bounds__(TILE * TILE) missing_barrier(const T* in, T* out, i64 rows, i64 columns) {
    __shared__ T tile[TILE][TILE + 1];
    const Place first = first_of_tile<TILE>(columns);
    const i64 row = first.row + threadIdx.y, column = first.column + threadIdx.x;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = in[row * columns + column];
    const i64 out_row = first.column + threadIdx.y, out_column = first.row + threadIdx.x;
    if (out_row < columns && out_column < rows) out[out_row * rows + out_column] = tile[threadIdx.x][threadIdx.y];
}

template <typename T, int TILE>
__global__ void __launch_bounds__(TILE * TILE) past_the_end(const T* in, T* out, i64 rows, i64 columns) {
    const Place first = first_of_tile<TILE>(columns);
    const i64 row = first.row + threadIdx.y, column = first.column + threadIdx.x;
    out[column * rows + row] = in[row * columns + column];
}
