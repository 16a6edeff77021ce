// Counts in registers.
#pragma once

#include "common/types.cuh"

// Adds one, as the product of `one` with itself: for `if` the compiler takes an instruction more, and the units that add have
// comparisons to do.
inline __device__ void add_if(u32& count, bool wanted, u32 one) {
#if ON_GPU
    asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %1, 0;\n\t@p mad.lo.u32 %0, %2, %2, %0;\n\t}"
        : "+r"(count) : "r"(u32(wanted)), "r"(one));
#else
    count += wanted ? one * one : 0;
#endif
}
