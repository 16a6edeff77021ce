// Decodes many chunks in one call, without the GIL; called by decode_many.py.
//
// The codecs are those of numcodecs, whose functions come as pointers. A chunk that does not decode to exactly the bytes
// that it should have is left to Python's decoders, which say what is wrong with it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

// Where a chunk is stored in memory, its bytes, and where its samples are to be.
struct Chunk {
    std::int64_t first, nbytes, place;
};

enum Codec { LZ4, LZ4_BLOCKS, ZSTD, BLOSC };  // in the order of CODECS in decode_many.py

using Lz4 = int (*)(const char* source, char* target, int nbytes, int room);
using Zstd = std::size_t (*)(void* context, void* target, std::size_t room, const void* source, std::size_t nbytes);
using Blosc = int (*)(const void* source, void* target, std::size_t room, int threads);

// What decodes, and for Zstandard what makes and frees its context: making one takes as long as decoding 8 KiB.
struct Functions {
    void* decode;
    void* (*make)();
    std::size_t (*free)(void* context);
};

std::int64_t little(const char* at) {
    std::uint32_t number;
    std::memcpy(&number, at, 4);
    return number;
}

std::int64_t big(const char* at) {
    std::uint32_t number;
    std::memcpy(&number, at, 4);
    return __builtin_bswap32(number);
}

// HDF5's frame: bytes in all (64 bits) and of a block, then each block behind its size, big endian.
bool lz4_blocks(Lz4 decompress, const char* source, std::int64_t nbytes, char* target, std::int64_t room) {
    if (nbytes < 12 || big(source) || big(source + 4) != room) return false;
    const std::int64_t most = big(source + 8);
    std::int64_t at = 12;
    for (std::int64_t done = 0; done < room;) {
        const std::int64_t block = std::min(most, room - done), left = nbytes - at - 4;
        const std::int64_t stored = left < 0 ? 0 : big(source + at);
        if (block < 1 || stored < 1 || stored > left || stored > INT32_MAX || block > INT32_MAX) return false;
        at += 4;
        if (stored == block) std::memcpy(target + done, source + at, block);  // was not compressed
        else if (decompress(source + at, target + done, stored, block) != block) return false;
        at += stored;
        done += block;
    }
    return true;
}

bool decoded(int codec, void* function, void* context, const char* source, std::int64_t nbytes, char* target, std::int64_t room) {
    if (room > INT32_MAX || nbytes > INT32_MAX) return false;
    switch (codec) {
        case LZ4:
            return nbytes > 4 && little(source) == room &&
                   reinterpret_cast<Lz4>(function)(source + 4, target, nbytes - 4, room) == room;
        case LZ4_BLOCKS: return lz4_blocks(reinterpret_cast<Lz4>(function), source, nbytes, target, room);
        case ZSTD:
            return reinterpret_cast<Zstd>(function)(context, target, room, source, nbytes) ==
                   static_cast<std::size_t>(room);
        case BLOSC:
            return nbytes >= 16 && little(source + 4) == room && little(source + 12) == nbytes &&
                   reinterpret_cast<Blosc>(function)(source, target, room, 1) == room;
    }
    return false;
}

// Items whose bytes were sorted by their place in an item.
template <std::int64_t ITEMSIZE>
void unshuffle(const char* shuffled, char* items, std::int64_t count) {
    for (std::int64_t item = 0; item < count; item++)
        for (std::int64_t byte = 0; byte < ITEMSIZE; byte++)
            items[item * ITEMSIZE + byte] = shuffled[byte * count + item];
}

void unshuffle_any(const char* shuffled, char* items, std::int64_t nbytes, std::int64_t itemsize) {
    switch (itemsize) {
        case 2: return unshuffle<2>(shuffled, items, nbytes / 2);
        case 4: return unshuffle<4>(shuffled, items, nbytes / 4);
        case 8: return unshuffle<8>(shuffled, items, nbytes / 8);
    }
    const std::int64_t count = nbytes / itemsize;
    for (std::int64_t item = 0; item < count; item++)
        for (std::int64_t byte = 0; byte < itemsize; byte++)
            items[item * itemsize + byte] = shuffled[byte * count + item];
}

}  // namespace

// Decodes chunks to `room` bytes each, sorted by items of `itemsize` bytes unless that is 0. Returns how many were not
// decoded, and which.
extern "C" std::size_t decode_many(int codec, const Functions* functions, std::int64_t itemsize, const char* stored,
                                   const Chunk* chunks, std::size_t n, char* out, std::int64_t room,
                                   std::int64_t* failed) {
    std::vector<char> shuffled(itemsize > 1 ? room : 0);
    void* context = functions->make ? functions->make() : nullptr;
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; i++) {
        const Chunk& chunk = chunks[i];
        char* target = out + chunk.place;
        char* plain = itemsize > 1 ? shuffled.data() : target;
        if ((functions->make && !context) ||
            !decoded(codec, functions->decode, context, stored + chunk.first, chunk.nbytes, plain, room))
            failed[count++] = static_cast<std::int64_t>(i);
        else if (itemsize > 1)
            unshuffle_any(shuffled.data(), target, room, itemsize);
    }
    if (context) functions->free(context);
    return count;
}
