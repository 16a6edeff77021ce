// Decompresses chunks in LZ4's block format; each by a group of lanes, which read the same sequences and execute one each.
//
// What a chunk says of itself is never trusted: nothing is read outside of it, and nothing is written outside of the
// place that it has. The rules are those of LZ4_decompress_safe (LZ4 1.9, lz4_Block_format.md): a stream ends with at
// least 5 literals behind the last match, which begins at least 12 bytes before the end.

#include "common/execute.cuh"

constexpr int THREADS = 128, BLOCKS_PER_SM = AFTER_HOPPER ? 4 : 6;
constexpr u32 MIN_MATCH = 4, LAST_LITERALS = 5, MATCH_LIMIT = 12;
constexpr u32 WORDS_OF_LANE = 3;  // of a window
constexpr u32 FEW_LITERALS = 32;  // at most, of a lane; more are copied by all

// A stream of `size` bytes that has to give exactly `room` bytes, by a group of lanes with a window in shared memory.
template <u32 LANES>
struct Stream {
    static constexpr u32 WORD = 4, WORDS = WORDS_OF_LANE * LANES;
    u32* window;
    u32 lane, group;
    const u8* __restrict__ from;
    u8* to;
    u32 size = 0, room = 0;
    u32 at = 0, made = 0;  // bytes of the stream that were read, and those that it gave
    bool open = false;     // whether what comes next is a match, whose token and literals were read
    u32 token = 0;
    u32 ahead[WORDS_OF_LANE] = {};  // of the next window

    __device__ void begin(const u8* from_, u32 size_, u8* to_, u32 room_) {
        from = from_, size = size_, to = to_, room = room_;
        at = made = 0;
        open = false;
        load();
    }

    // Loads words, from that of the next byte on.
    __device__ void load() {
        const u32 before = u32(reinterpret_cast<u64>(from + at) % WORD), first = at - before + WORD * lane;
        constexpr u32 STEP = WORD * LANES, LAST = STEP * (WORDS_OF_LANE - 1);
        if (at >= before && first + LAST + WORD <= size) {
#pragma unroll
            for (u32 k = 0; k < WORDS_OF_LANE; ++k) ahead[k] = *reinterpret_cast<const u32*>(from + first + STEP * k);
            return;
        }
#pragma unroll
        for (u32 k = 0; k < WORDS_OF_LANE; ++k) {
            ahead[k] = 0;
            for (u32 byte = 0; byte < WORD; ++byte) {
                const u32 place = first + STEP * k + byte;  // before the stream it is negative
                if (place < size) ahead[k] |= u32(from[place]) << 8 * byte;
            }
        }
    }

    // What was found in a window.
    struct Found {
        Sequence mine;
        u32 place;     // of its literals, in the window
        u32 number;    // of sequences, at most one for each lane
        u32 next;      // what comes behind them, in the window
        bool cut;      // literals that all lanes copy
        u32 literals;  // how many
    };

    // Reads the window, from its byte `next` on; beyond it only lengths that go on there, of the first sequence.
    __device__ Found read(u32 next) {
        const u8* const bytes = reinterpret_cast<const u8*>(window);
        const u32 first = next, rest = size - at + first, end = min(rest, WORD * WORDS);
        Found found = {};
        u32 k = 0, begin = next;
        // A length that goes on in further bytes; false if they do not end, or if it exceeds the room.
        const auto extended = [&](u32& behind, u32& length) {
            u32 more = 255;
            while (more == 255 && behind < (k ? end : rest) && length <= room) {
                more = behind < end ? bytes[behind] : from[at + behind - first];
                length += more;
                ++behind;
            }
            return more != 255;
        };
        if (open) {
            token &= 15;
        } else {
            token = bytes[next];
            ++begin;
        }
        for (; k < LANES; ++k) {
            u32 literals = token >> 4, length = token & 15;
            if (literals == 15 && !extended(begin, literals)) break;
            u32 behind = begin + literals + 2;
            if (literals > FEW_LITERALS || (behind > end && k == 0 && !open)) {
                found.cut = true;
                found.literals = literals;
                next = begin;
                break;
            }
            if (behind > end || (length == 15 && !extended(behind, length))) break;
            if (k == lane) {
                found.mine = {literals, length + MIN_MATCH, 0};
                found.place = begin;
            }
            next = behind;
            if (next >= end) {
                ++k;
                break;
            }
            token = bytes[next];
            begin = next + 1;
        }
        const u32 place = found.place + found.mine.some;
        found.mine.distance = bytes[place] | u32(bytes[place + 1]) << 8;
        found.number = k;
        found.next = next;
        return found;
    }

    // Some sequences of each group that is under way; RIGHT at the end of a stream.
    __device__ State step(State state) {
        __syncwarp();
        const bool under_way = state == State::UNDER_WAY;
        if (under_way) {
#pragma unroll
            for (u32 k = 0; k < WORDS_OF_LANE; ++k) window[k * LANES + lane] = ahead[k];
        }
        __syncwarp();
        const u32 first = u32(reinterpret_cast<u64>(from + at) % WORD);
        Found found = {};
        if (under_way) found = read(first);
        Sequence& mine = found.mine;
        const u32 upto = sum_to_here<LANES>(mine.some + mine.length, lane), begin = made + upto - mine.length;
        const u32 wrong = lanes_that<LANES>(mine.length && (mine.distance - 1 >= begin || begin + MATCH_LIMIT > room ||
                                                            mine.length > room - begin - LAST_LITERALS));
        const u32 before = made, behind = made + __shfl_sync(ALL, upto, LANES - 1, LANES), literals = at + found.next - first;
        const bool some = found.number || found.cut;
        // At the end of a stream zeros are read: a token without literals, and too few bytes are made.
        const bool fits = found.literals <= size - literals && found.literals <= room - behind;
        const bool good = some && !wrong && (fits || !found.cut);
        if (good) {
            open = found.cut;
            at = literals + found.literals;
            made = behind + found.literals;
            load();  // while bytes are copied
        } else {
            mine = {0, 0, 0};
        }
        execute<LANES>(to, before, mine, begin, reinterpret_cast<const u8*>(window), found.place, lane, group);
        if (!under_way) return state;
        if (!good) return State::WRONG;
        if (!found.cut) return state;
        copy_apart<LANES>(to + behind, from + literals, found.literals, lane);
        return at < size ? state : made == room ? State::RIGHT : State::WRONG;
    }
};

inline __device__ u32 big_endian(const u8* __restrict__ from) {
    return u32(from[0]) << 24 | u32(from[1]) << 16 | u32(from[2]) << 8 | from[3];
}

// A chunk of `size` bytes that has to give exactly `room` bytes.
struct Chunk {
    const u8* __restrict__ from;
    u32 size;
    u8* to;
    u32 room;
};

// numcodecs: the size of all, of 4 bytes, little-endian; then the stream.
struct Sized {
    static constexpr bool SEVERAL_STREAMS = false;

    // Begins the next stream, if there is one.
    template <u32 LANES>
    __device__ State next(Stream<LANES>& stream, const Chunk& chunk) {
        const u8* const from = chunk.from;
        if (chunk.size < 4) return State::WRONG;
        const u32 declared = u32(from[3]) << 24 | u32(from[2]) << 16 | u32(from[1]) << 8 | from[0];
        if (declared != chunk.room) return State::WRONG;
        stream.begin(from + 4, chunk.size - 4, chunk.to, chunk.room);
        return State::UNDER_WAY;
    }
};

// HDF5's filter: the size of all, of 8 bytes, and of a block, of 4; then blocks behind their stored sizes, all big-endian.
// A block as large as it is when decompressed was not compressed.
struct Blocks {
    static constexpr bool SEVERAL_STREAMS = true;
    u32 at = 0, done = 0;

    template <u32 LANES>
    __device__ State next(Stream<LANES>& stream, const Chunk& chunk) {
        const u8* const from = chunk.from;
        if (at == 0) {
            if (chunk.size < 12 || big_endian(from) || big_endian(from + 4) != chunk.room) return State::WRONG;
            const u32 most = big_endian(from + 8);
            if (most == 0 || (chunk.room - 1) / most >= FIRST_BLOCKS + chunk.room / BLOCK_BYTES) return State::WRONG;
            at = 12;
        }
        while (done < chunk.room) {
            if (chunk.size - at < 4) return State::WRONG;
            const u32 stored = big_endian(from + at), of_block = min(big_endian(from + 8), chunk.room - done);
            at += 4;
            if (stored > chunk.size - at) return State::WRONG;
            const u8* const block = from + at;
            u8* const target = chunk.to + done;
            at += stored;
            done += of_block;
            if (stored != of_block) {
                stream.begin(block, stored, target, of_block);
                return State::UNDER_WAY;
            }
            copy_apart<LANES>(target, block, of_block, stream.lane);
        }
        return State::RIGHT;
    }
};

// Of each chunk, `starts` and `sizes` of its bytes in `stored`, and its place in `out`, in chunks; `right` says whether it
// gave exactly chunk_bytes.
template <typename Framing, int LANES>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
lz4(const u8* __restrict__ stored, const i64* __restrict__ starts, const i64* __restrict__ sizes,
    const i64* __restrict__ places, u8* out, u8* __restrict__ right, i64 chunks, u32 chunk_bytes) {
    __shared__ u32 windows[THREADS / LANES][Stream<LANES>::WORDS];
    const i64 number = (i64(blockIdx.x) * THREADS + threadIdx.x) / LANES, place = min(number, chunks - 1);
    const auto chunk = [&] {
        return Chunk{stored + starts[place], u32(sizes[place]), out + places[place] * i64(chunk_bytes), chunk_bytes};
    };
    const u32 lane = threadIdx.x % LANES, group = u32((1ull << LANES) - 1) << (threadIdx.x % 32 - lane);
    Stream<LANES> stream = {windows[threadIdx.x / LANES], lane, group, stored, out};
    Framing framing;
    State state = number < chunks ? framing.next(stream, chunk()) : State::RIGHT;
    while (__any_sync(ALL, state == State::UNDER_WAY)) {
        const bool before = state == State::UNDER_WAY;
        state = stream.step(state);
        if (Framing::SEVERAL_STREAMS && before && state == State::RIGHT) state = framing.next(stream, chunk());
    }
    if (number < chunks && lane == 0) right[number] = state == State::RIGHT;
}
