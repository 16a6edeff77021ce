// Instructions that only Hopper has (sm_90a), each in one function; elsewhere plain C++ does the same. On a host nothing is
// asynchronous: the barrier of a stage is one of the whole block.
#pragma once

#include "matmul/mma.cuh"

constexpr int WIDE = 128;  // bytes of each line in a stage: four instructions take 32 each

// Offset of a chunk of 16 bytes of a line of WIDE bytes, swizzled so that eight lines cover all banks.
__device__ inline int swizzled(int line, int chunk) { return line * WIDE + (chunk ^ line % 8) * 16; }

// A barrier in shared memory: a phase completes with so many arrivals and the bytes that they announced.
__device__ inline void begin_barrier(u64* barrier, int arrivals) {
#if ON_GPU
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\nfence.mbarrier_init.release.cluster;" ::"r"(
                     shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
#endif
}

__device__ inline void wait_for_phase(u64* barrier, u32 parity) {
#if ON_GPU
    asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
#endif
}

// By a consumer: waits until a stage has arrived.
__device__ inline void wait_for_stage(u64* barrier, u32 parity) {
#if ON_GPU
    wait_for_phase(barrier, parity);
#else
    __syncthreads();
#endif
}

// By the producer: all copies of a stage are issued; on a host they are complete.
__device__ inline void stage_is_sent() {
#if !ON_GPU
    wait_for_stage(nullptr, 0);
#endif
}

__device__ inline void expect_bytes(u64* barrier, int bytes) {
#if ON_GPU
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
#endif
}

// Arrival of one thread.
__device__ inline void arrive(u64* barrier) {
#if ON_GPU
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
}

// Copies bytes from global to shared memory; the barrier counts them.
__device__ inline void copy_bulk(u8* to, const i8* from, int bytes, u64* barrier) {
#if ON_GPU
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
#else
    for (int i = 0; i < bytes; i += 16) *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
#endif
}

// Swizzled lines of WIDE bytes in shared memory, aligned to 1024 bytes; on a GPU their matrix descriptor.
__device__ inline u64 lines_at(const u8* memory) {
#if ON_GPU
    constexpr u64 SWIZZLE_128 = u64(1) << 62, EIGHT_LINES = u64(8 * WIDE / 16) << 32, UNUSED = u64(1) << 16;
    return SWIZZLE_128 | EIGHT_LINES | UNUSED | (shared_address(memory) & 0x3ffff) >> 4;
#else
    return u64(memory);
#endif
}

// Keeps the compiler from moving accesses to the sums of a warpgroup across this point.
template <int GROUPS> __device__ void hold(int (&sums)[GROUPS][4]) {
#if ON_GPU
#pragma unroll
    for (int j = 0; j < GROUPS; ++j)
#pragma unroll
        for (int k = 0; k < 4; ++k) asm volatile("" : "+r"(sums[j][k])::"memory");
#endif
}
__device__ inline void begin_multiplying() {
#if ON_GPU
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void commit_multiplying() {
#if ON_GPU
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits until all but the last BUT committed groups are done.
template <int BUT> __device__ void wait_for_multiplying() {
#if ON_GPU
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BUT) : "memory");
#endif
}

// Products of 64 lines of A and 8 * GROUPS of B, over the 32 bytes of a step, added to the sums or stored in them. With
// g = lane / 4 and t = lane % 4 a lane of warp w has, of group j, the sums of lines 8 j + 2 t and 8 j + 2 t + 1 of B with lines
// 16 w + g and 16 w + g + 8 of A.
template <int GROUPS> __device__ void multiply_lines(int (&sums)[GROUPS][4], u64 a, u64 b, int step, bool add) {
#if ON_GPU
    static_assert(GROUPS == 32, "256 lines of B");
#define FOUR(j) "+r"(sums[j][0]), "+r"(sums[j][1]), "+r"(sums[j][2]), "+r"(sums[j][3])
#define SIXTEEN(j) FOUR(j), FOUR(j + 1), FOUR(j + 2), FOUR(j + 3)
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "
        "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "
        "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, add;\n}"
        : SIXTEEN(0), SIXTEEN(4), SIXTEEN(8), SIXTEEN(12), SIXTEEN(16), SIXTEEN(20), SIXTEEN(24), SIXTEEN(28)
        : "l"(a + 2 * step), "l"(b + 2 * step), "r"(int(add)));
#undef SIXTEEN
#undef FOUR
#else
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32 % 4;
    const auto half = [=](u64 memory, int line, int i) {
        return *reinterpret_cast<const uint4*>(memory + swizzled(line, 2 * step + i));
    };
    const auto dot = [](uint4 a, uint4 b, int sum) {
        sum = __dp4a(int(a.y), int(b.y), __dp4a(int(a.x), int(b.x), sum));
        return __dp4a(int(a.w), int(b.w), __dp4a(int(a.z), int(b.z), sum));
    };
    const int upper = 16 * warp + lane / 4, lower = upper + 8;
    const uint4 upper_0 = half(a, upper, 0), upper_1 = half(a, upper, 1);
    const uint4 lower_0 = half(a, lower, 0), lower_1 = half(a, lower, 1);
    for (int j = 0; j < GROUPS; ++j)
        for (int k = 0; k < 2; ++k) {
            const int line = 8 * j + lane % 4 * 2 + k;
            const uint4 b_0 = half(b, line, 0), b_1 = half(b, line, 1);
            sums[j][k] = dot(upper_0, b_0, dot(upper_1, b_1, add ? sums[j][k] : 0));
            sums[j][2 + k] = dot(lower_0, b_0, dot(lower_1, b_1, add ? sums[j][2 + k] : 0));
        }
#endif
}
