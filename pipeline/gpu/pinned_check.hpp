// Checks beside a read: a thread that has read some bytes for the device reads them once more, for checks, while the
// page cache's copy is still in its own cache. What to read comes from elsewhere, and so does the descriptor.

#pragma once

#include <chrono>
#include <cstdlib>
#include <memory>

#include "pinned.hpp"

constexpr std::size_t CHECKED_BYTES = 1 << 18;  // read at a time: they and their source stay in the second-level cache

// As in kernels/common/compiled_check.py; `first` is the index of the first sample in the chunk.
struct Check {
    void (*add)(void* state, const void* samples, std::size_t n, std::int64_t first);
    void* state;
};

// Bytes of a file, and the index of their first sample in the chunk.
struct CheckedRun {
    std::int64_t offset, bytes, first;
};

// What the states of one set have been given, and how long that took.
struct Spent {
    std::int64_t bytes, nanoseconds;
};

// Checks of a chunk, in several sets, so that as many threads add to them at a time.
struct Checks {
    std::size_t itemsize, number;  // of checks in a set
    std::vector<Check> checks;     // [set][check]
    std::vector<Spent> spent;      // by set
    std::vector<std::size_t> free;
    std::mutex mutex;
    std::condition_variable more;

    Checks(const Check* checks, std::size_t number, std::size_t sets, std::size_t itemsize)
        : itemsize(itemsize), number(number), checks(checks, checks + number * sets), spent(sets) {
        while (free.size() < sets) free.push_back(free.size());
    }

    std::size_t take() {
        std::unique_lock<std::mutex> lock(mutex);
        more.wait(lock, [&] { return !free.empty(); });
        const std::size_t set = free.back();
        free.pop_back();
        return set;
    }

    void give(std::size_t set) {
        std::lock_guard<std::mutex> lock(mutex);
        free.push_back(set);
        more.notify_one();
    }
};

// Checks some runs, as far as the caller has got.
class Checking {
public:
    Checking(Checks& checks, int file, const CheckedRun* runs, std::size_t count)
        : checks(checks), file(file), next(runs), end(runs + count), set(checks.take()) {}
    ~Checking() { checks.give(set); }

    // Checks what begins before an offset of the file; returns 0 or errno.
    int until(std::int64_t offset) {
        const auto began = std::chrono::steady_clock::now();
        int refused = 0;
        while (!refused && next < end && next->offset + done < offset) refused = step();
        checks.spent[set].nanoseconds += (std::chrono::steady_clock::now() - began).count();
        return refused;
    }

private:
    Checks& checks;
    const int file;
    const CheckedRun *next, *const end;
    const std::size_t set;
    std::int64_t done = 0;  // bytes of the next run

    int step() {
        thread_local std::unique_ptr<char, decltype(&std::free)> block(
            static_cast<char*>(std::aligned_alloc(64, CHECKED_BYTES)), &std::free);
        const std::int64_t step = CHECKED_BYTES / checks.itemsize * checks.itemsize;
        const std::int64_t bytes = std::min(next->bytes - done, step);
        const std::int64_t got = fill(file, block.get(), bytes, next->offset + done);
        if (got < 0) return errno;
        if (got < bytes) {  // whoever waits sees that bytes are missing
            next = end;
            return 0;
        }
        for (std::size_t i = 0; i < checks.number; i++) {
            const Check& check = checks.checks[set * checks.number + i];
            check.add(check.state, block.get(), bytes / checks.itemsize, next->first + done / checks.itemsize);
        }
        checks.spent[set].bytes += bytes;
        done += bytes;
        if (done == next->bytes) next++, done = 0;
        return 0;
    }
};
