// Transpose: out[column][row] = in[row][column]. Elements are moved as unsigned integers of their size, so that every
// bit is kept; rows * columns may exceed 2^31.
//
//   tiled   16-byte loads and stores, several in flight per thread; narrow elements share a word of the tile
//
// The grid has one dimension, so that no shape runs into the limit of 65535 blocks along a second one.

#include "transpose/tile.cuh"

// Resident threads per multiprocessor. 2048 threads have 32 registers each, which is enough where rows are aligned;
// other rows take twice as many, and more on SM 12.0.
template <bool ALIGNED>
constexpr int RESIDENT = ALIGNED ? (THREADS_PER_SM == 2048 ? 2048 : 1024) : SM_120 ? 896 : 1024;

// Transposes any number of matrices along two axes, `inner` and outer, with the strides given. ALIGNED_IN: rows of `in`
// begin and end on 16 bytes; otherwise packs are shifted together from two aligned ones. ALIGNED_OUT: the same of rows
// of `out`; otherwise a tile begins in each row at a sector boundary. The ends of unaligned arrays are moved element by
// element. Consecutive blocks go down a column of tiles, so that they write consecutive memory.
template <typename T, int ROWS, int COLUMNS, int THREADS, bool ALIGNED_IN, bool ALIGNED_OUT>
__global__ void __launch_bounds__(THREADS, RESIDENT<ALIGNED_IN && ALIGNED_OUT> / THREADS)
tiled(const T* __restrict__ in, T* __restrict__ out, i64 rows, i64 columns, i64 pitch_in, i64 pitch_out, i64 inner,
           i64 in_inner, i64 in_outer, i64 out_inner, i64 out_outer) {
    using S = Stage<T, ROWS, COLUMNS, ALIGNED_OUT>;
    extern __shared__ uint4 memory[];
    S& stage = *reinterpret_cast<S*>(memory);
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
