// Decompresses chunks of Zstandard (RFC 8878); each by a group of lanes, which decode the same sequences and execute one
// each. Of literals in four streams lanes decode one each.
//
// What a chunk says of itself is never trusted: nothing is read outside of it, and nothing is written outside of the
// place that it has. A chunk is one frame, without a dictionary. What the library refuses is refused.
//
// Literals that are coded are decoded to the end of the place of the chunk. The blocks' own bytes never reach those that
// are still needed, since there is room for all of them.

#include "common/huffman.cuh"
#include "common/sequences.cuh"
#include "common/xxhash64.cuh"

constexpr int THREADS = 32;
constexpr u32 MOST_OF_BLOCK = 1 << 17;              // bytes
constexpr u32 FIRST_BLOCKS = 16, BLOCK_BYTES = 256;  // of a frame: so many blocks, and one more for so many bytes

// Of a group: codes of a block, which are made again for one that has them in common with those before it; where they were
// last described: of sequences as `read_codes` has it, and of literals.
template <u32 LANES>
struct Tables {
    union {
        Huffman huffman;
        Codes<LANES> codes;
    };
    u32 described[4];
};

// Reads the literals of the block from byte `at` on, which moves, to the end of the room unless they are stored as they are
// or no sequences follow. False if they are wrong.
template <u32 LANES>
inline __device__ bool read_literals(Tables<LANES>& tables, Made& out, const u8* __restrict__ from, u32& at, u32 end,
                                     u32 size, u32 lane, u32 group) {
    if (at == end) return false;
    const u32 kind = from[at] & 3, format = from[at] >> 2 & 3;
    const u32 of_head = kind < 2 ? (format & 1 ? format == 3 ? 3 : 2 : 1) : format == 3 ? 5 : format == 2 ? 4 : 3;
    if (end - at < of_head) return false;
    const u64 head = stored_in(from + at, of_head);
    const u32 bits = kind < 2 ? 0 : format == 3 ? 18 : format == 2 ? 14 : 10;
    const u32 number = kind < 2 ? u32(head >> (format & 1 ? 4 : 3)) : u32(head >> 4) & ((1u << bits) - 1);
    const u32 nbytes = kind == 0 ? number : kind == 1 ? 1 : u32(head >> (4 + bits)) & ((1u << bits) - 1);
    at += of_head;
    if (number > out.room - out.made || nbytes >= end - at) return false;
    const u32 begin = at, behind = at + nbytes;
    at = behind;
    u8* const to = out.to + (from[behind] ? out.room - number : out.made);
    out.literals = kind ? to : from + begin;
    out.of_literals = number;
    out.inside = kind;
    if (kind == 0) return true;
    if (kind == 1) {
        for (u32 i = lane; i < number; i += LANES) to[i] = from[begin];
        return true;
    }
    u32 longest, log, first = begin;
    const u32 before = tables.described[3];
    if (kind == 3) {
        if (!before) return false;
        if (!read_huffman<LANES>(tables.huffman, longest, log, from + before, size - before, lane, group)) return false;
    } else {
        const u32 taken = read_huffman<LANES>(tables.huffman, longest, log, from + begin, nbytes, lane, group);
        if (!taken) return false;
        if (lane == 0) tables.described[3] = begin;
        first += taken;
    }
    u32 own = behind - first, target = 0, of_stream = number;
    if (format) {
        if (own < 6 || number < 6) return false;
        const u32 all = own - 6, each = (number + 3) / 4, mine = min(lane, 3u), sizes = first;
        u32 upto = 0;  // of the first three; of the last one no size is stored
        first += 6;
        for (u32 k = 0; k < 3; ++k) {
            const u32 nbytes = u32(stored_in(from + sizes + 2 * k, 2));
            if (k == mine) own = nbytes;
            if (k < mine) first += nbytes;
            upto += nbytes;
        }
        if (upto > all) return false;
        if (mine == 3) own = all - upto;
        target = mine * each;
        of_stream = mine == 3 ? number - 3 * each : each;
    }
    const u32 streams = format ? 4 : 1;
    const bool good = lane >= streams ||
                      read_stream(tables.huffman.symbols, longest, log, from + first, own, to + target, of_stream);
    return __all_sync(group, good);
}

// Bytes of a frame that gives exactly `room` bytes, and has no others behind it.
template <u32 LANES>
inline __device__ bool decompressed(const u8* __restrict__ from, u32 size, u8* to, u32 room, Tables<LANES>& tables,
                                    const u32* lengths, u32 lane, u32 group) {
    if (size < 6 || from[0] != 0x28 || from[1] != 0xb5 || from[2] != 0x2f || from[3] != 0xfd) return false;
    const u32 head = from[4], of_size = head >> 6, single = head >> 5 & 1;
    if (head & 11) return false;  // a dictionary, or a bit that is kept for later
    u32 at = 5;
    u64 window = room;
    if (!single) {
        const u32 log = 10 + (from[at] >> 3);
        window = (1ull << log) + ((1ull << log) >> 3) * (from[at] & 7);
        if (log > 31) return false;
        ++at;
    }
    const u32 nbytes = of_size ? 1 << of_size : single;
    if (size - at < nbytes) return false;
    if (nbytes && stored_in(from + at, nbytes) + (of_size == 1 ? 256 : 0) != room) return false;
    at += nbytes;
    if (lane == 0) {
        for (u32 k = 0; k < 4; ++k) tables.described[k] = 0;
    }
    const u32 most = window < MOST_OF_BLOCK ? u32(window) : MOST_OF_BLOCK;
    u32 distances[3] = {1, 4, 8};
    Made out = {to, 0, room};
    u32 blocks = FIRST_BLOCKS + room / BLOCK_BYTES;
    for (bool last = false; !last;) {
        if (!blocks-- || size - at < 3) return false;
        const u32 of_block = u32(stored_in(from + at, 3)), kind = of_block >> 1 & 3, number = of_block >> 3;
        at += 3;
        last = of_block & 1;
        if (kind == 3 || number > most) return false;
        const u32 stored = kind == 1 ? 1 : number;
        if (stored > size - at) return false;
        const u32 behind = at + stored;
        __syncwarp(group);
        if (kind == 2) {
            const u32 end = out.made + min(room - out.made, most);
            if (!read_literals<LANES>(tables, out, from, at, behind, size, lane, group)) return false;
            __syncwarp(group);
            if (!execute_all<LANES>(tables.codes, lengths, tables.described, distances, out, from, at, behind, size, lane,
                                    group) || out.made > end) {
                return false;
            }
        } else {
            if (number > room - out.made) return false;
            if (kind) {
                for (u32 i = lane; i < number; i += LANES) to[out.made + i] = from[at];
            } else {
                copy_apart<LANES>(to + out.made, from + at, number, lane);
            }
            out.made += number;
        }
        at = behind;
    }
    if (out.made != room) return false;
    if (head & 4) {
        if (size - at != 4) return false;
        return stored_in(from + at, 4) == u32(xxhash64(to, room, lane, group));
    }
    return at == size;
}

// Of each chunk, `starts` and `sizes` of its bytes in `stored`, and its place in `out`, in chunks; `right` says whether it
// gave exactly chunk_bytes.
template <int LANES>
__global__ void __launch_bounds__(THREADS)
zstd(const u8* __restrict__ stored, const i64* __restrict__ starts, const i64* __restrict__ sizes,
     const i64* __restrict__ places, u8* out, u8* __restrict__ right, i64 chunks, u32 chunk_bytes) {
    constexpr u32 GROUPS = THREADS / LANES;
    __shared__ Tables<LANES> tables[GROUPS];
    __shared__ u32 lengths[LITERAL_CODES + MATCH_CODES];
    for (u32 k = threadIdx.x; k < LITERAL_CODES + MATCH_CODES; k += THREADS) lengths[k] = length_of(k);
    __syncthreads();
    const i64 chunk = i64(blockIdx.x) * GROUPS + threadIdx.x / LANES;
    if (chunk >= chunks) return;
    const u32 lane = threadIdx.x % LANES;
    const u32 group = u32((1ull << LANES) - 1) << (threadIdx.x % 32 - lane);
    const bool good = decompressed<LANES>(stored + starts[chunk], u32(sizes[chunk]), out + places[chunk] * i64(chunk_bytes),
                                          chunk_bytes, tables[threadIdx.x / LANES], lengths, lane, group);
    if (lane == 0) right[chunk] = good;
}
