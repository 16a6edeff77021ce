// Products of digits on Hopper: one digit of 64 lines of A at a time with several digits of some lines of B.
#pragma once

#include "matmul/wgmma.cuh"

// Makes this thread's writes to shared memory visible to tensor cores after the next barrier.
__device__ inline void publish() {
#if ON_GPU
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#if ON_GPU
#define FOUR(j) "+r"(sums[j][0]), "+r"(sums[j][1]), "+r"(sums[j][2]), "+r"(sums[j][3])
#define EIGHT(j) FOUR(j), FOUR(j + 1)
#define TO_7 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TO_15 TO_7 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TO_31 TO_15 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TO_47 TO_31 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TO_55 TO_47 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define MULTIPLY(LINES, A, REGISTERS, OF_A, OF_B, ADD, ...)                                                        \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                                               \
                 "wgmma.mma_async.sync.aligned.m64n" LINES "k32.s32." A ".u8 {" REGISTERS "}, " OF_A ", " OF_B      \
                 ", add;\n}"                                                                                        \
                 : __VA_ARGS__                                                                                      \
                 : "l"(a + 2 * step), "l"(b + 2 * step), "r"(int(add)))
#define MULTIPLY_64(A) MULTIPLY("64", A, TO_31, "%32", "%33", "%34", EIGHT(0), EIGHT(2), EIGHT(4), EIGHT(6))
#define MULTIPLY_112(A)                                                                                            \
    MULTIPLY("112", A, TO_55, "%56", "%57", "%58", EIGHT(0), EIGHT(2), EIGHT(4), EIGHT(6), EIGHT(8), EIGHT(10), EIGHT(12))
#endif

// Products of 64 lines of A and 8 * GROUPS of B, over the 32 bytes of a step, added to the sums or stored in them, laid out as
// in `multiply_lines`. Bytes of B are unsigned, those of A are signed if SIGNED.
template <bool SIGNED, int GROUPS>
__device__ void multiply_digits(int (&sums)[GROUPS][4], u64 a, u64 b, int step, bool add) {
#if ON_GPU
    static_assert(GROUPS == 14 || GROUPS == 8 || (GROUPS == 2 && !SIGNED), "an instruction for each");
    if constexpr (GROUPS == 2) MULTIPLY("16", "u8", TO_7, "%8", "%9", "%10", EIGHT(0));
    if constexpr (GROUPS == 8 && SIGNED) MULTIPLY_64("s8");
    if constexpr (GROUPS == 8 && !SIGNED) MULTIPLY_64("u8");
    if constexpr (GROUPS == 14 && SIGNED) MULTIPLY_112("s8");
    if constexpr (GROUPS == 14 && !SIGNED) MULTIPLY_112("u8");
#else
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32 % 4;
    const auto load = [=](u64 memory, int line, u32(&words)[8]) {
        for (int i = 0; i < 2; ++i) {
            const uint4 half = *reinterpret_cast<const uint4*>(memory + swizzled(line, 2 * step + i));
            words[4 * i] = half.x, words[4 * i + 1] = half.y, words[4 * i + 2] = half.z, words[4 * i + 3] = half.w;
        }
    };
    for (int j = 0; j < GROUPS && !add; ++j)
        for (int& sum : sums[j]) sum = 0;
    u32 rows[2][8], column[8];
    for (int k = 0; k < 2; ++k) load(a, 16 * warp + lane / 4 + 8 * k, rows[k]);
    for (int j = 0; j < GROUPS; ++j)
        for (int n = 0; n < 2; ++n) {
            load(b, 8 * j + lane % 4 * 2 + n, column);
            for (int k = 0; k < 2; ++k)
                for (int byte = 0; byte < 32; ++byte) {
                    const u32 own = rows[k][byte / 4] >> byte % 4 * 8, other = column[byte / 4] >> byte % 4 * 8;
                    sums[j][2 * k + n] += (SIGNED ? int(i8(own)) : int(u8(own))) * int(u8(other));
                }
        }
#endif
}
#if ON_GPU
#undef FOUR
#undef EIGHT
#undef TO_7
#undef TO_15
#undef TO_31
#undef TO_47
#undef TO_55
#undef MULTIPLY
#undef MULTIPLY_64
#undef MULTIPLY_112
#endif
