// Many runs of a file in one call: what read_runs.py calls, during which the interpreter goes on.

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <sys/uio.h>

namespace {

struct Run {
    std::int64_t first, place, nbytes;  // first byte in the file after an offset, first byte in memory, number of bytes
};

}  // namespace

// Reads what is cached of some runs; how many were not read, whole, and which.
extern "C" std::size_t read_cached(int fd, std::int64_t offset, char* memory, const Run* runs, std::size_t n,
                                   std::int64_t* left) {
    std::size_t count = 0;
    int flags = RWF_NOWAIT;
    for (std::size_t i = 0; i < n; ++i) {
        iovec target{memory + runs[i].place, static_cast<std::size_t>(runs[i].nbytes)};
        ssize_t got = preadv2(fd, &target, 1, offset + runs[i].first, flags);
        if (got < 0 && flags && errno == EOPNOTSUPP) {  // a file system that cannot say what is cached: one in memory
            flags = 0;
            got = preadv2(fd, &target, 1, offset + runs[i].first, flags);
        }
        if (got != runs[i].nbytes) left[count++] = static_cast<std::int64_t>(i);
    }
    return count;
}
