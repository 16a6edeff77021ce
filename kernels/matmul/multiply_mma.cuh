// A tile of the product of two matrices of bytes: tensor cores, fed through shared memory by asynchronous copies.
#pragma once

#include "matmul/mma.cuh"

constexpr int DEPTH = 64;   // bytes of a row of A, and of a column of B, in a stage
constexpr int CHUNK = 16;   // bytes that are copied at a time
constexpr int CHUNKS_OF_ROW = DEPTH / CHUNK;
constexpr int STEPS = DEPTH / 32;  // an instruction takes 32 bytes

// BM x BN elements per block, WM x WN per warp; STAGES of A and B in shared memory.
template <int BM, int BN, int WM, int WN, int STAGES> struct Tile {
    static_assert(WM % 16 == 0 && WN % 16 == 0, "a warp loads 16 rows of A and 16 columns of B at a time");
    static_assert(BM % WM == 0 && BN % WN == 0, "warps share a tile evenly");
    static constexpr int WARPS_DOWN = BM / WM, THREADS = 32 * WARPS_DOWN * (BN / WN);
    static constexpr int LINES = THREADS / CHUNKS_OF_ROW;  // lines of which all threads together copy one chunk
    static_assert(LINES % 8 == 0 && BM % LINES == 0 && BN % LINES == 0, "a copy of all threads is of A or of B");
    static constexpr int STAGE = (BM + BN) * DEPTH, LAST = STAGE * (STAGES - 1);
    static constexpr int PITCH = BN + 16;  // bytes from row to row of results: no two rows in the same bank
    static_assert(BM * PITCH <= STAGE * STAGES, "results are staged in the memory of the stages");

    u8* const memory;
    const i8 *from_a, *from_b;  // this thread's next chunk of its first line of A and of B
    const int lines_a, lines_b, depth;  // lines of A and B from there on; bytes of a line
    int copied, a_begin, b_begin;  // offsets in a stage where this thread copies to, and loads from
    int sums[WM / 16][WN / 8][4];
    u32 a[2][WM / 16][4], b[2][WN / 16][4];  // double-buffered: the current step and the next

    // Matrices with `depth` bytes in a row of A and a column of B; the tile begins at this row and column.
    __device__ Tile(u8* memory, const i8* all_a, const i8* all_b, int rows, int columns, int row, int column, int depth)
        : memory(memory), lines_a(rows - row - int(threadIdx.x) / CHUNKS_OF_ROW),
          lines_b(columns - column - int(threadIdx.x) / CHUNKS_OF_ROW), depth(depth) {
        const int thread = int(threadIdx.x), lane = thread % 32, warp = thread / 32;
        const int line = thread / CHUNKS_OF_ROW, chunk = thread % CHUNKS_OF_ROW;
        copied = place(line, chunk);
        a_begin = place(warp % WARPS_DOWN * WM + lane % 16, lane / 16);
        b_begin = place(BM + warp / WARPS_DOWN * WN + lane / 16 * 8 + lane % 8, lane / 8 % 2);
        from_a = all_a + i64(row + line) * depth + chunk * CHUNK;
        from_b = all_b + i64(column + line) * depth + chunk * CHUNK;
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
#pragma unroll
            for (int j = 0; j < WN / 8; ++j)
#pragma unroll
                for (int k = 0; k < 4; ++k) sums[i][j][k] = 0;
    }

    // Offset of a chunk of a line, swizzled so that eight lines cover all banks.
    __device__ static int place(int line, int chunk) {
        return line * DEPTH + (chunk ^ (line >> 1) % CHUNKS_OF_ROW) * CHUNK;
    }

    // Copies the next DEPTH bytes of all lines to a stage, which is named by its offset.
    __device__ void copy(int stage) {
#pragma unroll
        for (int i = 0; i < BM / LINES; ++i)
            copy_async(memory + stage + copied + i * LINES * DEPTH, from_a + i * LINES * depth, i * LINES < lines_a);
#pragma unroll
        for (int i = 0; i < BN / LINES; ++i)
            copy_async(memory + stage + copied + (BM + i * LINES) * DEPTH, from_b + i * LINES * depth, i * LINES < lines_b);
        from_a += DEPTH;
        from_b += DEPTH;
    }

    // Loads the operands of a step. The offset of its chunks differs from that of the first step in one bit.
    __device__ void load(int buffer, int stage, int step) {
        static_assert(STEPS == 2, "two steps, one bit");
        const u8* const of_a = memory + stage + (a_begin ^ step * 2 * CHUNK);
        const u8* const of_b = memory + stage + (b_begin ^ step * 2 * CHUNK);
#pragma unroll
        for (int i = 0; i < WM / 16; ++i) load_matrices(a[buffer][i], of_a + 16 * i * DEPTH);
#pragma unroll
        for (int i = 0; i < WN / 16; ++i) load_matrices(b[buffer][i], of_b + 16 * i * DEPTH);
    }

    __device__ void multiply(int buffer) {
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
#pragma unroll
            for (int j = 0; j < WN / 8; ++j)
                multiply_add(sums[i][j], a[buffer][i], b[buffer][j / 2][j % 2 * 2], b[buffer][j / 2][j % 2 * 2 + 1]);
    }

    // All products, of so many stages: while one is multiplied, STAGES - 1 others are being copied. At the end no thread reads
    // a stage any more.
    __device__ void run(int stages) {
        for (int i = 0; i < STAGES - 1; ++i) {
            if (i < stages) copy(i * STAGE);
            commit_copies();
        }
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        load(0, 0, 0);
        int stage = 0, free = LAST;
        for (int i = 0; i < stages; ++i) {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                const bool last = step == STEPS - 1;
                if (last) {
                    wait_for_copies<STAGES - 2>();
                    __syncthreads();  // the next stage has arrived, and no thread reads this one any more
                    stage = stage == LAST ? 0 : stage + STAGE;
                }
                if (!last || i < stages - 1) load((step + 1) % 2, stage, last ? 0 : step + 1);
                if (step == 0) {
                    if (i + STAGES - 1 < stages) copy(free);
                    commit_copies();
                    free = free == LAST ? 0 : free + STAGE;
                }
                multiply(step % 2);
            }
        }
    }

    // Sums modulo a modulus, to rows in shared memory.
    __device__ void reduce(int modulus) {
        const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
        const float inverse = 1.0f / float(modulus);
        u8* const first = memory + (warp % WARPS_DOWN * WM + lane / 4) * PITCH + warp / WARPS_DOWN * WN + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
#pragma unroll
            for (int j = 0; j < WN / 8; ++j)
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    const u32 left = reduced(sums[i][j][2 * k], modulus, inverse);
                    const u32 right = reduced(sums[i][j][2 * k + 1], modulus, inverse);
                    *reinterpret_cast<u16*>(first + (16 * i + 8 * k) * PITCH + 8 * j) = u16(left | right << 8);
                }
        __syncthreads();
    }

    // Stores results from shared memory, or adds them. `aligned`: rows begin at multiples of 16 bytes.
    __device__ void store(u8* results, int rows, int columns, int row, int column, int modulus, bool add, bool aligned) {
        constexpr int PARTS = BN / CHUNK;
        for (int i = int(threadIdx.x); i < BM * PARTS; i += THREADS) {
            const int line = i / PARTS, from_column = i % PARTS * CHUNK;
            if (row + line >= rows) break;
            const u8* const from = memory + line * PITCH + from_column;
            u8* const to = results + i64(row + line) * columns + column + from_column;
            const int count = min(CHUNK, columns - column - from_column);
            if (aligned && count == CHUNK && !add) {
                *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
                continue;
            }
            for (int k = 0; k < count; ++k) {
                const int sum = from[k] + (add ? to[k] : 0);
                to[k] = u8(sum < modulus ? sum : sum - modulus);
            }
        }
    }

    // Stores the sums themselves, none negative, or adds them.
    __device__ void add_up(u32* totals, int rows, int columns, int row, int column, bool add) {
        const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
        const int first_row = row + warp % WARPS_DOWN * WM + lane / 4;
        const int first_column = column + warp / WARPS_DOWN * WN + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const int line = first_row + 16 * i + 8 * k;
                if (line >= rows) continue;
                u32* const to = totals + i64(line) * columns;
#pragma unroll
                for (int j = 0; j < WN / 8; ++j) {
                    const int place = first_column + 8 * j;
                    uint2 pair = make_uint2(u32(sums[i][j][2 * k]), u32(sums[i][j][2 * k + 1]));
                    if (columns % 2 == 0 && place < columns) {
                        uint2& total = *reinterpret_cast<uint2*>(to + place);
                        if (add) pair = make_uint2(limited_sum(pair.x, total.x), limited_sum(pair.y, total.y));
                        total = pair;
                    } else {
                        if (place < columns) to[place] = add ? limited_sum(pair.x, to[place]) : pair.x;
                        if (place + 1 < columns) to[place + 1] = add ? limited_sum(pair.y, to[place + 1]) : pair.y;
                    }
                }
            }
    }
};
