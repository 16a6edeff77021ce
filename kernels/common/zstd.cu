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

constexpr int THREADS = 64;
constexpr u32 MOST_OF_BLOCK = 1 << 17;  // bytes

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

// A frame of `size` bytes that has to give exactly the room of `out`, and has no others behind it; of a group.
template <u32 LANES>
struct Frame {
    Tables<LANES>& tables;
    u32 lane, group;
    Block<LANES> block;
    const u8* __restrict__ from;
    u32 size;
    Made out;
    u32 at = 0, most = 0, blocks = 0;  // bytes that were read, those of a block at most; how many blocks may be left
    u32 end = 0, behind = 0;           // of a block: what it gives at most, and where the next one begins
    bool coded = false, last = false, checked = false;

    // Reads what is before the blocks; false if it is wrong.
    __device__ bool begin() {
        if (size < 6 || from[0] != 0x28 || from[1] != 0xb5 || from[2] != 0x2f || from[3] != 0xfd) return false;
        const u32 head = from[4], of_size = head >> 6, single = head >> 5 & 1;
        if (head & 11) return false;  // a dictionary, or a bit that is kept for later
        at = 5;
        u64 window = out.room;
        if (!single) {
            const u32 log = 10 + (from[at] >> 3);
            window = (1ull << log) + ((1ull << log) >> 3) * (from[at] & 7);
            if (log > 31) return false;
            ++at;
        }
        const u32 nbytes = of_size ? 1 << of_size : single;
        if (size - at < nbytes) return false;
        if (nbytes && stored_in(from + at, nbytes) + (of_size == 1 ? 256 : 0) != out.room) return false;
        at += nbytes;
        if (lane == 0) {
            for (u32 k = 0; k < 4; ++k) tables.described[k] = 0;
        }
        most = window < MOST_OF_BLOCK ? u32(window) : MOST_OF_BLOCK;
        blocks = FIRST_BLOCKS + out.room / BLOCK_BYTES;
        checked = head & 4;
        return true;
    }

    // Begins the next block, which is executed at once if it is not coded; false if it is wrong.
    __device__ bool open() {
        if (!blocks-- || size - at < 3) return false;
        const u32 of_block = u32(stored_in(from + at, 3)), kind = of_block >> 1 & 3, number = of_block >> 3;
        at += 3;
        last = of_block & 1;
        if (kind == 3 || number > most) return false;
        const u32 stored = kind == 1 ? 1 : number;
        if (stored > size - at) return false;
        behind = at + stored;
        coded = kind == 2;
        if (coded) {
            end = out.made + most;
            if (!read_literals<LANES>(tables, out, from, at, behind, size, lane, group)) return false;
            __syncwarp(group);
            return block.begin(from, at, behind, size);
        }
        if (number > out.room - out.made) return false;
        if (kind) {
            for (u32 i = lane; i < number; i += LANES) out.to[out.made + i] = from[at];
        } else {
            copy_apart<LANES>(out.to + out.made, from + at, number, lane);
        }
        out.made += number;
        return true;
    }

    // What follows the last block.
    __device__ State ended() {
        if (out.made != out.room || size - at != (checked ? 4 : 0)) return State::WRONG;
        const bool right = !checked || stored_in(from + at, 4) == u32(xxhash64(out.to, out.room, lane, group));
        return right ? State::RIGHT : State::WRONG;
    }

    // A block of each group that is under way.
    __device__ State step(State state) {
        __syncwarp();
        bool good = state != State::UNDER_WAY || open();
        while (__any_sync(ALL, block.number)) good = block.execute_some(out) && good;
        if (state != State::UNDER_WAY) return state;
        if (!good || (coded && (!block.end(out) || out.made > end))) return State::WRONG;
        at = behind;
        return last ? ended() : state;
    }
};

// Of each chunk, `starts` and `sizes` of its bytes in `stored`, and its place in `out`, in chunks; `right` says whether it
// gave exactly chunk_bytes.
template <int LANES>
__global__ void __launch_bounds__(THREADS)
zstd(const u8* __restrict__ stored, const i64* __restrict__ starts, const i64* __restrict__ sizes,
     const i64* __restrict__ places, u8* out, u8* __restrict__ right, i64 chunks, u32 chunk_bytes) {
    constexpr u32 GROUPS = THREADS / LANES;
    __shared__ Tables<LANES> of_groups[GROUPS];
    __shared__ u32 lengths[LITERAL_CODES + MATCH_CODES];
    for (u32 k = threadIdx.x; k < LITERAL_CODES + MATCH_CODES; k += THREADS) lengths[k] = length_of(k);
    __syncthreads();
    const i64 number = i64(blockIdx.x) * GROUPS + threadIdx.x / LANES, chunk = min(number, chunks - 1);
    const u32 lane = threadIdx.x % LANES, group = u32((1ull << LANES) - 1) << (threadIdx.x % 32 - lane);
    Tables<LANES>& tables = of_groups[threadIdx.x / LANES];
    const u8* const from = stored + starts[chunk];
    Frame<LANES> frame = {tables, lane, group, {tables.codes, lengths, tables.described, lane, group}, from,
                          u32(sizes[chunk]), {out + places[chunk] * i64(chunk_bytes), 0, chunk_bytes, from}};
    State state = number >= chunks ? State::RIGHT : frame.begin() ? State::UNDER_WAY : State::WRONG;
    while (__any_sync(ALL, state == State::UNDER_WAY)) state = frame.step(state);
    if (number < chunks && lane == 0) right[chunk] = state == State::RIGHT;
}
