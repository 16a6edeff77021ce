// Compares stored chunks with the checksums behind them, a warp for each.

#include "common/crc32.cuh"
#include "common/types.cuh"

constexpr int THREADS = 128, LANES = 32;
constexpr u32 WHOLE = ~0u;  // the lanes of a warp
constexpr u32 CHECKSUM_BYTES = 4;

struct Crc32c {
    static __device__ bool agrees(const u8* __restrict__ data, u32 size, u32 stored, u32 lane) {
        return crc32<CRC32C, LANES>(data, size, lane, WHOLE) == stored;
    }
};

// HDF5's: the sum of big-endian words, and above it that of sums so far. HDF5 1.6.2 swapped the bytes of each half.
struct Fletcher32 {
    static constexpr u32 MODULUS = 65535;

    static __device__ bool same(u32 sum, u32 weighted, u32 stored) {
        return (stored & 0xffff) % MODULUS == sum && (stored >> 16) % MODULUS == weighted;
    }
    static __device__ bool agrees(const u8* __restrict__ data, u32 size, u32 stored, u32 lane) {
        const u32 words = size / 2 + size % 2;
        u64 sum = 0, weighted = 0;
        for (u32 k = lane; k < words; k += LANES) {
            const u32 word = u32(data[2 * k]) << 8 | (2 * k + 1 < size ? data[2 * k + 1] : 0);
            sum += word;
            weighted += u64((words - k) % MODULUS) * word;
        }
        for (int apart = LANES / 2; apart; apart /= 2) {
            sum += __shfl_xor_sync(WHOLE, sum, apart);
            weighted += __shfl_xor_sync(WHOLE, weighted, apart);
        }
        const u32 low = u32(sum % MODULUS), high = u32(weighted % MODULUS);
        return same(low, high, stored) || same(low, high, (stored & 0xff00ff) << 8 | (stored >> 8 & 0xff00ff));
    }
};

// Of each chunk, `starts` and `sizes` of its bytes in `stored`, with the checksum that ends them.
template <typename Checksum>
__global__ void __launch_bounds__(THREADS)
agree(const u8* __restrict__ stored, const i64* __restrict__ starts, const i64* __restrict__ sizes,
      u8* __restrict__ right, i64 chunks) {
    const i64 chunk = i64(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
    if (chunk >= chunks) return;
    const u32 lane = threadIdx.x % LANES, size = u32(sizes[chunk]);
    const u8* const data = stored + starts[chunk];
    const bool good = size >= CHECKSUM_BYTES && Checksum::agrees(data, size - CHECKSUM_BYTES,
                                                                 little_endian(data + size - CHECKSUM_BYTES), lane);
    if (lane == 0) right[chunk] = good;
}
