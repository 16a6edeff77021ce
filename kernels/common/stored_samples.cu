// Makes samples of bytes as they are stored, after they have crossed the bus.
//
//   unpack      samples of 10, 12 or 14 bits without gaps between them; 16 of them per thread
//   unshuffle   bytes that were sorted by their place in an item; one item per thread

#include "common/types.cuh"

constexpr int THREADS = 256;
constexpr int PACK = 16;  // samples: of 10, 12 and 14 bits the fewest that end with a word, and with 16 bytes when unpacked

// n samples of BITS bits, whole groups of bytes, from an address that is a multiple of 4. Little bit order counts from
// the least significant bit of each byte, big from the most significant one. T is short where they are two's complements.
template <int BITS, bool BIG, typename T>
__global__ void __launch_bounds__(THREADS)
unpack(const u8* __restrict__ stored, T* __restrict__ samples, i64 n) {
    constexpr int WORDS = PACK * BITS / 32, SPARE = 16 - BITS;
    const auto extended = [](u32 value) { return T(T(value << SPARE) >> SPARE); };
    const i64 packs = n / PACK, at = i64(blockIdx.x) * THREADS + threadIdx.x;
    if (at < packs) {
        const u32* const from = reinterpret_cast<const u32*>(stored) + at * WORDS;
        u32 word[WORDS + 1] = {};
#pragma unroll
        for (int k = 0; k < WORDS; ++k) word[k] = BIG ? __byte_perm(from[k], 0, 0x0123) : from[k];
        union {
            uint4 bits[2];
            T item[PACK];
        } out;
#pragma unroll
        for (int k = 0; k < PACK; ++k) {
            const int first = k * BITS / 32, skipped = k * BITS % 32;
            const u64 low = word[BIG ? first + 1 : first], high = word[BIG ? first : first + 1];
            out.item[k] = extended(u32((high << 32 | low) >> (BIG ? 64 - BITS - skipped : skipped)));
        }
        auto* const to = reinterpret_cast<uint4*>(samples + at * PACK);
        to[0] = out.bits[0];
        to[1] = out.bits[1];
        return;
    }

    const i64 i = packs * PACK + at - packs;  // less than a pack is left: one sample per thread
    if (i >= n) return;
    const i64 first = i * BITS / 8;
    const int skipped = i * BITS % 8, left = 24 - BITS - skipped;
    const u32 a = stored[first], b = stored[first + 1], c = left < 8 ? stored[first + 2] : 0;
    samples[i] = extended(BIG ? (a << 16 | b << 8 | c) >> left : (c << 16 | b << 8 | a) >> skipped);
}

// Of each chunk the first bytes of all its items come first, then the second ones, and so on.
template <typename T>
__global__ void __launch_bounds__(THREADS)
unshuffle(const u8* __restrict__ shuffled, T* __restrict__ items, i64 n, i64 of_chunk) {
    const i64 i = i64(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= n) return;
    const i64 inside = i % of_chunk;
    const u8* const from = shuffled + (i - inside) * i64(sizeof(T)) + inside;
    union {
        u8 byte[sizeof(T)];
        T item;
    } out;
#pragma unroll
    for (int k = 0; k < int(sizeof(T)); ++k) out.byte[k] = from[k * of_chunk];
    items[i] = out.item;
}
