// Files that the threads of a reader open and close themselves, since a call of Python for each waits for the GIL.

#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include "pinned.hpp"

enum Known : std::int64_t { IDENTIFIED = 1, MTIME = 2, CTIME = 4, INODE = 8, DEVICE = 16 };

// A file: its descriptor if it is open already and has no path, else what `pipeline.storage.identity.Identity` knows.
struct Planned {
    const char* path;
    std::int64_t descriptor, known, size, mtime, ctime;
    std::uint64_t inode, device;

    // Whether an open file is another one, or shows a change.
    bool differs(int file) const {
        struct stat status;
        if (fstat(file, &status)) return true;
        if (!(known & IDENTIFIED)) return false;
        const auto nanoseconds = [](const timespec& time) { return time.tv_sec * std::int64_t(1000000000) + time.tv_nsec; };
        return !S_ISREG(status.st_mode) || status.st_size != size ||
               (known & INODE && (status.st_ino != inode || (known & DEVICE && status.st_dev != device))) ||
               (known & MTIME && nanoseconds(status.st_mtim) != mtime) ||
               (known & CTIME && nanoseconds(status.st_ctim) != ctime);
    }
};

// Opened by the first part of a read that needs it, and checked; checked again and closed by the last one.
struct File {
    Planned planned{};
    std::mutex mutex;
    int descriptor = -1;
    std::size_t users = 0;  // parts, to come or under way

    // The descriptor; -1 and errno if there is none.
    int enter() {
        if (!planned.path) return planned.descriptor;
        std::lock_guard<std::mutex> lock(mutex);
        if (descriptor >= 0) return descriptor;
        constexpr int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY;  // as `open_to_read` of the same module
        int opened = open(planned.path, flags | O_NONBLOCK);
        if (opened < 0 && errno == EWOULDBLOCK) opened = open(planned.path, flags);
        if (opened >= 0 && planned.differs(opened)) {
            close(opened);
            errno = ESTALE;
            return -1;
        }
        return descriptor = opened;
    }

    // Reads bytes; returns their number, or -1. A planned file that ends early is no longer that.
    std::int64_t fill(int file, char* memory, std::int64_t bytes, std::int64_t offset) const {
        const std::int64_t got = ::fill(file, memory, bytes, offset);
        if (!planned.path || got < 0 || got == bytes) return got;
        errno = ESTALE;
        return -1;
    }

    // A part needs it no more; false and errno if it is no longer as it was planned.
    bool leave() {
        std::lock_guard<std::mutex> lock(mutex);
        if (--users || descriptor < 0) return true;
        const bool differs = planned.differs(descriptor);
        close(descriptor);
        descriptor = -1;
        if (differs) errno = ESTALE;
        return !differs;
    }
};
