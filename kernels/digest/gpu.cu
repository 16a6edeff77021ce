// Chaining values of BLAKE3, bound by integer arithmetic: 12 instructions for every 8 mixed words, 10.5 a byte.
//
//   leaves    a thread hashes a leaf of 1024 bytes, block by block, with all of its state in registers
//   parents   a thread hashes a pair of chaining values; launched once per level of the tree
//
// Threads read 1024 bytes apart, but each reads whole sectors, and arithmetic takes longer than the loads.

#include "common/types.cuh"

constexpr int THREADS = 256, RESIDENT = 4;  // threads of a block, and blocks of a multiprocessor: 64 registers a thread
constexpr int LEAF = 1024, BLOCK = 64, VALUE = 8;  // bytes, bytes, words
constexpr u32 FIRST = 1, LAST = 2, PARENT = 4;

__device__ constexpr u32 IV[VALUE] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
// Which word of a block the next round takes in each place.
__device__ constexpr u8 NEXT_WORD[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};

inline __device__ u32 rotated(u32 x, int by) { return x >> by | x << (32 - by); }

inline __device__ void mix(u32& a, u32& b, u32& c, u32& d, u32 x, u32 y) {
    a += b + x;
    d = rotated(d ^ a, 16);
    c += d;
    b = rotated(b ^ c, 12);
    a += b + y;
    d = rotated(d ^ a, 8);
    c += d;
    b = rotated(b ^ c, 7);
}

// The chaining value after a block.
inline __device__ void compress(u32* value, const u32* block, u64 counter, u32 flags) {
    u32 v[16], m[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) m[i] = block[i];
#pragma unroll
    for (int i = 0; i < VALUE; ++i) v[i] = value[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[8 + i] = IV[i];
    v[12] = u32(counter), v[13] = u32(counter >> 32), v[14] = BLOCK, v[15] = flags;
#pragma unroll
    for (int round = 0; round < 7; ++round) {
#pragma unroll
        for (int i = 0; i < 4; ++i) mix(v[i], v[4 + i], v[8 + i], v[12 + i], m[2 * i], m[2 * i + 1]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            mix(v[i], v[4 + (i + 1) % 4], v[8 + (i + 2) % 4], v[12 + (i + 3) % 4], m[8 + 2 * i], m[9 + 2 * i]);
        u32 next[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) next[i] = m[NEXT_WORD[i]];
#pragma unroll
        for (int i = 0; i < 16; ++i) m[i] = next[i];
    }
#pragma unroll
    for (int i = 0; i < VALUE; ++i) value[i] = v[i] ^ v[8 + i];
}

inline __device__ void begin(u32* value) {
#pragma unroll
    for (int i = 0; i < VALUE; ++i) value[i] = IV[i];
}

inline __device__ void store(const u32* value, u32* to) {
#pragma unroll
    for (int i = 0; i < VALUE; ++i) to[i] = value[i];
}

// Load: what the address of the data is a multiple of. `first` is the number of the first leaf.
template <typename Load>
__global__ void __launch_bounds__(THREADS, RESIDENT)
leaves(const u8* __restrict__ data, i64 n, u64 first, u32* __restrict__ values) {
    constexpr int LOADS = BLOCK / sizeof(Load);
    const i64 leaf = i64(blockIdx.x) * THREADS + threadIdx.x;
    if (leaf >= n) return;
    const auto* const from = reinterpret_cast<const Load*>(data + leaf * LEAF);
    u32 value[VALUE];
    begin(value);
#pragma unroll 1
    for (int block = 0; block < LEAF / BLOCK; ++block) {
        union {
            Load loads[LOADS];
            u32 words[16];
        };
#pragma unroll
        for (int i = 0; i < LOADS; ++i) loads[i] = from[block * LOADS + i];
        const u32 flags = (block == 0 ? FIRST : 0) | (block == LEAF / BLOCK - 1 ? LAST : 0);
        compress(value, words, first + leaf, flags);
    }
    store(value, values + leaf * VALUE);
}

// Pairs begin at multiples of 32 bytes only: the node before the first pair may be kept as it is.
__global__ void __launch_bounds__(THREADS, RESIDENT)
parents(const u32* __restrict__ pairs, i64 n, u32* __restrict__ values) {
    const i64 pair = i64(blockIdx.x) * THREADS + threadIdx.x;
    if (pair >= n) return;
    union {
        uint4 loads[4];
        u32 words[16];
    };
#pragma unroll
    for (int i = 0; i < 4; ++i) loads[i] = reinterpret_cast<const uint4*>(pairs)[pair * 4 + i];
    u32 value[VALUE];
    begin(value);
    compress(value, words, 0, PARENT);
    store(value, values + pair * VALUE);
}
