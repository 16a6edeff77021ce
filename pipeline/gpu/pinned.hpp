// Shared by reads and writes through pinned memory: the driver, the threads' buffers, and pending transfers.

#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

constexpr int BUFFERS = 2;  // per thread: the device uses one, the thread the other

// Functions of libcuda, in the order of FUNCTIONS in pinned.py.
struct Driver {
    int (*set_context)(void* context);
    int (*allocate)(void** memory, std::size_t bytes, unsigned flags);
    int (*create_stream)(void** stream, unsigned flags);
    int (*create_event)(void** event, unsigned flags);
    int (*to_device)(std::uint64_t target, const void* source, std::size_t bytes, void* stream);
    int (*to_host)(void* target, std::uint64_t source, std::size_t bytes, void* stream);
    int (*record)(void* event, void* stream);
    int (*query)(void* event);

    // Waits for an event; returns its status. The driver would have the device interrupt the host for each event: with
    // parts of 1 MiB that takes longer than the copies. Spinning would take a core from the threads that copy.
    int wait_for(void* event) const;
};
constexpr unsigned PORTABLE = 1, NON_BLOCKING = 1, WITHOUT_TIME = 2;  // flags of memory, streams and events
constexpr int NOT_READY = 600;
constexpr std::chrono::microseconds LOOK(20);  // between two looks at an event; Linux adds some 50

inline int Driver::wait_for(void* event) const {
    int status;
    while ((status = query(event)) == NOT_READY) std::this_thread::sleep_for(LOOK);
    return status;
}

// Reads until the buffer is full or the file ends; returns bytes read, or -1.
inline std::int64_t fill(int file, char* memory, std::int64_t bytes, std::int64_t offset) {
    std::int64_t filled = 0;
    while (filled < bytes) {
        ssize_t got = pread(file, memory + filled, bytes - filled, offset + filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (!got) break;
        filled += got;
    }
    return filled;
}

struct Buffer {
    char* memory;
    void* copied;  // event after the last copy to or from it
};

// Buffers and stream of one thread.
struct Lane {
    Buffer buffers[BUFFERS];
    void* stream;
};

// Creates lanes for `threads` threads; returns the driver's status.
inline int make_lanes(const Driver& driver, int threads, std::size_t part_bytes, std::vector<Lane>& lanes) {
    char* memory;
    int status = driver.allocate(reinterpret_cast<void**>(&memory), part_bytes * BUFFERS * threads, PORTABLE);
    lanes.resize(threads);
    for (Lane& lane : lanes) {
        if (!status) status = driver.create_stream(&lane.stream, NON_BLOCKING);
        for (Buffer& buffer : lane.buffers) {
            buffer.memory = memory;
            memory += part_bytes;
            if (!status) status = driver.create_event(&buffer.copied, WITHOUT_TIME);
        }
    }
    return status;
}

// A transfer in parts by several threads; callers wait for the whole.
struct Pending {
    std::mutex mutex;
    std::condition_variable done;
    std::size_t parts = 0;        // not done yet
    std::int64_t bytes = 0;       // moved
    int refused = 0, failed = 0;  // errno, status of CUDA; the last one

    // A part is done or has failed. After the last one, the waiting thread may free this at any time.
    template <class More>
    void part_is_done(std::int64_t moved, int refusal, int failure, More more) {
        std::lock_guard<std::mutex> lock(mutex);
        bytes += moved;
        if (refusal) refused = refusal;
        if (failure) failed = failure;
        more();
        if (!--parts) done.notify_all();
    }

    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        done.wait(lock, [&] { return !parts; });
    }
};
