// From the device to a mapped file: a thread copies a part to its pages while the device sends the next one.

#pragma once

#include <cstring>
#include <deque>
#include <sys/mman.h>
#include <unistd.h>

#include "pinned.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // since Linux 5.14
#endif

// Bytes of pages to request at a time: their zeros are still in the cache when they are overwritten.
constexpr std::size_t POPULATED = 1 << 16;  // for shorter runs page faults cost less than calls

struct Write : Pending {};

// Runs of equal length, contiguous on the device.
struct WritePart {
    Write* write;
    std::uint64_t source;
    char* const* targets;
    std::size_t runs, run_bytes, skipped;  // of the first run
};

struct Writer {
    Driver driver;
    void* context;
    std::size_t part_bytes;
    std::mutex mutex;
    std::condition_variable more;
    std::deque<WritePart> parts;

    // Takes the next part; if there is none, waits for one or returns false.
    bool take(WritePart& part, bool wait) {
        std::unique_lock<std::mutex> lock(mutex);
        if (wait) more.wait(lock, [&] { return !parts.empty(); });
        if (parts.empty()) return false;
        part = parts.front();
        parts.pop_front();
        return true;
    }
};

// Requests pages in one call, which costs less than a fault for each. Returns errno if the file system cannot provide
// one: touching it would kill the process.
inline int populate(char* memory, std::size_t bytes) {
    static const std::uintptr_t page = sysconf(_SC_PAGESIZE);
    std::uintptr_t first = reinterpret_cast<std::uintptr_t>(memory) / page * page;
    std::uintptr_t stop = reinterpret_cast<std::uintptr_t>(memory) + bytes;
    if (!madvise(reinterpret_cast<void*>(first), stop - first, MADV_POPULATE_WRITE) || errno == EINVAL) return 0;
    return errno == EFAULT ? EIO : errno;
}

// Copies to pages; returns errno if one cannot be provided.
inline int copy(char* target, const char* source, std::size_t bytes) {
    if (bytes < POPULATED) {
        std::memcpy(target, source, bytes);
        return 0;
    }
    for (std::size_t at = 0, step; at < bytes; at += step) {
        step = std::min(POPULATED, bytes - at);
        if (int refused = populate(target + at, step)) return refused;
        std::memcpy(target + at, source + at, step);
    }
    return 0;
}

// Copies a part that has arrived to its pages.
inline void put(const Driver& driver, const WritePart& part, Buffer& buffer, int failed) {
    if (!failed) failed = driver.wait_for(buffer.copied);
    int refused = 0;
    const char* source = buffer.memory;
    for (std::size_t run = 0; run < part.runs && !failed && !refused; run++) {
        char* target = part.targets[run] + part.skipped;
        refused = copy(target, source, part.run_bytes);
        source += part.run_bytes;
    }
    part.write->part_is_done(source - buffer.memory, refused, failed, [] {});
}

inline void write_parts(Writer& writer, Lane lane) {
    const Driver& driver = writer.driver;
    driver.set_context(writer.context);
    WritePart before{}, next{};
    int failed_before = 0;
    bool waiting = false;  // whether the previous part is in flight
    for (int turn = 0;; turn = (turn + 1) % BUFFERS) {
        bool more = writer.take(next, !waiting);
        Buffer& buffer = lane.buffers[turn];
        int failed = 0;
        if (more) failed = driver.to_host(buffer.memory, next.source, next.runs * next.run_bytes, lane.stream);
        if (more && !failed) failed = driver.record(buffer.copied, lane.stream);
        if (waiting) put(driver, before, lane.buffers[(turn + 1) % BUFFERS], failed_before);
        before = next;
        failed_before = failed;
        waiting = more;
    }
}
