// Runs of units that keep their order while the axes before them change places: out[k][j][i][:] = in[...][:].
//
//   copy_runs   a group of lanes moves a run, or a piece of a long one: its units next to each other, several in flight
//
// A unit is 1, 2, 4, 8 or 16 bytes, as many as divide a run and the addresses of both arrays.

#include "common/types.cuh"

constexpr int THREADS = 256;
constexpr int IN_FLIGHT = 32;  // bytes that a thread loads before it stores them

// Run r of `out` is where r % inner, r / inner % middle and the rest stand for steps in `in`. A group is 2^shift lanes.
template <typename T>
__global__ void __launch_bounds__(THREADS)
copy_runs(const T* __restrict__ in, T* __restrict__ out, u32 runs, i64 units, u32 inner, u32 middle, i64 in_inner,
          i64 in_middle, i64 in_outer, u32 pieces, u32 shift) {
    constexpr int COUNT = IN_FLIGHT / sizeof(T) < 16 ? IN_FLIGHT / sizeof(T) : 16;
    const u32 lanes = 1u << shift, piece = blockIdx.x * (THREADS >> shift) + (threadIdx.x >> shift);
    const u32 run = piece / pieces;
    if (run >= runs) return;
    const i64 first = i64(piece % pieces) * COUNT * lanes + threadIdx.x % lanes, left = units - first;
    const u32 rest = run / inner;
    const T* const from = in + run % inner * in_inner + rest % middle * in_middle + rest / middle * in_outer + first;
    T* const to = out + run * units + first;
    T unit[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        if (k * lanes < left) unit[k] = from[k * lanes];
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        if (k * lanes < left) to[k * lanes] = unit[k];
}
