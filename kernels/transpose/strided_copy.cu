// Copies rows that stay whole while the axes before them are permuted: out[k][j][i][:] = in[...][:].
//
//   copy_rows   a group of lanes copies a row, or a piece of a long one; several units in flight per lane
//
// A unit is 1, 2, 4, 8 or 16 bytes: the largest that divides the row and the addresses of both arrays.

#include "common/types.cuh"

constexpr int THREADS = 256;
constexpr int IN_FLIGHT = 32;  // bytes that a thread loads before it stores any

// Row r of `out` has the indices r % inner, r / inner % middle and the quotient along three axes of `in`, with the
// steps given. A group has 2^shift lanes.
template <typename T>
__global__ void __launch_bounds__(THREADS)
copy_rows(const T* __restrict__ in, T* __restrict__ out, u32 rows, i64 units, u32 inner, u32 middle, i64 in_inner,
          i64 in_middle, i64 in_outer, u32 pieces, u32 shift) {
    constexpr int COUNT = IN_FLIGHT / sizeof(T) < 16 ? IN_FLIGHT / sizeof(T) : 16;
    const u32 lanes = 1u << shift, piece = blockIdx.x * (THREADS >> shift) + (threadIdx.x >> shift);
    const u32 row = piece / pieces;
    if (row >= rows) return;
    const i64 first = i64(piece % pieces) * COUNT * lanes + threadIdx.x % lanes, left = units - first;
    const u32 rest = row / inner;
    const T* const from = in + row % inner * in_inner + rest % middle * in_middle + rest / middle * in_outer + first;
    T* const to = out + row * units + first;
    T unit[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        if (k * lanes < left) unit[k] = from[k * lanes];
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        if (k * lanes < left) to[k * lanes] = unit[k];
}
