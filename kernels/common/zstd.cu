// Decompresses chunks of Zstandard (RFC 8878); each by a group of lanes, which decode the same sequences and copy bytes side by
// side. Of literals in four streams lanes decode one each.
//
// What a chunk says of itself is never trusted: nothing is read outside of it, and nothing is written outside of the
// place that it has. A chunk is one frame, without a dictionary. What the library refuses is refused.
//
// Literals that are coded are decoded to the end of the place of the chunk. The blocks' own bytes never reach those that are
// still needed, since there is room for all of them.

#include "common/huffman.cuh"
#include "common/sequences.cuh"
#include "common/xxhash64.cuh"

constexpr int THREADS = 32;
constexpr u32 GROUPS = THREADS / LANES;
constexpr u32 MOST_OF_BLOCK = 1 << 17;              // bytes
constexpr u32 FIRST_BLOCKS = 16, BLOCK_BYTES = 256;  // of a frame: so many blocks, and one more for so many bytes

// Of a group.
struct Tables {
    u16 huffman[1 << MOST_BITS], literals[1 << LITERAL_LOG], offsets[1 << OFFSET_LOG], matches[1 << MATCH_LOG];
    u8 weights[SYMBOLS];
    Shares shares;
};

// Reads the literals of a block, to the end of the room unless they are stored as they are: where they are and how many. Returns
// the bytes that they take, or 0 if they are wrong.
inline __device__ u32 read_literals(Huffman& code, Tables& tables, const u8* __restrict__ from, u32 size, u8* to, u32 made, u32 room,
                                    const u8*& literals, u32& number, u32 lane, u32 group) {
    if (size == 0) return 0;
    const u32 kind = from[0] & 3, format = from[0] >> 2 & 3;
    const u32 of_head = kind < 2 ? (format & 1 ? format == 3 ? 3 : 2 : 1) : format == 3 ? 5 : format == 2 ? 4 : 3;
    if (size < of_head) return 0;
    const u64 head = stored_in(from, of_head);
    const u32 bits = kind < 2 ? 0 : format == 3 ? 18 : format == 2 ? 14 : 10;
    number = kind < 2 ? u32(head >> (format & 1 ? 4 : 3)) : u32(head >> 4) & ((1u << bits) - 1);
    if (number > room - made) return 0;
    u8* const end = to + (room - number);
    literals = kind ? end : from + of_head;
    if (kind == 0) return number > size - of_head ? 0 : of_head + number;
    if (kind == 1) {
        if (size == of_head) return 0;
        for (u32 i = lane; i < number; i += LANES) end[i] = from[of_head];
        return of_head + 1;
    }
    const u32 nbytes = u32(head >> (4 + bits)) & ((1u << bits) - 1);
    if (nbytes > size - of_head) return 0;
    u32 at = of_head;
    const u32 behind = of_head + nbytes;
    if (kind == 2) {
        code.log = 0;
        const u32 taken = read_huffman(code, tables.weights, tables.shares, from + at, nbytes, lane, group);
        if (!taken) return 0;
        at += taken;
    }
    if (code.log == 0) return 0;
    u32 first = 0, own = behind - at, target = 0, of_stream = number;
    const u32 streams = format ? 4 : 1;
    bool good = true;
    if (format) {
        if (behind - at < 6 || number < 6) return 0;
        const u32 all = behind - at - 6, each = (number + 3) / 4, mine = min(lane, 3u);
        u32 upto = 0;  // of the first three; of the last one no size is stored
        for (u32 k = 0; k < 3; ++k) {
            const u32 nbytes = u32(stored_in(from + at + 2 * k, 2));
            if (k == mine) own = nbytes;
            if (k < mine) first += nbytes;
            upto += nbytes;
        }
        at += 6;
        if (upto > all) return 0;
        if (mine == 3) own = all - upto;
        target = mine * each;
        of_stream = mine == 3 ? number - 3 * each : each;
    }
    if (lane < streams) good = read_stream(code, from + at + first, own, end + target, of_stream);
    return __all_sync(group, good) ? behind : 0;
}

// Bytes of a frame that gives exactly `room` bytes, and has no others behind it.
inline __device__ bool decompressed(const u8* __restrict__ from, u32 size, u8* to, u32 room, Tables& tables, u32 lane, u32 group) {
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
    const u32 most = window < MOST_OF_BLOCK ? u32(window) : MOST_OF_BLOCK;
    Huffman code = {tables.huffman, 0};
    Sequences known = {{tables.literals}, {tables.offsets}, {tables.matches}, {1, 4, 8}};
    u32 made = 0, blocks = FIRST_BLOCKS + room / BLOCK_BYTES;
    for (bool last = false; !last;) {
        if (!blocks-- || size - at < 3) return false;
        const u32 of_block = u32(stored_in(from + at, 3)), kind = of_block >> 1 & 3, number = of_block >> 3;
        at += 3;
        last = of_block & 1;
        if (kind == 3 || number > most) return false;
        const u32 stored = kind == 1 ? 1 : number;
        if (stored > size - at) return false;
        const u8* const block = from + at;
        at += stored;
        if (kind == 2) {
            const u8* literals;
            u32 of_literals;
            const u32 taken = read_literals(code, tables, block, stored, to, made, room, literals, of_literals, lane, group);
            const u32 end = made + min(room - made, most);
            if (!taken) return false;
            __syncwarp(group);
            if (!execute(known, tables.shares, block + taken, stored - taken, literals, of_literals, to, made, room, lane, group)) return false;
            if (made > end) return false;
        } else {
            if (number > room - made) return false;
            for (u32 i = lane; i < number; i += LANES) to[made + i] = block[kind ? 0 : i];
            made += number;
        }
    }
    if (made != room) return false;
    if (head & 4) {
        if (size - at != 4) return false;
        return stored_in(from + at, 4) == u32(xxhash64(to, room, lane, group));
    }
    return at == size;
}

// Of each chunk, `starts` and `sizes` of its bytes in `stored`, and its place in `out`, in chunks; `right` says whether it
// gave exactly chunk_bytes.
__global__ void __launch_bounds__(THREADS)
zstd(const u8* __restrict__ stored, const i64* __restrict__ starts, const i64* __restrict__ sizes,
     const i64* __restrict__ places, u8* out, u8* __restrict__ right, i64 chunks, u32 chunk_bytes) {
    __shared__ Tables tables[GROUPS];
    const i64 chunk = i64(blockIdx.x) * GROUPS + threadIdx.x / LANES;
    if (chunk >= chunks) return;
    const u32 lane = threadIdx.x % LANES;
    const u32 group = u32((1ull << LANES) - 1) << (threadIdx.x % 32 - lane);
    const bool good = decompressed(stored + starts[chunk], u32(sizes[chunk]), out + places[chunk] * i64(chunk_bytes),
                                   chunk_bytes, tables[threadIdx.x / LANES], lane, group);
    if (lane == 0) right[chunk] = good;
}
