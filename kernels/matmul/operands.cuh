// Rows of A and columns of B of a warp: loaded, scaled to integers, cut into digits.
#pragma once

#include "matmul/digits.cuh"

constexpr int SIDE = 16;  // rows of A, columns of B, and numbers of each, that a warp holds at a time

template <typename T, int COUNT> struct alignas(COUNT * sizeof(T)) Pack { T items[COUNT]; };

// With g = lane / 4 and t = lane % 4: the place in a line of number i of a lane's four, and the place in 16 columns of B of
// column n of the eight that tile j multiplies. Chosen so that lanes access 8 or 16 bytes, next to their neighbours'.
template <typename F> struct Places {
    using T = typename F::Storage;
    static constexpr bool DOUBLES = sizeof(T) == 8;
    static __device__ int inner(int t, int i) { return DOUBLES ? i / 2 * 8 + 2 * t + i % 2 : 4 * t + i; }
    static __device__ int column(int j, int n) { return DOUBLES ? 8 * j + n : 2 * n + j; }
};

// Two lines of a lane: rows g and g + 8 of A, or column g of both tiles of B. All four lanes of a line hold its scale.
template <typename F, int CHUNKS> struct Pair {
    using T = typename F::Storage;
    using Of = Scaling<sizeof(T)>;
    u32 digits[CHUNKS][2][Digits<F>::ALL];
    decltype(Sum<F, SIDE * CHUNKS>::scale(0)) scales[2];

    // Cuts numbers into digits; returns whether the exponents of all lines of the warp are moderate. Those of zeros are.
    __device__ bool split(const T (&values)[CHUNKS][2][4]) {
        typename Of::Bits bits[CHUNKS][2][4];
        u32 low[2] = {}, keys[2];
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    bits[c][h][i] = bits_of<F>(values[c][h][i]);
                    if constexpr (sizeof(T) == 8) low[h] |= u32(bits[c][h][i]);
                }
        find_keys(bits, keys);
        int lifted[2] = {};
        const bool moderate = __all_sync(~0u, Of::is_moderate(keys[0], low[0]) && Of::is_moderate(keys[1], low[1]));
        if (!moderate) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                lifted[h] = int(keys[h] >> Of::FIELD) < Of::LEAST + Of::BIAS ? Of::LIFT : 0;
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
                    for (int i = 0; i < 4; ++i) bits[c][h][i] = Of::lift(bits[c][h][i], lifted[h]);
            }
            find_keys(bits, keys);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const u32 field = keys[h] >> Of::FIELD;
            scales[h] = Sum<F, SIDE * CHUNKS>::scale(field ? int(field) - Of::BIAS - lifted[h] : 0);
            const auto factor = Of::factor(Of::POWER - field);
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                typename Of::Whole wholes[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) wholes[i] = Of::whole(bits[c][h][i], factor);
                Digits<F>::cut(wholes, digits[c][h]);
            }
        }
        return moderate;
    }

    __device__ static void find_keys(const typename Of::Bits (&bits)[CHUNKS][2][4], u32 (&keys)[2]) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            keys[h] = 0;
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
                for (int i = 0; i < 4; ++i) keys[h] = max(keys[h], Of::key(bits[c][h][i]));
            keys[h] = max(keys[h], __shfl_xor_sync(~0u, keys[h], 1));
            keys[h] = max(keys[h], __shfl_xor_sync(~0u, keys[h], 2));
        }
    }
};

// A matrix of the product, and its factors.
template <typename F> struct Matrix {
    using T = typename F::Storage;
    const T *a, *b;
    T* result;
    int rows, inner, columns;
};

template <typename F, int CHUNKS, bool WHOLE>
__device__ void load_rows(const Matrix<F>& of, int row, typename F::Storage (&values)[CHUNKS][2][4]) {
    constexpr int SIZE = Places<F>::DOUBLES ? 2 : 4;
    using T = typename F::Storage;
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int i = 0; i < 4; i += WHOLE ? SIZE : 1) {
                const int line = row + g + 8 * h, k = SIDE * c + Places<F>::inner(t, i);
                const T* const from = of.a + line * of.inner + k;
                if constexpr (WHOLE) {
                    const auto pack = *reinterpret_cast<const Pack<T, SIZE>*>(from);
#pragma unroll
                    for (int n = 0; n < SIZE; ++n) values[c][h][i + n] = pack.items[n];
                } else {
                    values[c][h][i] = line < of.rows && k < of.inner ? *from : T(0);
                }
            }
}

template <typename F, int CHUNKS, bool WHOLE>
__device__ void load_columns(const Matrix<F>& of, int column, typename F::Storage (&values)[CHUNKS][2][4]) {
    using T = typename F::Storage;
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int k = SIDE * c + Places<F>::inner(t, i);
            const T* const from = of.b + k * of.columns + column;
            if constexpr (WHOLE && !Places<F>::DOUBLES) {
                const auto pack = *reinterpret_cast<const Pack<T, 2>*>(from + 2 * g);
                values[c][0][i] = pack.items[0];
                values[c][1][i] = pack.items[1];
            } else {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const int place = Places<F>::column(j, g);
                    const bool there = WHOLE || (k < of.inner && column + place < of.columns);
                    values[c][j][i] = there ? from[place] : T(0);
                }
            }
        }
}
