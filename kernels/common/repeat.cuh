// Copies of bytes that were just decompressed.
#pragma once

#include "common/types.cuh"

// Copies `length` bytes from `offset` before `target`, by LANES lanes of a warp, after what they wrote. They may repeat
// what they write.
template <int LANES>
inline __device__ void repeat(u8* target, u32 offset, u32 length, u32 lane, u32 group) {
    const u8* const source = target - offset;
    __syncwarp(group);
    if (length <= offset) {
        for (u32 i = lane; i < length; i += LANES) target[i] = source[i];
        return;
    }
    // Only the bytes that are there already are read: there is nothing to wait for.
    const float inverse = 1.0f / float(offset);  // of numbers this small a rounded quotient is right
    const auto rest = [&](u32 number) { return number - u32((float(number) + 0.5f) * inverse) * offset; };
    u32 place = rest(lane);
    const u32 step = rest(LANES);
    for (u32 i = lane; i < length; i += LANES) {
        target[i] = source[place];
        place += step;
        if (place >= offset) place -= offset;
    }
}
