// Instructions without a C++ form, each in one function; elsewhere plain C++ does the same.
#pragma once

#include "matmul/numbers.cuh"

#if ON_GPU
__device__ inline u32 shared_address(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }
#endif

// Copies 16 bytes from global to shared memory, or zeros; complete once a wait for its group returns.
__device__ inline void copy_async(void* to, const void* from, bool exists) {
#if HAS_ASYNC_COPY
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
#else
    *static_cast<uint4*>(to) = exists ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}

// Closes a group of copies.
__device__ inline void commit_copies() {
#if HAS_ASYNC_COPY
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all of this thread's groups but the last BUT.
template <int BUT> __device__ void wait_for_copies() {
#if HAS_ASYNC_COPY
    asm volatile("cp.async.wait_group %0;" ::"n"(BUT) : "memory");
#endif
}

// Loads four matrices of 8 rows of 16 bytes: lane 8 i + j has the address of row j of matrix i, and gets from each matrix
// bytes 4 (lane % 4) to 4 (lane % 4) + 3 of row lane / 4.
__device__ inline void load_matrices(u32 (&matrices)[4], const void* row) {
#if ON_GPU
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(shared_address(row))
                 : "memory");
#else
    const int lane = int(threadIdx.x) % 32;
    for (int i = 0; i < 4; ++i) {
        const u64 address = __shfl_sync(~0u, u64(row), 8 * i + lane / 4);
        matrices[i] = reinterpret_cast<const u32*>(address)[lane % 4];
    }
#endif
}

// Adds the products of four unsigned bytes and four signed ones.
__device__ inline u32 dot_bytes(u32 a, u32 b, u32 sum) {
#if ON_GPU
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
#else
    for (int i = 0; i < 32; i += 8) sum += (a >> i & 0xff) * u32(int(i8(b >> i)));
    return sum;
#endif
}

// Packs the low bytes of four words, the first word's lowest: three instructions instead of seven.
__device__ inline u32 last_bytes(u32 a, u32 b, u32 c, u32 d) {
#if ON_GPU
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
#else
    return (a & 0xff) | (b & 0xff) << 8 | (c & 0xff) << 16 | d << 24;
#endif
}

// Interleaves the bytes of two words: of their lower halves, and of their upper halves.
__device__ inline uint2 paired_bytes(u32 a, u32 b) {
#if ON_GPU
    return make_uint2(__byte_perm(a, b, 0x5140), __byte_perm(a, b, 0x7362));
#else
    const auto pair = [=](int i) { return (a >> 8 * i & 0xff) | (b >> 8 * i & 0xff) << 8; };
    return make_uint2(pair(0) | pair(1) << 16, pair(2) | pair(3) << 16);
#endif
}

// Adds the products of 16 rows of A and 8 columns of B, of 32 bytes each, to 16 x 8 sums. With g = lane / 4 and
// t = lane % 4 a lane holds four bytes of A from 4 t and from 16 + 4 t on of rows g and g + 8, the same bytes of column g of B,
// and the sums of columns 2 t and 2 t + 1 of rows g and g + 8.
__device__ inline void multiply_add(int (&sums)[4], const u32 (&a)[4], u32 b_low, u32 b_high) {
#if HAS_WIDE_MMA
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
#elif ON_GPU
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(sums[2 * (i % 2)]), "+r"(sums[2 * (i % 2) + 1])
            : "r"(a[i]), "r"(i < 2 ? b_low : b_high));
    }
#else
    const int lane = int(threadIdx.x) % 32, row = lane / 4, column = 2 * (lane % 4);
    int totals[4] = {sums[0], sums[1], sums[2], sums[3]};
    for (int i = 0; i < 4; ++i) {  // bytes 4 i to 4 i + 3 of the rows and columns, and 16 + 4 i to 19 + 4 i
        const u64 upper = __shfl_sync(~0u, u64(a[2]) << 32 | a[0], 4 * row + i);
        const u64 lower = __shfl_sync(~0u, u64(a[3]) << 32 | a[1], 4 * row + i);
        for (int j = 0; j < 2; ++j) {
            const u64 other = __shfl_sync(~0u, u64(b_high) << 32 | b_low, 4 * (column + j) + i);
            for (int byte = 0; byte < 64; byte += 8) {
                totals[j] += int(i8(upper >> byte)) * int(i8(other >> byte));
                totals[2 + j] += int(i8(lower >> byte)) * int(i8(other >> byte));
            }
        }
    }
    for (int i = 0; i < 4; ++i) sums[i] = totals[i];
#endif
}
