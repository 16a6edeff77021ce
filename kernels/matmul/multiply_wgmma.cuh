// Products of planes on Hopper: a producer warp copies, two warpgroups multiply, tile after tile.
//
// In a plane the lines of a matrix, padded to whole tiles, are cut into pieces of WIDE bytes. All lines of a piece lie
// together, swizzled, so that a stage of a matrix is one contiguous copy. Lines of B are permuted within 64 (`interleaved`), so
// that the sums of a lane are neighbours in C.
#pragma once

#include "matmul/wgmma.cuh"

constexpr int RASTER = 2048;  // rows of C that are multiplied together, to reuse the L2 cache
constexpr int FEW = 4;        // stages after which sums of magnitudes are usually large enough

// Place of a line of B.
__device__ inline int interleaved(int line) {
    return line / 64 * 64 + line % 16 / 2 * 8 + line / 16 % 4 * 2 + line % 2;
}

// Planes of two stacks of matrices, each padded to so many lines, in so many pieces.
struct Planes {
    const i8 *a, *b;
    const int *a_of, *b_of;
    int matrices_a, matrices_b, rows, columns, plane_lines_a, plane_lines_b, pieces;

    // The first piece of a matrix in a plane.
    __device__ const i8* of_a(int plane, int matrix) const {
        return a + (i64(plane) * matrices_a + a_of[matrix]) * pieces * plane_lines_a * WIDE;
    }
    __device__ const i8* of_b(int plane, int matrix) const {
        return b + (i64(plane) * matrices_b + b_of[matrix]) * pieces * plane_lines_b * WIDE;
    }
};

// The tiles of a launch, plane by plane.
template <int BM, int BN> struct Tiles {
    static constexpr int BAND = RASTER / BM;
    const int down, across, of_matrix, of_plane;

    __device__ Tiles(int rows, int columns, int matrices)
        : down((rows + BM - 1) / BM), across((columns + BN - 1) / BN), of_matrix(down * across),
          of_plane(of_matrix * matrices) {}

    // Plane, matrix and place of the tile with a number.
    __device__ int plane(int number) const { return number / of_plane; }
    __device__ int matrix(int number) const { return number % of_plane / of_matrix; }
    __device__ void place(int number, int& row, int& column) const {
        const int inside = number % of_matrix, band = inside / (BAND * across), place = inside - band * BAND * across;
        const int height = min(BAND, down - band * BAND);
        row = (band * BAND + place % height) * BM;
        column = place / height * BN;
    }
};

// Two warpgroups have BM / 2 rows of a tile each; the warp after them copies STAGES of WIDE bytes of each line.
template <int BN, int STAGES> struct Pipeline {
    static constexpr int BM = 128, CONSUMERS = 256, THREADS = CONSUMERS + 32, STAGE = (BM + BN) * WIDE;
    using Sums = int[BN / 8][4];

    u8* const memory;
    u64 *const full, *const free;  // a barrier for each stage
    int stage = 0;
    u32 parity = 0;

    __device__ explicit Pipeline(u8* memory)
        : memory(memory), full(reinterpret_cast<u64*>(memory + STAGES * STAGE)), free(full + STAGES) {
        if (threadIdx.x == 0)
            for (int i = 0; i < STAGES; ++i) {
                begin_barrier(full + i, 1);
                begin_barrier(free + i, CONSUMERS / 32);
            }
        __syncthreads();
    }
    __device__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }

    // By the producer: copies pieces of lines, each to its stage.
    __device__ void copy(const i8* a, const i8* b, i64 step_a, i64 step_b, int pieces) {
        for (int i = 0; i < pieces; ++i) {
            wait_for_phase(free + stage, parity ^ 1);
            if (threadIdx.x == CONSUMERS) {
                u8* const to = memory + stage * STAGE;
                expect_bytes(full + stage, STAGE);
                copy_bulk(to, a + i * step_a, BM * WIDE, full + stage);
                copy_bulk(to + BM * WIDE, b + i * step_b, BN * WIDE, full + stage);
            }
            stage_is_sent();
            next();
        }
    }

    // By a consumer: the sums of products of its rows and all columns.
    __device__ void multiply(Sums& sums, int pieces) {
        int last = 0;
        for (int i = 0; i < pieces; ++i) {
            const u8* const from = memory + stage * STAGE;
            wait_for_stage(full + stage, parity);
            const u64 a = lines_at(from + first_row() * WIDE), b = lines_at(from + BM * WIDE);
            begin_multiplying();
#pragma unroll
            for (int step = 0; step < WIDE / 32; ++step) multiply_lines(sums, a, b, step, i > 0 || step > 0);
            commit_multiplying();
            wait_for_multiplying<1>();
            if (i > 0) release(last);
            last = stage;
            next();
        }
        wait_for_multiplying<0>();
        release(last);
        hold(sums);
    }
    __device__ static int first_row() { return int(threadIdx.x) / 128 * (BM / 2); }
    __device__ void release(int stage) {
        if (threadIdx.x % 32 == 0) arrive(free + stage);
    }
};

// The sums of a lane: two rows, in stretches of 16 columns.
template <int BN> struct Sums {
    static constexpr int STRETCH = 16;
    int rows, columns, row, column;  // of the matrix; place of the first sum

    __device__ Sums(int rows, int columns, int first_row, int first_column)
        : rows(rows), columns(columns), row(first_row + int(threadIdx.x) % 128 / 32 * 16 + int(threadIdx.x) % 32 / 4),
          column(first_column + int(threadIdx.x) % 4 * STRETCH) {}

    // Calls use(place in the matrix, elements of the stretch that exist, function from their number to the sum).
    template <typename Use> __device__ void each(const int (&sums)[BN / 8][4], Use use) const {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            if (row + 8 * k >= rows) break;
#pragma unroll
            for (int j = 0; j < BN / 64; ++j) {
                const int from = column + 64 * j;
                if (from >= columns) break;
                use(i64(row + 8 * k) * columns + from, min(STRETCH, columns - from),
                    [&](int i) { return sums[8 * j + i / 2][2 * k + i % 2]; });
            }
        }
    }

    // Stores sums modulo a modulus, or adds them.
    __device__ void reduce(const int (&sums)[BN / 8][4], u8* results, int modulus, bool add) const {
        const float inverse = 1.0f / float(modulus);
        each(sums, [&](i64 place, int count, auto sum) {
            u8* const to = results + place;
            u32 words[STRETCH / 4];
#pragma unroll
            for (int i = 0; i < STRETCH; i += 4)
                words[i / 4] = last_bytes(reduced(sum(i), modulus, inverse), reduced(sum(i + 1), modulus, inverse),
                                          reduced(sum(i + 2), modulus, inverse), reduced(sum(i + 3), modulus, inverse));
            if (columns % STRETCH == 0) {  // stretches begin at multiples, so this one is whole
                uint4& there = *reinterpret_cast<uint4*>(to);
                if (add) {
                    const uint4 old = there;
                    words[0] = modular_sum(words[0], old.x, modulus);
                    words[1] = modular_sum(words[1], old.y, modulus);
                    words[2] = modular_sum(words[2], old.z, modulus);
                    words[3] = modular_sum(words[3], old.w, modulus);
                }
                there = make_uint4(words[0], words[1], words[2], words[3]);
                return;
            }
#pragma unroll
            for (int i = 0; i < STRETCH; ++i) {
                if (i >= count) break;
                const u32 residue = words[i / 4] >> 8 * (i % 4) & 0xff;
                to[i] = u8(add ? modular_sum(residue, to[i], modulus) : residue);
            }
        });
    }
    // Four bytes each.
    __device__ static u32 modular_sum(u32 a, u32 b, int modulus) {
        u32 sums[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 sum = (a >> 8 * i & 0xff) + (b >> 8 * i & 0xff);
            sums[i] = min(sum, sum - u32(modulus));
        }
        return last_bytes(sums[0], sums[1], sums[2], sums[3]);
    }

    // Stores the sums themselves, none negative, or adds them; returns whether one is less than enough.
    __device__ bool add_up(const int (&sums)[BN / 8][4], u32* totals, u32 enough, bool add) const {
        bool lacking = false;
        each(sums, [&](i64 place, int count, auto sum) {
            u32* const to = totals + place;
            const bool whole = count == STRETCH && columns % 4 == 0;
#pragma unroll
            for (int i = 0; i < STRETCH; i += 4) {
                u32 four[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    four[k] = u32(sum(i + k));
                    if (i + k >= count) continue;
                    if (add) four[k] = limited_sum(four[k], to[i + k]);
                    lacking |= four[k] < enough;
                    if (!whole) to[i + k] = four[k];
                }
                if (whole) *reinterpret_cast<uint4*>(to + i) = make_uint4(four[0], four[1], four[2], four[3]);
            }
        });
        return lacking;
    }
};

// Multiplies `count` planes from `first` on: residues, and after them magnitudes. A launch for residues and magnitudes
// multiplies only FEW pieces of the latter, and marks tiles with a sum that is not enough as `lacking`; a launch for magnitudes
// alone multiplies these tiles as a whole.
template <int BN, int STAGES>
__device__ void multiply_tiles(u8* memory, const Planes& planes, int matrices, int first, int count, int moduli, u32 enough,
                               i64 stride, bool add, int* lacking, u8* products, u32* totals) {
    using Stages = Pipeline<BN, STAGES>;
    const Tiles<Stages::BM, BN> tiles(planes.rows, planes.columns, matrices);
    const i64 step_a = i64(planes.plane_lines_a) * WIDE, step_b = i64(planes.plane_lines_b) * WIDE;
    const auto each = [&](auto use) {
        for (int number = int(blockIdx.x); number < tiles.of_plane * count; number += int(gridDim.x)) {
            const int plane = first + tiles.plane(number);
            int row, column, pieces = planes.pieces;
            tiles.place(number, row, column);
            int* const mark = lacking + number % tiles.of_plane;
            if (plane == moduli) {
                if (first == moduli && !*mark) continue;
                if (first < moduli) pieces = min(FEW, pieces);
            }
            use(plane, tiles.matrix(number), row, column, pieces, mark);
        }
    };
    Stages stages(memory);
    if (threadIdx.x >= Stages::CONSUMERS) {
        each([&](int plane, int matrix, int row, int column, int pieces, int*) {
            stages.copy(planes.of_a(plane, matrix) + i64(row) * WIDE, planes.of_b(plane, matrix) + i64(column) * WIDE, step_a,
                         step_b, pieces);
        });
        return;
    }
    each([&](int plane, int matrix, int row, int column, int pieces, int* mark) {
        typename Stages::Sums sums;
        stages.multiply(sums, pieces);
        const i64 place = i64(matrix) * planes.rows * planes.columns;
        const Sums<BN> tile(planes.rows, planes.columns, row + Stages::first_row(), column);
        if (plane < moduli) {
            tile.reduce(sums, products + plane * stride + place, MODULI[plane], add);
        } else {
            const bool some = tile.add_up(sums, totals + place, first < moduli ? enough : 0, add);
            if (__any_sync(~0u, some) && threadIdx.x % 32 == 0) atomicOr(mark, 1);
        }
    });
}
