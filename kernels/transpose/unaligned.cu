// Transpose of matrices with unaligned rows, of elements of 4 or 8 bytes: out[column][row] = in[row][column].
//
//   unaligned   element by element through a tile in shared memory, many loads in flight; in each row of `out` a tile
//               begins and ends at a sector boundary
//
// It is bound, as a copy is, by the traffic between the two halves of the L2 cache, in sectors of 32 bytes; a sector
// that two blocks touch counts twice. So tiles are large, and each sector of `out` is written by one block, which also
// reads the rows up to the first sector boundary in the tile below. Only a sector that two rows of `out` share is
// written by two blocks. Matrices whose columns are contiguous in `in` are treated as one.

#include "common/types.cuh"

constexpr int SECTOR = 32;
constexpr int RESIDENT = 1024;  // threads per multiprocessor, each with 64 registers: half of them hold loads in flight

// Elements from an address to the next sector boundary.
template <typename T> __device__ int before_sector(const T* at) {
    return int(u32(0 - reinterpret_cast<u64>(at)) % SECTOR / sizeof(T));
}

// Transposes any number of matrices along two axes, `inner` and outer, as in gpu.cu. In `out` each span of `span`
// columns lies `out_span` behind the one before it. Consecutive blocks go down a column of tiles, so that they write
// consecutive memory.
template <typename T, int ROWS, int COLUMNS, int THREADS>
__global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
unaligned(const T* __restrict__ in, T* __restrict__ out, i64 rows, i64 columns, i64 pitch_in, i64 pitch_out, i64 span,
       i64 out_span, i64 inner, i64 in_inner, i64 in_outer, i64 out_inner, i64 out_outer) {
    constexpr int HEIGHT = ROWS + SECTOR / int(sizeof(T)), WARPS = THREADS / 32;
    constexpr int LOADS = (HEIGHT + WARPS - 1) / WARPS, PIECES = COLUMNS / 32;
    constexpr int PITCH = COLUMNS + 1;  // odd: a warp that reads down a column hits every bank once
    static_assert(ROWS % 32 == 0 && COLUMNS % 32 == 0, "a warp has as many elements as lanes");
    extern __shared__ uint4 memory[];
    T* const stage = reinterpret_cast<T*>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 across = u32((columns + COLUMNS - 1) / COLUMNS), down = u32((rows + ROWS - 1) / ROWS);
    const u32 matrix = blockIdx.x / (across * down), tile = blockIdx.x % (across * down);
    const i64 row = i64(tile % down) * ROWS, column = i64(tile / down) * COLUMNS;
    const int height = int(min(rows - row, i64(HEIGHT))), width = int(min(columns - column, i64(COLUMNS)));
    in += matrix / inner * in_outer + matrix % inner * in_inner + row * pitch_in + column;
    out += matrix / inner * out_outer + matrix % inner * out_inner + row;

    // All of it is stored, also what was not loaded: with a condition the compiler would move each load to its store.
    T item[LOADS][PIECES] = {};
    const T* from = in + warp * pitch_in + lane;
#pragma unroll
    for (int n = 0; n < LOADS; ++n) {
#pragma unroll
        for (int p = 0; p < PIECES; ++p)
            if (warp + n * WARPS < height && p * 32 + lane < width) item[n][p] = __ldg(from + p * 32);
        from += WARPS * pitch_in;
    }
#pragma unroll
    for (int n = 0; n < LOADS; ++n)
#pragma unroll
        for (int p = 0; p < PIECES; ++p)
            if (warp + n * WARPS < HEIGHT) stage[(warp + n * WARPS) * PITCH + p * 32 + lane] = item[n][p];
    __syncthreads();

    const i64 first = column / span;
#pragma unroll 2
    for (int c = warp; c < width; c += WARPS) {
        // 32-bit division is enough: a span longer than a tile's width ends at most once within the tile.
        const i64 behind = column - first * span + c;
        const i64 spans = behind < span ? 0 : span > COLUMNS ? 1 : u32(behind) / u32(span);
        T* const to = out + (first + spans) * out_span + (behind - spans * span) * pitch_out;
        const int before = before_sector(to), stop = min(height, ROWS + before);
        if (row == 0 && lane < before && lane < stop) to[lane] = stage[lane * PITCH + c];
#pragma unroll
        for (int k = 0; k < ROWS / 32; ++k) {
            const int r = before + k * 32 + lane;
            if (r < stop) to[r] = stage[r * PITCH + c];
        }
    }
}
