// Decompresses chunks in LZ4's block format; each by a group of lanes, which copy bytes side by side.
//
// What a chunk says of itself is never trusted: nothing is read outside of it, and nothing is written outside of the
// place that it has. The rules are those of LZ4_decompress_safe (LZ4 1.9, lz4_Block_format.md): a stream ends with at
// least 5 literals behind the last match, which begins at least 12 bytes before the end.

#include "common/repeat.cuh"
#include "common/types.cuh"

constexpr int THREADS = 128;
constexpr u32 MIN_MATCH = 4, LAST_LITERALS = 5, MATCH_LIMIT = 12;

// A length that goes on in further bytes after all ones in its field of the token; false if the stream ends before it,
// or if it exceeds `most`.
inline __device__ bool extended(const u8* __restrict__ from, u32 size, u32& at, u32& length, u32 most) {
    u32 more;
    do {
        if (at >= size || length > most) return false;
        more = from[at++];
        length += more;
    } while (more == 255);
    return true;
}

// A stream of `size` bytes that has to give exactly `room` bytes. `to` is also read, by other lanes than those that wrote.
template <int LANES>
inline __device__ bool decompressed(const u8* __restrict__ from, u32 size, u8* to, u32 room, u32 lane, u32 group) {
    u32 at = 1, made = 0, token = size ? from[0] : 0;
    while (at <= size) {
        u32 literals = token >> 4, length = token & 15;
        if (literals == 15 && !extended(from, size, at, literals, room)) return false;
        if (literals > room - made || literals > size - at) return false;
        // What follows the literals is loaded with them: it would wait for as long again behind their stores.
        const u32 next = at + literals, left = size - next;
        const u32 offset = left < 2 ? 0 : from[next] | u32(from[next + 1]) << 8;
        token = left < 3 ? 0 : from[next + 2];
        for (u32 i = lane; i < literals; i += LANES) to[made + i] = from[at + i];
        made += literals;
        if (left == 0) return made == room;

        if (room - made < MATCH_LIMIT) return false;
        at = next + 2;
        if (length == 15) {
            if (!extended(from, size, at, length, room)) return false;
            token = at < size ? from[at] : 0;
        }
        ++at;
        length += MIN_MATCH;
        if (offset == 0 || offset > made || length > room - made - LAST_LITERALS) return false;
        repeat<LANES>(to + made, offset, length, lane, group);
        made += length;
    }
    return false;
}

inline __device__ u32 big_endian(const u8* __restrict__ from) {
    return u32(from[0]) << 24 | u32(from[1]) << 16 | u32(from[2]) << 8 | from[3];
}

// numcodecs: the size of all, of 4 bytes, little-endian; then the stream.
struct Sized {
    template <int LANES>
    static __device__ bool read(const u8* __restrict__ from, u32 size, u8* to, u32 room, u32 lane, u32 group) {
        if (size < 4) return false;
        const u32 declared = u32(from[3]) << 24 | u32(from[2]) << 16 | u32(from[1]) << 8 | from[0];
        return declared == room && decompressed<LANES>(from + 4, size - 4, to, room, lane, group);
    }
};

// HDF5's filter: the size of all, of 8 bytes, and of a block, of 4; then blocks behind their stored sizes, all big-endian.
// A block as large as it is when decompressed was not compressed.
struct Blocks {
    template <int LANES>
    static __device__ bool read(const u8* __restrict__ from, u32 size, u8* to, u32 room, u32 lane, u32 group) {
        if (size < 12 || big_endian(from) || big_endian(from + 4) != room) return false;
        const u32 most = big_endian(from + 8);
        if (!most) return false;
        u32 at = 12;
        for (u32 done = 0; done < room;) {
            if (size - at < 4) return false;
            const u32 stored = big_endian(from + at), of_block = min(most, room - done);
            at += 4;
            if (stored > size - at) return false;
            if (stored == of_block) {
                for (u32 i = lane; i < of_block; i += LANES) to[done + i] = from[at + i];
            } else if (!decompressed<LANES>(from + at, stored, to + done, of_block, lane, group)) {
                return false;
            }
            at += stored;
            done += of_block;
        }
        return true;
    }
};

// Of each chunk, `starts` and `sizes` of its bytes in `stored`, and its place in `out`, in chunks; `right` says whether it
// gave exactly chunk_bytes.
template <typename Framing, int LANES>
__global__ void __launch_bounds__(THREADS)
lz4(const u8* __restrict__ stored, const i64* __restrict__ starts, const i64* __restrict__ sizes,
    const i64* __restrict__ places, u8* out, u8* __restrict__ right, i64 chunks, u32 chunk_bytes) {
    const i64 chunk = (i64(blockIdx.x) * THREADS + threadIdx.x) / LANES;
    if (chunk >= chunks) return;
    const u32 lane = threadIdx.x % LANES, first = threadIdx.x % 32 - lane;
    const u32 group = u32((1ull << LANES) - 1) << first;
    const bool good = Framing::template read<LANES>(stored + starts[chunk], u32(sizes[chunk]),
                                                    out + places[chunk] * i64(chunk_bytes), chunk_bytes, lane, group);
    if (lane == 0) right[chunk] = good;
}
