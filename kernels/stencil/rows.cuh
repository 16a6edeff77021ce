// Rows of elements, how a block loads them, sums over its threads.
#pragma once

#include "stencil/wide_integers.cuh"

constexpr int OUTSIDE_ZERO = 0, OUTSIDE_NEAREST = 1;  // and 2: reflect

template <typename T> __device__ T* dynamic_shared() {
    extern __shared__ __align__(16) unsigned char bytes[];
    return reinterpret_cast<T*>(bytes);
}

// Copies 16 bytes from global to shared memory, asynchronously where the architecture can: complete when the same
// thread has waited for their batch.
inline __device__ void fetch(void* to, const void* from) {
#if HAS_ASYNC_COPY
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(u32(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
#else
    *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}
inline __device__ void end_batch() {
#if HAS_ASYNC_COPY
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits for all batches except the LAST most recent ones.
template <int LAST = 0> __device__ void wait_for_fetched() {
#if HAS_ASYNC_COPY
    if (LAST == 0)
        asm volatile("cp.async.wait_all;" ::: "memory");
    else
        asm volatile("cp.async.wait_group %0;" ::"n"(LAST) : "memory");
#endif
}

// A row of `length` elements and its boundary; the window of output 0 begins at element `start`.
template <typename T> struct Row {
    const T* x;
    i64 length, start;
    int outside;

    // Element k, counted from the beginning of the window of output 0.
    __device__ T operator[](i64 k) const {
        k += start;
        if (u64(k) < u64(length)) return x[k];
        if (outside == OUTSIDE_ZERO) return T{};
        if (outside == OUTSIDE_NEAREST) return x[k < 0 ? 0 : length - 1];
        return x[k < 0 ? -1 - k : 2 * length - 1 - k];
    }

    // Elements from the last 16-byte boundary to element k.
    __device__ int misaligned(i64 k) const {
        return int((reinterpret_cast<u64>(x) + u64(start + k) * sizeof(T)) % 16 / sizeof(T));
    }

    // Applies `apply` to elements first .. first + count - 1, by all threads together.
    template <int BLOCK, typename Apply> __device__ void for_each(i64 first, i64 count, Apply apply) const {
        const i64 begin = first + start;
        if (begin >= 0 && begin + count <= length) {
            const T* const from = x + begin;
#pragma unroll 4
            for (i64 k = threadIdx.x; k < count; k += BLOCK) apply(from[k]);
        } else {
#pragma unroll 1
            for (i64 k = threadIdx.x; k < count; k += BLOCK) apply((*this)[first + k]);
        }
    }
};

// A ring buffer in shared memory through which the elements of a row pass, in packs of 16 bytes aligned as in global
// memory. Its first EXTRA elements are repeated behind its end, so that a thread reads COUNT consecutive ones.
template <typename T, int COUNT, int BLOCK> struct Ring {
    static constexpr int PER_PACK = 16 / sizeof(T), EXTRA = (COUNT + PER_PACK - 1) / PER_PACK * PER_PACK;
    T* elements;
    int size;
    int end;   // place behind the last element
    i64 next;  // the element that goes there

    __device__ int after(int place, int count) const {
        place += count;
        return place < size ? place : place - size;
    }

    // Restarts at the pack that has element `first`, and returns its place.
    __device__ int start(const Row<T>& row, i64 first) {
        const int misaligned = row.misaligned(first);
        end = 0, next = first - misaligned;
        return misaligned;
    }

    __device__ void fetch_pack(int place, const T* from) const {
        fetch(elements + place, from);
        if (place < EXTRA) fetch(elements + size + place, from);
    }

    // Fetches the next TILE elements; those from `last` on are never read.
    template <int TILE> __device__ void fetch_tile(const Row<T>& row, i64 last) {
        const i64 begin = next + row.start;
        if (begin < 0 || begin + TILE > row.length) return fetch_packs(row, TILE, last);
        constexpr int PACKS = TILE / PER_PACK;
        const T* const from = row.x + begin + threadIdx.x * PER_PACK;
#pragma unroll
        for (int k = 0; k < PACKS; k += BLOCK)
            if (k + BLOCK <= PACKS || int(threadIdx.x) < PACKS - k)
                fetch_pack(after(end, (k + threadIdx.x) * PER_PACK), from + k * PER_PACK);
        end = after(end, TILE), next += TILE;
    }

    // Fetches the next `count` elements, a multiple of a pack.
    __device__ void fetch_packs(const Row<T>& row, int count, i64 last) {
        const i64 begin = next + row.start;
        if (begin >= 0 && begin + count <= row.length) {
            const T* const from = row.x + begin;
#pragma unroll 4
            for (int k = threadIdx.x * PER_PACK; k < count; k += BLOCK * PER_PACK) fetch_pack(after(end, k), from + k);
        } else {
#pragma unroll 1
            for (int k = threadIdx.x; k < count; k += BLOCK) {
                const int place = after(end, k);
                const i64 element = next + k;
                const T x = element >= 0 && element < last ? row[element] : T{};
                elements[place] = x;
                if (place < EXTRA) elements[size + place] = x;
            }
        }
        end = after(end, count), next += count;
    }
};

// Sum over all threads, returned to all of them; the caller puts a barrier before the next call.
template <int BLOCK, typename S> __device__ S sum_of_all(S sum) {
    constexpr int WARPS = BLOCK / 32;
    __shared__ S warps[WARPS];
#pragma unroll
    for (int k = 16; k > 0; k /= 2) sum = sum + lane_across(sum, k);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = warps[0];
#pragma unroll
    for (int k = 1; k < WARPS; ++k) sum = sum + warps[k];
    return sum;
}

// Sum over the earlier threads of the warp; `warps` gets the sum over the whole warp.
template <typename S> __device__ S sum_before(S value, S* warps) {
    S sum = value;
#pragma unroll
    for (int k = 1; k < 32; k *= 2) add_lane_before(sum, k);
    if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = sum;
    return sum - value;
}

// Sum over the earlier warps.
template <int BLOCK, typename S> __device__ S sum_of_warps_before(const S* warps) {
    constexpr int WARPS = BLOCK / 32, LANES = WARPS > 16 ? 32 : WARPS > 8 ? 16 : 8;
    static_assert(WARPS <= LANES);
    S sum{};
    if (WARPS <= 4) {
#pragma unroll
        for (int k = 0; k < WARPS - 1; ++k)
            if (k < int(threadIdx.x) / 32) sum = sum + warps[k];
    } else {  // every group of LANES lanes reduces all warps
        if (threadIdx.x % LANES < threadIdx.x / 32) sum = warps[threadIdx.x % LANES];
#pragma unroll
        for (int k = LANES / 2; k > 0; k /= 2) sum = sum + lane_across(sum, k);
    }
    return sum;
}

// Sum over all earlier threads of the block.
template <int BLOCK, typename S> __device__ S sum_before_all(S value) {
    __shared__ S warps[BLOCK / 32];
    const S sum = sum_before(value, warps);
    __syncthreads();
    return sum_of_warps_before<BLOCK>(warps) + sum;
}
