// Facts about the architecture that is compiled for. No other file compares its number.
//
// ON_GPU is 0 where the emulator compiles for a host: instructions without a C++ form are spelt out there, and limits are
// those of Hopper.
#pragma once

#ifdef __CUDA_ARCH__
#define ON_GPU 1
#define ARCHITECTURE __CUDA_ARCH__
#else
#define ON_GPU 0
#define ARCHITECTURE 900
#endif

#define HAS_WARP_REDUCE (ARCHITECTURE >= 800)           // __reduce_min_sync and its kind
#define HAS_ASYNC_COPY (ON_GPU && ARCHITECTURE >= 800)  // cp.async
#define HAS_WIDE_MMA (ON_GPU && ARCHITECTURE >= 800)    // mma of 8-bit integers with 16 rows

constexpr bool TURING = ARCHITECTURE < 800;  // at most 64 KiB of shared memory a block
constexpr bool HOPPER = ARCHITECTURE == 900;
constexpr bool AFTER_HOPPER = ARCHITECTURE >= 1000;
constexpr bool SM_120 = ARCHITECTURE >= 1200;

// CUDA C++ Programming Guide, technical specifications per compute capability.
constexpr int THREADS_PER_SM =
    TURING ? 1024 : ARCHITECTURE == 860 || ARCHITECTURE == 890 || SM_120 ? 1536 : 2048;
