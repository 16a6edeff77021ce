// Transpose: out[column][row] = in[row][column]. Elements are moved as unsigned integers of their size, so that not one
// bit of them changes; rows * columns may pass 2^31.
//
//   production       16-byte loads and stores, several in flight per thread; narrow elements share a word of the tile
//
// The grid has one dimension, tile after tile, so that no shape meets the limit of 65535 blocks that a second dimension
// has.

#include "transpose/tile.cuh"

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
