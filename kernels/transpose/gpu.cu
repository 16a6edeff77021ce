// Transpose: out[column][row] = in[row][column]. Elements are moved as unsigned integers of their size, so that not one
// bit of them changes; rows * columns may pass 2^31.
//
// Variants, each with the same result:
//   naive            one thread per element: reads along a row, writes down a column
//   shared_tile      through a tile in shared memory: reads and writes global memory along rows
//   padded_tile      one more column in the tile: a column of it lies in as many banks as it has elements
//   production       16-byte loads and stores, several in flight per thread; narrow elements share a word of the tile
//   missing_barrier  padded_tile without its barrier; broken: a thread reads its element before another has stored it
//   past_the_end     naive without its guard; broken: threads of a ragged tile read and write past the end
//
// From the course: tiles of 32 x 32, one thread per element of a tile, one column of padding (TILE = 32).
// The grid has one dimension, tile after tile along the rows of `in`, so that no shape meets the limit of 65535 blocks
// that a second dimension has.

#include "transpose/tile.cuh"

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

// Threads of a multiprocessor: 2048 have 32 registers each, which is enough where rows are aligned. Rows that are not take
// twice as many, of the latest architecture more.
template <bool ALIGNED>
constexpr int RESIDENT = ALIGNED ? (THREADS_PER_SM == 2048 ? 2048 : 1024) : SM_120 ? 896 : 1024;

// Any number of matrices, of `inner` and the rest: where each of them begins, and its rows, is for the caller to say.
// ALIGNED_IN: rows of `in` begin and end on 16 bytes; else they are put together from packs that do. ALIGNED_OUT: rows of
// `out` do, too; else tiles begin in each row where a sector does. Ends of an array that is not
// aligned go element by element. Tile after tile goes down: what is written next lies behind what was.
template <typename T, int ROWS, int COLUMNS, int THREADS, bool ALIGNED_IN, bool ALIGNED_OUT>
__global__ void __launch_bounds__(THREADS, RESIDENT<ALIGNED_IN && ALIGNED_OUT> / THREADS)
production(const T* __restrict__ in, T* __restrict__ out, i64 rows, i64 columns, i64 pitch_in, i64 pitch_out, i64 inner,
           i64 in_inner, i64 in_outer, i64 out_inner, i64 out_outer) {
    using S = Stage<T, ROWS, COLUMNS, ALIGNED_OUT>;
    extern __shared__ uint4 room[];
    S& stage = *reinterpret_cast<S*>(room);
    const u32 across = u32((columns + COLUMNS - 1) / COLUMNS), down = u32((rows + ROWS - 1) / ROWS);
    const u32 matrix = blockIdx.x / (across * down), tile = blockIdx.x % (across * down);
    const i64 row = i64(tile % down) * ROWS, column = i64(tile / down) * COLUMNS;
    const i64 height = min(rows - row, i64(ROWS + S::MORE)), width = min(columns - column, i64(COLUMNS));
    const u64 begin = reinterpret_cast<u64>(in);
    const u64 end = reinterpret_cast<u64>(in + rows * columns * (gridDim.x / (across * down)));
    in += matrix / inner * in_outer + matrix % inner * in_inner + row * pitch_in + column;
    out += matrix / inner * out_outer + matrix % inner * out_inner + column * pitch_out + row;
    const u64 first = reinterpret_cast<u64>(in), behind = reinterpret_cast<u64>(in + (height - 1) * pitch_in + width);
    const bool within = ALIGNED_IN || (first / 16 * 16 >= begin && (behind + 15) / 16 * 16 <= end);
    if (within) load_packs<THREADS, ALIGNED_IN>(stage, in, pitch_in, height, width);
    else load_items<THREADS>(stage, in, pitch_in, height, width);
    __syncthreads();
    store_packs<THREADS, ALIGNED_OUT>(stage, out, pitch_out, height, width);
    if constexpr (!ALIGNED_OUT)
        if (row == 0 || height < ROWS + S::MORE)
            store_ends<THREADS>(stage, out, pitch_out, height, width, row == 0);
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
