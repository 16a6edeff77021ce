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

using i64 = long long;

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

constexpr int THREADS = 256;  // of the production kernel
constexpr int LANES_ACROSS = 8, LANES_DOWN = 4;  // 8 packs of 16 bytes are a whole line of global memory

// Shared memory does no better with one or two bytes than with four: a word holds as many rows of a column as fit.
template <typename T> struct Word { using type = T; };
template <> struct Word<unsigned char> { using type = unsigned int; };
template <> struct Word<unsigned short> { using type = unsigned int; };

// The tile of the production kernel, column by column: PER_WORD rows to a word.
template <typename T, int SIDE>
struct Stage {
    static constexpr int PER_WORD = sizeof(typename Word<T>::type) / sizeof(T);
    static constexpr int PER_PACK = 16 / sizeof(T);
    static constexpr int WORDS_PER_PACK = PER_PACK / PER_WORD;
    static constexpr int PACKS = SIDE / PER_PACK;   // along a row, of `in` and of `out`
    static constexpr int GROUPS = SIDE / PER_WORD;  // words of a column
    static constexpr int WORDS = SIDE * (GROUPS + 1) + SIDE / 32 * 4;
    static_assert(PACKS % LANES_ACROSS == 0, "a warp covers 8 whole packs of a row");
    static_assert(GROUPS % LANES_DOWN == 0, "a warp covers 4 whole groups of rows");
    static_assert(PACKS * GROUPS % THREADS == 0, "every thread moves as many packs as any other");
    static_assert(WORDS * sizeof(typename Word<T>::type) <= 48 * 1024, "static shared memory ends at 48 KiB");

    union {
        typename Word<T>::type word[WORDS];
        T item[WORDS * PER_WORD];
    };

    // One word of padding after a column; after 32 columns the paddings are back in bank 0, and 4 more move on. With
    // lanes placed as by `spot` no two of them meet in a bank, whatever the size of T, neither writing nor reading.
    __device__ static int at(int column, int group) { return column * (GROUPS + 1) + column / 32 * 4 + group; }
    __device__ static int at_item(int column, int row) {
        return at(column, row / PER_WORD) * PER_WORD + row % PER_WORD;
    }
};

struct Spot {
    int across, down;
};

// The lanes of a warp side by side: 8 packs of each of 4 rows, patch after patch of a field ACROSS packs wide.
template <int ACROSS>
__device__ Spot spot(int unit) {
    constexpr int PATCHES = ACROSS / LANES_ACROSS;
    const int patch = unit / 32, lane = unit % 32;
    return {patch % PATCHES * LANES_ACROSS + lane % LANES_ACROSS, patch / PATCHES * LANES_DOWN + lane / LANES_ACROSS};
}

template <typename T, int SIDE>
__device__ void load_packs(Stage<T, SIDE>& stage, const T* __restrict__ in, Place first, i64 rows, i64 columns) {
    using S = Stage<T, SIDE>;
    constexpr int UNITS = S::PACKS * S::GROUPS / THREADS;
    union {
        uint4 pack[S::PER_WORD];
        T item[S::PER_WORD][S::PER_PACK];
    } loaded[UNITS];
#pragma unroll
    for (int k = 0; k < UNITS; ++k) {
        const Spot to = spot<S::PACKS>(threadIdx.x + k * THREADS);
        const i64 row = first.row + to.down * S::PER_WORD, column = first.column + to.across * S::PER_PACK;
#pragma unroll
        for (int r = 0; r < S::PER_WORD; ++r) {
            // Outside of the matrix any pack will do, it is not stored: loads without a branch are in flight together.
            const bool inside = row + r < rows && column < columns;
            const i64 from = inside ? (row + r) * columns + column : 0;
            loaded[k].pack[r] = __ldcs(reinterpret_cast<const uint4*>(in + from));
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; ++k) {
        const Spot to = spot<S::PACKS>(threadIdx.x + k * THREADS);
#pragma unroll
        for (int j = 0; j < S::PER_PACK; ++j) {
            union {
                T item[S::PER_WORD];
                typename Word<T>::type word;
            } rows_of_one_column;
#pragma unroll
            for (int r = 0; r < S::PER_WORD; ++r) rows_of_one_column.item[r] = loaded[k].item[r][j];
            stage.word[S::at(to.across * S::PER_PACK + j, to.down)] = rows_of_one_column.word;
        }
    }
}

template <typename T, int SIDE>
__device__ void store_packs(const Stage<T, SIDE>& stage, T* __restrict__ out, Place first, i64 rows, i64 columns) {
    using S = Stage<T, SIDE>;
#pragma unroll
    for (int k = 0; k < S::PACKS * SIDE / THREADS; ++k) {
        const Spot from = spot<S::PACKS>(threadIdx.x + k * THREADS);
        const i64 out_row = first.column + from.down, out_column = first.row + from.across * S::PER_PACK;
        union {
            typename Word<T>::type word[S::WORDS_PER_PACK];
            uint4 bits;
        } pack;
#pragma unroll
        for (int j = 0; j < S::WORDS_PER_PACK; ++j) {
            pack.word[j] = stage.word[S::at(from.down, from.across * S::WORDS_PER_PACK + j)];
        }
        // A plain store of a uint4 would be taken apart into four here.
        const bool inside = out_row < columns && out_column < rows;
        if (inside) __stcs(reinterpret_cast<uint4*>(out + out_row * rows + out_column), pack.bits);
    }
}

// packs_in, packs_out: rows of `in`, of `out`, begin and end on 16 bytes. Else that side goes element by element.
template <typename T, int SIDE>
__global__ void __launch_bounds__(THREADS)
production(const T* __restrict__ in, T* __restrict__ out, i64 rows, i64 columns, bool packs_in, bool packs_out) {
    __shared__ Stage<T, SIDE> stage;
    const Place first = first_of_tile<SIDE>(columns);
    if (packs_in) {
        load_packs(stage, in, first, rows, columns);
    } else {
#pragma unroll 8
        for (int i = threadIdx.x; i < SIDE * SIDE; i += THREADS) {
            const i64 row = first.row + i / SIDE, column = first.column + i % SIDE;
            if (row < rows && column < columns) {
                stage.item[stage.at_item(i % SIDE, i / SIDE)] = in[row * columns + column];
            }
        }
    }
    __syncthreads();
    if (packs_out) {
        store_packs(stage, out, first, rows, columns);
    } else {
#pragma unroll 8
        for (int i = threadIdx.x; i < SIDE * SIDE; i += THREADS) {
            const i64 out_row = first.column + i / SIDE, out_column = first.row + i % SIDE;
            if (out_row < columns && out_column < rows) {
                out[out_row * rows + out_column] = stage.item[stage.at_item(i / SIDE, i % SIDE)];
            }
        }
    }
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
