// From a file to the device: a thread reads a part while the device fetches the previous one.

#pragma once

#include <fcntl.h>
#include <limits>
#include <queue>

#include "pinned_check.hpp"

// A byte run of a file.
struct Run {
    std::int64_t offset, bytes;
};

struct Read : Pending {
    int file;
    std::vector<Run> runs;
    std::vector<void*> copied;  // one event per part: once all have occurred, everything has arrived
    Checks* checks;             // or none
    int checked_file;
    std::vector<CheckedRun> checked;  // each within one part, but for the last part
};

struct ReadPart {
    Read* read;
    std::int64_t order, number;
    std::uint64_t target;
    std::size_t bytes, run;  // index of the first run
    std::int64_t skipped;    // bytes of that run in earlier parts
    std::size_t first_checked, checked;  // runs to check, of those of the read
};

// Files are read in the order in which they were opened. If concurrent chunks took turns, they would end at the same
// time, and nothing would be in flight while the next ones start.
struct Later {
    bool operator()(const ReadPart& a, const ReadPart& b) const {
        return a.order != b.order ? a.order > b.order : a.number > b.number;
    }
};

struct Reader {
    Driver driver;
    void* context;
    std::size_t part_bytes;
    std::mutex mutex;
    std::condition_variable more;
    std::priority_queue<ReadPart, std::vector<ReadPart>, Later> parts;
    std::int64_t number = 0;    // of the next part
    std::vector<void*> events;  // free ones

    int take_event(void** event) {
        std::lock_guard<std::mutex> lock(mutex);
        if (events.empty()) return driver.create_event(event, BLOCKING_WITHOUT_TIME);
        *event = events.back();
        events.pop_back();
        return 0;
    }
};

// The runs of a part; the first and the last one may be cut.
inline std::vector<Run> runs_of(const ReadPart& part) {
    std::vector<Run> runs;
    std::int64_t left = part.bytes, skipped = part.skipped;
    for (std::size_t run = part.run; left; skipped = 0, run++) {
        const Run& whole = part.read->runs[run];
        std::int64_t bytes = std::min(whole.bytes - skipped, left);
        runs.push_back({whole.offset + skipped, bytes});
        left -= bytes;
    }
    return runs;
}

// Reads the runs of a part one after another; returns bytes read, or -1.
inline std::int64_t gather(const ReadPart& part, char* memory) {
    const std::vector<Run> runs = runs_of(part);
    if (runs.size() > 1)
        for (const Run& run : runs)  // so that the disk gets all of them at once
            posix_fadvise(part.read->file, run.offset, run.bytes, POSIX_FADV_WILLNEED);
    std::int64_t filled = 0;
    for (const Run& run : runs) {
        std::int64_t got = fill(part.read->file, memory + filled, run.bytes, run.offset);
        if (got < 0) return -1;
        filled += got;
    }
    return filled;
}

// Reads a part, which is one run, and what there is to check of it; returns bytes read, or -1.
inline std::int64_t gather_and_check(const ReadPart& part, char* memory) {
    const Read& read = *part.read;
    const Run run = runs_of(part).front();
    Checking checking(*read.checks, read.checked_file, read.checked.data() + part.first_checked, part.checked);
    std::int64_t filled = 0, got = 1;
    while (got && filled < run.bytes) {
        const std::int64_t bytes = std::min<std::int64_t>(run.bytes - filled, CHECKED_BYTES);
        got = fill(read.file, memory + filled, bytes, run.offset + filled);
        if (got < 0) return -1;
        filled += got;
        if ((errno = checking.until(run.offset + filled))) return -1;
    }
    return (errno = checking.until(std::numeric_limits<std::int64_t>::max())) ? -1 : filled;
}

// One part: into the buffer, once the device has fetched its previous content, and on to the device.
inline void bring(Reader& reader, const ReadPart& part, Buffer& buffer, void* stream) {
    const Driver& driver = reader.driver;
    int failed = driver.synchronize(buffer.copied), refused = 0;
    std::int64_t got = 0;
    // The part has its own event: the buffer's event is soon recorded again for another part, and waiting for it would
    // wait for that part, too.
    void* copied = nullptr;
    if (!failed) {
        got = part.checked ? gather_and_check(part, buffer.memory) : gather(part, buffer.memory);
        if (got < 0) refused = errno;
        if (got > 0) failed = reader.take_event(&copied);
        if (got > 0 && !failed) failed = driver.to_device(part.target, buffer.memory, got, stream);
        if (got > 0 && !failed) failed = driver.record(buffer.copied, stream);
        if (got > 0 && !failed) failed = driver.record(copied, stream);
    }
    part.read->part_is_done(std::max<std::int64_t>(got, 0), refused, failed, [&] {
        if (copied) part.read->copied.push_back(copied);
    });
}

inline void read_parts(Reader& reader, Lane lane) {
    reader.driver.set_context(reader.context);
    for (int turn = 0;; turn = (turn + 1) % BUFFERS) {
        std::unique_lock<std::mutex> lock(reader.mutex);
        reader.more.wait(lock, [&] { return !reader.parts.empty(); });
        ReadPart part = reader.parts.top();
        reader.parts.pop();
        lock.unlock();
        bring(reader, part, lane.buffers[turn], lane.stream);
    }
}
