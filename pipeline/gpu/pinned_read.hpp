// From a file to the device: a thread reads a part while the device fetches the previous one.

#pragma once

#include <limits>
#include <queue>

#include "pinned_check.hpp"
#include "pinned_file.hpp"

// A byte run of one of the files of a read, by its number.
struct Run {
    std::int64_t file, offset, bytes;
};

struct Read : Pending {
    std::unique_ptr<File[]> files;
    std::vector<Run> runs;
    std::vector<void*> copied;  // one event per part: once all have occurred, everything has arrived
    Checks* checks;             // or none
    int checked_file;
    std::vector<CheckedRun> checked;  // each within one part, but for the last part
    Run where{-1, 0, 0};              // what could not be read, the last one
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
        if (events.empty()) return driver.create_event(event, WITHOUT_TIME);
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
        runs.push_back({whole.file, whole.offset + skipped, bytes});
        left -= bytes;
    }
    return runs;
}

// The first of some runs that is of another file than the first one.
template <class Iterator>
Iterator end_of_file(Iterator run, Iterator end) {
    return std::find_if(run, end, [&](const Run& other) { return other.file != run->file; });
}

// Reads runs of a file, one after another; returns bytes read, or -1. What could not be read is put into `where`.
inline std::int64_t gather_of_file(File& file, const Run* runs, const Run* end, char* memory, Run& where) {
    where = *runs;
    const int descriptor = file.enter();
    std::int64_t filled = 0, got = file.planned.path && descriptor < 0 ? -1 : 0;
    if (!(got < 0) && end - runs > 1)
        for (const Run* run = runs; run < end; run++)  // so that the disk gets all of them at once
            posix_fadvise(descriptor, run->offset, run->bytes, POSIX_FADV_WILLNEED);
    for (const Run* run = runs; run < end && !(got < 0); run++) {
        where = *run;
        got = file.fill(descriptor, memory + filled, run->bytes, run->offset);
        filled += got;
    }
    const int refused = got < 0 ? errno : 0;
    if (!file.leave() && !refused) return -1;
    errno = refused;
    return refused ? -1 : filled;
}

// Reads the runs of a part one after another; returns bytes read, or -1. Of its files one is open at a time: there may
// be thousands.
inline std::int64_t gather(const ReadPart& part, char* memory, Run& where) {
    const std::vector<Run> runs = runs_of(part);
    std::int64_t filled = 0;
    bool read = true;
    int refused = 0;
    for (auto run = runs.begin(), next = run; run != runs.end(); run = next) {
        next = end_of_file(run, runs.end());
        File& file = part.read->files[run->file];
        if (!read) {
            file.leave();
            continue;
        }
        const std::int64_t got = gather_of_file(file, &*run, &*run + (next - run), memory + filled, where);
        read = !(got < 0);
        if (read) filled += got;
        else refused = errno;
    }
    errno = refused;
    return read ? filled : -1;
}

// Reads a part, which is one run of an open file, and what there is to check of it; returns bytes read, or -1.
inline std::int64_t gather_and_check(const ReadPart& part, char* memory) {
    const Read& read = *part.read;
    const Run run = runs_of(part).front();
    const int file = read.files[run.file].planned.descriptor;
    Checking checking(*read.checks, read.checked_file, read.checked.data() + part.first_checked, part.checked);
    std::int64_t filled = 0, got = 1;
    while (got && filled < run.bytes) {
        const std::int64_t bytes = std::min<std::int64_t>(run.bytes - filled, CHECKED_BYTES);
        got = fill(file, memory + filled, bytes, run.offset + filled);
        if (got < 0) return -1;
        filled += got;
        if ((errno = checking.until(run.offset + filled))) return -1;
    }
    return (errno = checking.until(std::numeric_limits<std::int64_t>::max())) ? -1 : filled;
}

// One part: into the buffer, once the device has fetched its previous content, and on to the device.
inline void bring(Reader& reader, const ReadPart& part, Buffer& buffer, void* stream) {
    const Driver& driver = reader.driver;
    int failed = driver.wait_for(buffer.copied), refused = 0;
    void* copied = nullptr;
    Run where{-1, 0, 0};
    std::int64_t got = part.checked ? gather_and_check(part, buffer.memory) : gather(part, buffer.memory, where);
    if (got < 0) refused = errno;
    if (got > 0 && !failed) failed = reader.take_event(&copied);
    if (got > 0 && !failed) failed = driver.to_device(part.target, buffer.memory, got, stream);
    if (got > 0 && !failed) failed = driver.record(copied, stream);
    // Its event may serve another part before the buffer does again, which then waits for that part.
    if (copied) buffer.copied = copied;
    part.read->part_is_done(std::max<std::int64_t>(got, 0), refused, failed, [&] {
        if (copied) part.read->copied.push_back(copied);
        if (refused) part.read->where = where;
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
