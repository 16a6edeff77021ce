// Reads a run of a file through compiled checks, block by block, without the GIL; called by feed.py.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace {

using std::size_t;

struct Check {
    void (*add)(void* state, const void* samples, size_t n, int64_t first);
    void* state;
};

template <class Word>
void swap_bytes(char* block, size_t nbytes) {
    for (size_t at = 0; at < nbytes; at += sizeof(Word)) {
        Word word;
        std::memcpy(&word, block + at, sizeof word);
        if constexpr (sizeof word == 2) word = __builtin_bswap16(word);
        if constexpr (sizeof word == 4) word = __builtin_bswap32(word);
        if constexpr (sizeof word == 8) word = __builtin_bswap64(word);
        std::memcpy(block + at, &word, sizeof word);
    }
}

void swap_samples(char* block, size_t nbytes, size_t itemsize) {
    switch (itemsize) {
        case 2: return swap_bytes<uint16_t>(block, nbytes);
        case 4: return swap_bytes<uint32_t>(block, nbytes);
        case 8: return swap_bytes<uint64_t>(block, nbytes);
    }
}

}  // namespace

// Adds the samples of `nbytes` bytes of a file from `offset` on to every check; the first one has the index `first`. The
// system is told to read so many bytes ahead, unless that is 0.
// Returns the bytes of the samples that were read: fewer if reading fails or the file ends.
extern "C" size_t feed(int fd, int64_t offset, size_t nbytes, int64_t first, size_t itemsize, int swapped, char* block,
                       size_t block_bytes, size_t ahead, const Check* checks, size_t number) {
    size_t done = 0;
    while (done < nbytes) {
        if (ahead && done % ahead < block_bytes)
            posix_fadvise(fd, offset + done, std::min(2 * ahead, nbytes - done), POSIX_FADV_WILLNEED);
        const size_t length = nbytes - done < block_bytes ? nbytes - done : block_bytes;
        size_t filled = 0;
        while (filled < length) {
            const ssize_t got = pread(fd, block + filled, length - filled, offset + done + filled);
            if (got > 0) filled += static_cast<size_t>(got);
            else if (got == 0 || errno != EINTR) return done;
        }
        if (swapped) swap_samples(block, length, itemsize);
        const int64_t index = first + static_cast<int64_t>(done / itemsize);
        for (size_t i = 0; i < number; ++i) checks[i].add(checks[i].state, block, length / itemsize, index);
        done += length;
    }
    return done;
}
