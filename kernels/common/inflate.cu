// Decompresses chunks in the DEFLATE format (RFC 1951); each by a group of lanes, which decode the same symbols and copy
// bytes side by side.
//
// What a chunk says of itself is never trusted: nothing is read outside of it, and nothing is written outside of the
// place that it has. Codes, lengths and distances are refused as zlib's inflate refuses them.
//
// Symbols of short codes come from a table of their next bits; others are found bit by bit in canonical order, as in
// zlib's contrib/puff.

#include "common/bits.cuh"
#include "common/crc32.cuh"
#include "common/repeat.cuh"
#include "common/types.cuh"

constexpr int THREADS = 128, LANES = 8, GROUPS = THREADS / LANES;
constexpr int MOST_BITS = 15;                    // of a code
constexpr int FAST = 9, FAST_OF_DISTANCES = 7;   // bits of the tables
constexpr u32 LITERALS = 288, DISTANCES = 32, LENGTHS = 19, END = 256;
constexpr u32 NONE = ~0u;
constexpr u32 FIRST_BLOCKS = 16, BLOCK_BYTES = 32;  // of a stream: so many blocks, and one more for so many bytes

// A canonical Huffman code: numbers of codes of each length, symbols in their order, and `symbol << 4 | length` by the
// next bits, or 0.
struct Code {
    u16 *fast, *symbols, *counts;
};

// Of one group.
struct Tables {
    u16 fast[1 << FAST], fast_of_distances[1 << FAST_OF_DISTANCES];
    u16 symbols[LITERALS], symbols_of_distances[DISTANCES];
    u16 counts[2][MOST_BITS + 1], places[MOST_BITS + 1];
    u8 lengths[LITERALS + DISTANCES];
};

// `symbol << 4 | length` of the code that bits begin with, if it has at most so many; else 0.
inline __device__ u32 walked(const Code& code, u32 bits, int most) {
    int value = 0, first = 0, index = 0;
    for (int length = 1; length <= most; ++length) {
        value |= int(bits & 1);
        bits >>= 1;
        const int count = code.counts[length];
        if (value - first < count) return u32(code.symbols[index + value - first]) << 4 | u32(length);
        index += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    return 0;
}

template <int BITS>
inline __device__ u32 symbol(Bits& bits, const Code& code) {
    u32 found = code.fast[bits.next(BITS)];
    if (!found) found = walked(code, bits.next(MOST_BITS), MOST_BITS);
    if (!found) return NONE;
    bits.drop(found & 15);
    return found >> 4;
}

// Makes a code of the lengths of its symbols, which only the first lane reads; false if there are more codes than bits can
// tell apart, or fewer: a single one of one bit is permitted unless it is to be `whole`, and none.
template <int BITS>
inline __device__ bool made_of(const Code& code, u16* places, const u8* lengths, u32 symbols, bool whole, u32 lane,
                               u32 group) {
    if (lane == 0) {
        for (int length = 0; length <= MOST_BITS; ++length) code.counts[length] = 0;
        for (u32 k = 0; k < symbols; ++k) ++code.counts[lengths[k]];
        places[1] = 0;
        for (int length = 1; length < MOST_BITS; ++length) places[length + 1] = places[length] + code.counts[length];
        for (u32 k = 0; k < symbols; ++k) {
            if (lengths[k]) code.symbols[places[lengths[k]]++] = u16(k);
        }
    }
    __syncwarp(group);
    int left = 1, longest = 0;
    for (int length = 1; length <= MOST_BITS; ++length) {
        left = 2 * left - code.counts[length];
        if (left < 0) return false;
        if (code.counts[length]) longest = length;
    }
    if (left && longest && (whole || longest > 1)) return false;
    for (u32 bits = lane; bits < 1u << BITS; bits += LANES) code.fast[bits] = u16(walked(code, bits, BITS));
    __syncwarp(group);
    return true;
}

// In which order the lengths of codes of lengths come: 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15.
inline __device__ u32 place_of_length(u32 k) {
    if (k < 3) return 16 + k;
    if (k == 3) return 0;
    return k & 1 ? 9 - k / 2 : 6 + k / 2;
}

// The codes of a block that has them in front.
inline __device__ bool read_codes(Bits& bits, Tables& tables, const Code& literals, const Code& distances, u32 lane,
                                  u32 group) {
    bits.fill();
    const u32 of_literals = bits.take(5) + 257, of_distances = bits.take(5) + 1, of_lengths = bits.take(4) + 4;
    if (of_literals > 286 || of_distances > 30) return false;
    for (u32 k = lane; k < LENGTHS; k += LANES) tables.lengths[k] = 0;
    __syncwarp(group);
    for (u32 k = 0; k < of_lengths; ++k) {
        bits.fill();
        const u32 length = bits.take(3);
        if (lane == 0) tables.lengths[place_of_length(k)] = u8(length);
    }
    const Code& code = distances;  // until those are read
    if (!made_of<FAST_OF_DISTANCES>(code, tables.places, tables.lengths, LENGTHS, true, lane, group)) return false;

    const u32 all = of_literals + of_distances;
    u32 before = NONE;
    for (u32 k = 0; k < all;) {
        bits.fill();
        const u32 found = symbol<FAST_OF_DISTANCES>(bits, code);
        u32 length = found, times = 1;
        if (found == 16) {
            length = before;
            times = 3 + bits.take(2);
        } else if (found > 16) {
            length = 0;
            times = found == 17 ? 3 + bits.take(3) : 11 + bits.take(7);
        }
        if (length == NONE || times > all - k) return false;
        for (u32 i = lane; i < times; i += LANES) tables.lengths[k + i] = u8(length);
        k += times;
        before = length;
    }
    __syncwarp(group);
    if (!tables.lengths[END]) return false;
    return made_of<FAST>(literals, tables.places, tables.lengths, of_literals, false, lane, group) &&
           made_of<FAST_OF_DISTANCES>(distances, tables.places, tables.lengths + of_literals, of_distances, false, lane,
                                      group);
}

// The codes of a block that has the fixed ones.
inline __device__ bool take_fixed(Tables& tables, const Code& literals, const Code& distances, u32 lane, u32 group) {
    for (u32 k = lane; k < LITERALS + DISTANCES; k += LANES) {
        tables.lengths[k] = k < 144 ? 8 : k < 256 ? 9 : k < 280 ? 7 : k < LITERALS ? 8 : 5;
    }
    __syncwarp(group);
    return made_of<FAST>(literals, tables.places, tables.lengths, LITERALS, false, lane, group) &&
           made_of<FAST_OF_DISTANCES>(distances, tables.places, tables.lengths + LITERALS, DISTANCES, false, lane, group);
}

// A block that is compressed.
inline __device__ bool read_block(Bits& bits, const Code& literals, const Code& distances, u8* to, u32& made, u32 room,
                                  u32 lane, u32 group) {
    while (true) {
        bits.fill();
        const u32 found = symbol<FAST>(bits, literals);
        if (found < END) {
            if (made == room) return false;
            if (lane == 0) to[made] = u8(found);
            ++made;
            continue;
        }
        if (found == END) return true;
        if (found > 285) return false;
        const u32 k = found - END - 1, more = k < 4 || k == 28 ? 0 : k / 4 - 1;
        const u32 length = (k == 28 ? 258 : k < 4 ? 3 + k : 3 + ((4 + k % 4) << more)) + bits.take(more);
        bits.fill();
        const u32 far = symbol<FAST_OF_DISTANCES>(bits, distances);
        if (far >= 30) return false;
        const u32 further = far < 2 ? 0 : far / 2 - 1;
        const u32 distance = (far < 2 ? 1 + far : 1 + ((2 + far % 2) << further)) + bits.take(further);
        if (distance > made || length > room - made) return false;
        repeat<LANES>(to + made, distance, length, lane, group);
        made += length;
    }
}

// Bytes of a DEFLATE stream that gives exactly `room` bytes; NONE if it does not, or if it has too many blocks. Making
// the codes of a block takes as long as some hundred symbols, and a stream could have millions of empty blocks.
inline __device__ u32 inflated(const u8* __restrict__ from, u32 size, u8* to, u32 room, Tables& tables, u32 lane,
                               u32 group) {
    const Code literals = {tables.fast, tables.symbols, tables.counts[0]};
    const Code distances = {tables.fast_of_distances, tables.symbols_of_distances, tables.counts[1]};
    Bits bits = {from, size, 0, 0, 0, 0};
    bits.begin(0);
    u32 made = 0, blocks = FIRST_BLOCKS + room / BLOCK_BYTES;
    for (bool last = false; !last;) {
        if (!blocks--) return NONE;
        bits.fill();
        last = bits.take(1);
        const u32 kind = bits.take(2);
        if (bits.beyond()) return NONE;
        if (kind == 0) {
            const u32 at = bits.byte();
            if (size - at < 4) return NONE;
            const u32 length = from[at] | u32(from[at + 1]) << 8;
            if ((from[at + 2] | u32(from[at + 3]) << 8) != (length ^ 0xffff)) return NONE;
            if (length > size - at - 4 || length > room - made) return NONE;
            for (u32 i = lane; i < length; i += LANES) to[made + i] = from[at + 4 + i];
            made += length;
            bits.begin(at + 4 + length);
            continue;
        }
        if (kind == 3) return NONE;
        if (!(kind == 1 ? take_fixed(tables, literals, distances, lane, group)
                        : read_codes(bits, tables, literals, distances, lane, group))) {
            return NONE;
        }
        if (!read_block(bits, literals, distances, to, made, room, lane, group)) return NONE;
    }
    return made != room || bits.beyond() ? NONE : bits.byte();
}

// Adler-32 (RFC 1950) of what the group wrote.
inline __device__ u32 checksum(const u8* data, u32 size, u32 lane, u32 group) {
    constexpr u32 PRIME = 65521;
    u64 sum = 0, weighted = 0;
    __syncwarp(group);
    u32 weight = (size - lane) % PRIME;  // of a byte: how many sums it is in
    for (u32 i = lane; i < size; i += LANES) {
        sum += data[i];
        weighted += weight * data[i];
        weight = weight < LANES ? weight + PRIME - LANES : weight - LANES;
    }
    for (int apart = LANES / 2; apart; apart /= 2) {
        sum += __shfl_xor_sync(group, sum, apart);
        weighted += __shfl_xor_sync(group, weighted, apart);
    }
    return u32((weighted + size) % PRIME) << 16 | u32((sum + 1) % PRIME);
}

// zlib (RFC 1950): a window of at most 32 KiB, no dictionary; the checksum behind the stream.
struct Zlib {
    static __device__ bool read(const u8* __restrict__ from, u32 size, u8* to, u32 room, Tables& tables, u32 lane,
                                u32 group) {
        if (size < 6 || (from[0] & 15) != 8 || from[0] >> 4 > 7 || from[1] & 32) return false;
        if ((u32(from[0]) << 8 | from[1]) % 31) return false;
        const u32 end = inflated(from + 2, size - 2, to, room, tables, lane, group);
        if (end == NONE || size - 2 - end < 4) return false;
        const u8* const sum = from + 2 + end;
        return checksum(to, room, lane, group) ==
               (u32(sum[0]) << 24 | u32(sum[1]) << 16 | u32(sum[2]) << 8 | sum[3]);
    }
};

// gzip (RFC 1952): one member, without a checksum of its header; the checksum and number of its bytes behind the stream.
struct Gzip {
    static __device__ bool read(const u8* __restrict__ from, u32 size, u8* to, u32 room, Tables& tables, u32 lane,
                                u32 group) {
        if (size < 18 || from[0] != 0x1f || from[1] != 0x8b || from[2] != 8 || from[3] > 31 || from[3] & 2) return false;
        const u32 flags = from[3];
        u32 at = 10;
        if (flags & 4) at += 2 + (from[10] | u32(from[11]) << 8);
        for (u32 texts = (flags >> 3 & 1) + (flags >> 4 & 1); texts; --texts) {
            while (at < size && from[at]) ++at;
            ++at;
        }
        if (at >= size) return false;
        const u32 end = inflated(from + at, size - at, to, room, tables, lane, group);
        if (end == NONE || size - at - end < 8) return false;
        const u8* const tail = from + at + end;
        if (size - at - end >= 10 && tail[8] == 0x1f && tail[9] == 0x8b) return false;  // a further member
        __syncwarp(group);  // for what other lanes wrote
        return little_endian(tail + 4) == room && crc32<CRC32, LANES>(to, room, lane, group) == little_endian(tail);
    }
};

// Of each chunk, `starts` and `sizes` of its bytes in `stored`, and its place in `out`, in chunks; `right` says whether it
// gave exactly chunk_bytes.
template <typename Framing>
__global__ void __launch_bounds__(THREADS)
inflate(const u8* __restrict__ stored, const i64* __restrict__ starts, const i64* __restrict__ sizes,
        const i64* __restrict__ places, u8* out, u8* __restrict__ right, i64 chunks, u32 chunk_bytes) {
    __shared__ Tables tables[GROUPS];
    const i64 chunk = i64(blockIdx.x) * GROUPS + threadIdx.x / LANES;
    if (chunk >= chunks) return;
    const u32 lane = threadIdx.x % LANES;
    const u32 group = u32((1ull << LANES) - 1) << (threadIdx.x % 32 - lane);
    const bool good = Framing::read(stored + starts[chunk], u32(sizes[chunk]), out + places[chunk] * i64(chunk_bytes),
                                    chunk_bytes, tables[threadIdx.x / LANES], lane, group);
    if (lane == 0) right[chunk] = good;
}
