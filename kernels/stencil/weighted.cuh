// Products of elements and weights: each thread has a few outputs in registers and streams their windows past them.
#pragma once

#include "stencil/rows.cuh"

// The same bits for every NaN: those that additions on a GPU produce are larger as integers.
inline __device__ float one_nan(float x) {
#if ON_GPU
    return __int_as_float(min(__float_as_int(x), 0x7fc00000));
#else
    return x != x ? __int_as_float(0x7fc00000) : x;
#endif
}
inline __device__ double one_nan(double x) { return x != x ? __longlong_as_double(0x7ff8000000000000) : x; }

// Packs of outputs per thread, odd so that lanes hit different banks of shared memory; taps are staged in chunks of as
// many times a ring of registers.
constexpr int FLOAT_PACKS = 3, DOUBLE_PACKS = 5, CHUNK_RINGS = 20;

// 16 bytes of elements, weights or outputs.
template <typename T> struct __align__(16) Pack {
    static constexpr int PACKS = sizeof(T) == 4 ? FLOAT_PACKS : DOUBLE_PACKS, CHUNK = CHUNK_RINGS * (PACKS + 1);
    static constexpr int SIZE = 16 / sizeof(T), OUTPUTS = PACKS * SIZE, RING = OUTPUTS + SIZE;
    T item[SIZE];
};

// Multiplies by the next SIZE taps; the element for the first tap is at `place` of the ring, which also takes the next
// pack of elements.
template <bool ALL, typename T>
__device__ bool multiply_pack(T (&sum)[Pack<T>::OUTPUTS], T (&ring)[Pack<T>::RING], int place, const T* elements,
                              const T* factors, int taps) {
    constexpr int SIZE = Pack<T>::SIZE, OUTPUTS = Pack<T>::OUTPUTS, RING = Pack<T>::RING;
    if (!ALL && taps <= 0) return false;
    const auto next = *reinterpret_cast<const Pack<T>*>(elements + OUTPUTS);
    const auto factor = *reinterpret_cast<const Pack<T>*>(factors);
#pragma unroll
    for (int i = 0; i < SIZE; ++i) ring[(place + OUTPUTS + i) % RING] = next.item[i];
#pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        if (!ALL && i >= taps) return false;
#pragma unroll
        for (int j = 0; j < OUTPUTS; ++j) sum[j] += ring[(place + i + j) % RING] * factor.item[i];
    }
    return true;
}

// All taps in order: a multiplication and an addition for each tap and output.
template <typename T>
__device__ void multiply(T (&sum)[Pack<T>::OUTPUTS], const T* elements, const T* factors, int taps) {
    constexpr int SIZE = Pack<T>::SIZE, OUTPUTS = Pack<T>::OUTPUTS, RING = Pack<T>::RING;
    T ring[RING];
#pragma unroll
    for (int k = 0; k < OUTPUTS; k += SIZE) {
        const auto pack = *reinterpret_cast<const Pack<T>*>(elements + k);
#pragma unroll
        for (int i = 0; i < SIZE; ++i) ring[k + i] = pack.item[i];
    }
    for (; taps >= RING; taps -= RING, elements += RING, factors += RING) {
#pragma unroll
        for (int k = 0; k < RING; k += SIZE) multiply_pack<true>(sum, ring, k, elements + k, factors + k, SIZE);
    }
#pragma unroll
    for (int k = 0; k < RING; k += SIZE)
        if (!multiply_pack<false>(sum, ring, k, elements + k, factors + k, taps - k)) return;
}

template <typename T> __device__ void get_pack(T* to, const T* from) {
    const auto pack = *reinterpret_cast<const Pack<T>*>(from);
#pragma unroll
    for (int i = 0; i < Pack<T>::SIZE; ++i) to[i] = pack.item[i];
}

// The same for a number of taps known at compile time, without a ring.
template <int TAPS, typename T, int OUTPUTS>
__device__ void multiply_all(T (&sum)[OUTPUTS], const T* elements, const T* factors) {
    constexpr int SIZE = Pack<T>::SIZE, MORE = (OUTPUTS + TAPS - 1 + SIZE - 1) / SIZE * SIZE;
    T window[MORE];
    Pack<T> factor;
#pragma unroll
    for (int k = 0; k < OUTPUTS; k += SIZE) get_pack(window + k, elements + k);
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
        if (tap % SIZE == 0) {
            factor = *reinterpret_cast<const Pack<T>*>(factors + tap);
            if (OUTPUTS + tap < MORE) get_pack(window + OUTPUTS + tap, elements + OUTPUTS + tap);
        }
#pragma unroll
        for (int j = 0; j < OUTPUTS; ++j) {
            const T product = window[tap + j] * factor.item[tap % SIZE];
            sum[j] = tap ? sum[j] + product : product;
        }
    }
}

template <typename T> __device__ void put_pack(T* to, const T* from) {
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < Pack<T>::SIZE; ++i) pack.item[i] = one_nan(from[i]);
    *reinterpret_cast<Pack<T>*>(to) = pack;
}

// Copies a warp's outputs of a tile from shared memory to global memory.
template <int OUTPUTS, typename T> __device__ void store_packs(T* out, const T* from, int tile, int count) {
    constexpr int PART = 32 * OUTPUTS, SIZE = Pack<T>::SIZE;
    const int lane = threadIdx.x % 32, warp = int(threadIdx.x) / 32 * PART;
    const int first = tile + warp;
    out += first, from += warp;
    __syncwarp();
    const bool whole = first >= 0 && first + PART <= count;
    if (whole && reinterpret_cast<u64>(out) % 16 == 0) {
#pragma unroll
        for (int k = 0; k < PART / SIZE; k += 32)
            __stcs(reinterpret_cast<uint4*>(out) + lane + k, reinterpret_cast<const uint4*>(from)[lane + k]);
    } else if (whole) {
#pragma unroll
        for (int k = 0; k < PART; k += 32) __stcs(out + lane + k, from[lane + k]);
    } else {
#pragma unroll 1
        for (int k = lane; k < PART; k += 32)
            if (u32(first + k) < u32(count)) out[k] = from[k];
    }
}
