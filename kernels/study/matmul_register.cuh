// Matrix product by register tiles: a block computes 16 * MICRO by 16 * MICRO elements of C, a thread MICRO by MICRO.
//
// A step loads DEPTH columns of A and DEPTH rows of B to shared memory; for each of their k a thread reads MICRO
// numbers of both and does MICRO * MICRO fused multiply-adds. The shared tiles are double-buffered: while one is read,
// the loads for the next are in flight, and one barrier per step is enough.
#pragma once

#include "common/types.cuh"

constexpr int TILED_THREADS = 256;

// 16 bytes, the widest load of a thread.
template <typename T>
struct alignas(16) Pack {
    static constexpr int SIZE = 16 / sizeof(T);
    T item[SIZE];
};

// The next elements of a row with `left` elements to go; `beyond` pads it. ALIGNED: rows are whole packs, aligned to 16
// bytes.
template <bool ALIGNED, typename T>
__device__ Pack<T> load_pack(const T* from, i64 left, T beyond) {
    if (ALIGNED && left > 0) return *reinterpret_cast<const Pack<T>*>(from);
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < Pack<T>::SIZE; ++i) pack.item[i] = !ALIGNED && i < left ? from[i] : beyond;
    return pack;
}

// Two blocks fit the registers of a multiprocessor if a thread's sums take at most 256 bytes.
template <typename T, int MICRO, bool ALIGNED>
__global__ void __launch_bounds__(TILED_THREADS, MICRO * MICRO * sizeof(T) <= 256 ? 2 : 1)
register_tiled(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, i64 rows, i64 inner, i64 columns) {
    constexpr int PACK = Pack<T>::SIZE;
    constexpr int TILE = 16 * MICRO;
    constexpr int DEPTH = TILED_THREADS * PACK / TILE;  // a pack of A and a pack of B for each thread
    static_assert(MICRO % PACK == 0, "the elements of a thread are whole packs");
    static_assert(DEPTH % PACK == 0, "a step takes whole packs of A");
    // A is stored transposed, in the order in which it is read. A pack of padding per row reduces the bank conflicts of
    // transposing.
    __shared__ alignas(16) T tile_a[2][DEPTH][TILE + PACK];
    __shared__ alignas(16) T tile_b[2][DEPTH][TILE];

    // What this thread loads: a pack along a row of A, a pack along a row of B.
    const i64 first_row = i64(blockIdx.y) * TILE, first_column = i64(blockIdx.x) * TILE;
    const int a_row = threadIdx.x / (DEPTH / PACK), a_k = threadIdx.x % (DEPTH / PACK) * PACK;
    const int b_k = threadIdx.x / (TILE / PACK), b_column = threadIdx.x % (TILE / PACK) * PACK;
    const T* from_a = a + (first_row + a_row) * inner + a_k;
    const T* from_b = b + b_k * columns + first_column + b_column;
    const bool row_exists = first_row + a_row < rows;
    const i64 columns_left = columns - first_column - b_column;
    Pack<T> next_a, next_b;
    const auto load = [&](i64 first) {
        next_a = load_pack<ALIGNED>(from_a, row_exists ? inner - first - a_k : 0, T(-0.0));
        next_b = load_pack<ALIGNED>(from_b, first + b_k < inner ? columns_left : 0, T(0));
        from_a += DEPTH;
        from_b += DEPTH * columns;
    };
    const auto store = [&](int turn) {
#pragma unroll
        for (int i = 0; i < PACK; ++i) tile_a[turn][a_k + i][a_row] = next_a.item[i];
        *reinterpret_cast<Pack<T>*>(&tile_b[turn][b_k][b_column]) = next_b;
    };

    // A warp is 4 threads high and 8 wide, the block 4 warps high and 2 wide. A thread's elements are packs at a stride
    // of 16 packs: those of adjacent threads are adjacent in shared memory, without bank conflicts.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_row = (warp / 2 * 4 + lane / 8) * PACK, thread_column = (warp % 2 * 8 + lane % 8) * PACK;
    T sum[MICRO][MICRO] = {};

    load(0);
    store(0);
    __syncthreads();
    int turn = 0;
    for (i64 first = 0; first < inner; first += DEPTH) {
        load(first + DEPTH);  // past the last k it reads no memory
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            Pack<T> of_a[MICRO / PACK], of_b[MICRO / PACK];
#pragma unroll
            for (int i = 0; i < MICRO / PACK; ++i) {
                of_a[i] = *reinterpret_cast<const Pack<T>*>(&tile_a[turn][k][thread_row + i * 16 * PACK]);
                of_b[i] = *reinterpret_cast<const Pack<T>*>(&tile_b[turn][k][thread_column + i * 16 * PACK]);
            }
#pragma unroll
            for (int i = 0; i < MICRO; ++i) {
#pragma unroll
                for (int j = 0; j < MICRO; ++j) {
                    sum[i][j] = fma(of_a[i / PACK].item[i % PACK], of_b[j / PACK].item[j % PACK], sum[i][j]);
                }
            }
        }
        turn ^= 1;
        store(turn);
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < MICRO; ++i) {
        const i64 row = first_row + i / PACK * 16 * PACK + thread_row + i % PACK;
#pragma unroll
        for (int j = 0; j < MICRO; ++j) {
            const i64 column = first_column + j / PACK * 16 * PACK + thread_column + j % PACK;
            if (row < rows && column < columns) c[row * columns + column] = sum[i][j];
        }
    }
}
