// Reads many runs of a file in one call, without the GIL; called by read_runs.py.

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <sys/uio.h>

namespace {

struct Run {
    std::int64_t first, place, nbytes;  // first byte in the file after an offset, first byte in memory, number of bytes
};

}  // namespace

// Reads the runs that are cached. Returns the number of runs that were not read completely, and which.
extern "C" std::size_t read_cached(int fd, std::int64_t offset, char* memory, const Run* runs, std::size_t n,
                                   std::int64_t* unread) {
    std::size_t count = 0;
    int flags = RWF_NOWAIT;
    for (std::size_t i = 0; i < n; ++i) {
        iovec target{memory + runs[i].place, static_cast<std::size_t>(runs[i].nbytes)};
        ssize_t got = preadv2(fd, &target, 1, offset + runs[i].first, flags);
        if (got < 0 && flags && errno == EOPNOTSUPP) {  // a file system in memory does not support RWF_NOWAIT
            flags = 0;
            got = preadv2(fd, &target, 1, offset + runs[i].first, flags);
        }
        if (got != runs[i].nbytes) unread[count++] = static_cast<std::int64_t>(i);
    }
    return count;
}
