// Products of planes on Hopper: warpgroups that multiply what a warp of its own brings, tile after tile.
//
// In a plane the lines of a matrix, so many that tiles have all of theirs, are cut into pieces of WIDE bytes. Piece after
// piece, all lines of it lie together, swizzled: what a stage takes of a matrix is one stretch of memory. Lines of B
// change places within 64 (`interleaved`), so that a lane's sums are neighbours in C.
#pragma once

#include "matmul/wgmma.cuh"

constexpr int RASTER = 2048;  // rows of C that are multiplied together, for the sake of the cache
constexpr int FEW = 4;     // stages, after which sums of magnitudes mostly are large enough

// Where a line of B is.
__device__ inline int interleaved(int line) {
    return line / 64 * 64 + line % 16 / 2 * 8 + line / 16 % 4 * 2 + line % 2;
}

// What is multiplied: matrices of two stacks, each with room for so many lines in so many pieces.
struct Planes {
    const i8 *a, *b;
    const int *a_of, *b_of;
    int matrices_a, matrices_b, rows, columns, room_a, room_b, pieces;

    // The first piece of a plane of a matrix, and from there to the next piece.
    __device__ const i8* of_a(int plane, int matrix) const {
        return a + (i64(plane) * matrices_a + a_of[matrix]) * pieces * room_a * WIDE;
    }
    __device__ const i8* of_b(int plane, int matrix) const {
        return b + (i64(plane) * matrices_b + b_of[matrix]) * pieces * room_b * WIDE;
    }
};

// The tiles of a launch, those of a plane together.
template <int BM, int BN> struct Tiles {
    static constexpr int BAND = RASTER / BM;
    const int down, across, of_matrix, of_plane;

    __device__ Tiles(int rows, int columns, int matrices)
        : down((rows + BM - 1) / BM), across((columns + BN - 1) / BN), of_matrix(down * across),
          of_plane(of_matrix * matrices) {}

    // Where the one with a number is.
    __device__ int plane(int number) const { return number / of_plane; }
    __device__ int matrix(int number) const { return number % of_plane / of_matrix; }
    __device__ void place(int number, int& row, int& column) const {
        const int inside = number % of_matrix, band = inside / (BAND * across), place = inside - band * BAND * across;
        const int height = min(BAND, down - band * BAND);
        row = (band * BAND + place % height) * BM;
        column = place / height * BN;
    }
};

// Two warpgroups have BM / 2 rows of a tile each, and the warp after them brings STAGES of WIDE bytes of each line.
template <int BN, int STAGES> struct Pipeline {
    static constexpr int BM = 128, CONSUMERS = 256, THREADS = CONSUMERS + 32, STAGE = (BM + BN) * WIDE;
    using Sums = int[BN / 8][4];

    u8* const memory;
    u64 *const full, *const free;  // a barrier of each stage
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

    // The producer's: pieces of the lines from these on, each to its stage.
    __device__ void bring(const i8* a, const i8* b, i64 step_a, i64 step_b, int pieces) {
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

    // A consumer's: the sums of products of its rows and all columns.
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

// The sums that a lane has: of two rows, in stretches of 16 columns.
template <int BN> struct Sums {
    static constexpr int STRETCH = 16;
    int rows, columns, row, column;  // of the matrix; where the first sum belongs

    __device__ Sums(int rows, int columns, int first_row, int first_column)
        : rows(rows), columns(columns), row(first_row + int(threadIdx.x) % 128 / 32 * 16 + int(threadIdx.x) % 32 / 4),
          column(first_column + int(threadIdx.x) % 4 * STRETCH) {}

    // Calls use(place in the matrix, how many of the stretch exist, function of the number in it that gives the sum).
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

    // Modulo a modulus to where they belong, or added to what is there.
    __device__ void reduce(const int (&sums)[BN / 8][4], u8* results, int modulus, bool add) const {
        const float inverse = 1.0f / float(modulus);
        each(sums, [&](i64 place, int count, auto sum) {
            u8* const to = results + place;
            u32 words[STRETCH / 4];
#pragma unroll
            for (int i = 0; i < STRETCH; i += 4)
                words[i / 4] = last_bytes(reduced(sum(i), modulus, inverse), reduced(sum(i + 1), modulus, inverse),
                                          reduced(sum(i + 2), modulus, inverse), reduced(sum(i + 3), modulus, inverse));
            if (columns % STRETCH == 0) {  // as stretches begin at multiples, this one is whole
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
                const u32 found = words[i / 4] >> 8 * (i % 4) & 0xff;
                to[i] = u8(add ? modular_sum(found, to[i], modulus) : found);
            }
        });
    }
    // Of four bytes each.
    __device__ static u32 modular_sum(u32 a, u32 b, int modulus) {
        u32 found[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 sum = (a >> 8 * i & 0xff) + (b >> 8 * i & 0xff);
            found[i] = min(sum, sum - u32(modulus));
        }
        return last_bytes(found[0], found[1], found[2], found[3]);
    }

    // As they are, none negative; whether one is less than enough.
    __device__ bool add_up(const int (&sums)[BN / 8][4], u32* totals, u32 enough, bool add) const {
        bool lacking = false;
        each(sums, [&](i64 place, int count, auto sum) {
            u32* const to = totals + place;
            const bool whole = count == STRETCH && columns % 4 == 0;
#pragma unroll
            for (int i = 0; i < STRETCH; i += 4) {
                u32 found[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    found[k] = u32(sum(i + k));
                    if (i + k >= count) continue;
                    if (add) found[k] = limited_sum(found[k], to[i + k]);
                    lacking |= found[k] < enough;
                    if (!whole) to[i + k] = found[k];
                }
                if (whole) *reinterpret_cast<uint4*>(to + i) = make_uint4(found[0], found[1], found[2], found[3]);
            }
        });
        return lacking;
    }
};

// Some planes: residues, and the magnitudes after them. Of magnitudes the first time FEW pieces are multiplied; tiles
// with less than enough in a sum are `lacking`, and multiplied as a whole when magnitudes alone are asked for.
template <int BN, int STAGES>
__device__ void multiply_tiles(u8* memory, const Planes& planes, int matrices, int first, int count, int moduli, u32 enough,
                               i64 stride, bool add, int* lacking, u8* products, u32* totals) {
    using Stages = Pipeline<BN, STAGES>;
    const Tiles<Stages::BM, BN> tiles(planes.rows, planes.columns, matrices);
    const i64 step_a = i64(planes.room_a) * WIDE, step_b = i64(planes.room_b) * WIDE;
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
            stages.bring(planes.of_a(plane, matrix) + i64(row) * WIDE, planes.of_b(plane, matrix) + i64(column) * WIDE, step_a,
                         step_b, pieces);
        });
        return;
    }
    each([&](int plane, int matrix, int row, int column, int pieces, int* mark) {
        typename Stages::Sums sums;
        stages.multiply(sums, pieces);
        const i64 place = i64(matrix) * planes.rows * planes.columns;
        const Sums<BN> found(planes.rows, planes.columns, row + Stages::first_row(), column);
        if (plane < moduli) {
            found.reduce(sums, products + plane * stride + place, MODULI[plane], add);
        } else {
            const bool some = found.add_up(sums, totals + place, first < moduli ? enough : 0, add);
            if (__any_sync(~0u, some) && threadIdx.x % 32 == 0) atomicOr(mark, 1);
        }
    });
}
