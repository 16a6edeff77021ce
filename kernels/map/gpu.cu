// Elementwise operations on two or three arrays, like out[i] = a[i] + b[i], with the bits that NumPy gives.
//
//   elementwise   any operation; 16-byte loads and stores, one of each array per thread

#include "map/operations.cuh"

constexpr int THREADS = 256;

// head: elements before the first that is aligned to 16 bytes in every array; n where the arrays differ in alignment.
// Whole tiles take 16-byte loads, one per thread and array, and one tile per block: many short-lived threads keep the
// memory busier than few with several loads each. On an H200 streaming loads (__ldcs) took 6 % longer. Elements before
// and after the tiles are loaded one by one. c is not read by operations with two operands.
template <typename T, typename Op>
__global__ void __launch_bounds__(THREADS)
elementwise(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, T* __restrict__ out, i64 n,
           i64 head) {
    constexpr int PER_PACK = 16 / sizeof(T);
    constexpr i64 TILE = THREADS * PER_PACK;
    union Pack {
        uint4 bits;
        T item[PER_PACK];
    };
    const i64 tiles = (n - head) / TILE;
    if (blockIdx.x < tiles) {
        const i64 at = head + blockIdx.x * TILE + threadIdx.x * PER_PACK;
        Pack x, y, z;
        x.bits = __ldg(reinterpret_cast<const uint4*>(a + at));
        y.bits = __ldg(reinterpret_cast<const uint4*>(b + at));
        if constexpr (Op::OPERANDS == 3) z.bits = __ldg(reinterpret_cast<const uint4*>(c + at));
#pragma unroll
        for (int j = 0; j < PER_PACK; ++j) {
            T third{};
            if constexpr (Op::OPERANDS == 3) third = z.item[j];
            x.item[j] = one_nan(Op::of(x.item[j], y.item[j], third));
        }
        *reinterpret_cast<uint4*>(out + at) = x.bits;
    }

    const i64 single = n - tiles * TILE;
    for (i64 s = i64(blockIdx.x) * THREADS + threadIdx.x; s < single; s += i64(gridDim.x) * THREADS) {
        const i64 i = s < head ? s : s + tiles * TILE;
        T third{};
        if constexpr (Op::OPERANDS == 3) third = c[i];
        out[i] = one_nan(Op::of(a[i], b[i], third));
    }
}
