// Transfers between files and a device through pinned memory; called by pinned.py.
//
// It uses C++ threads: Python threads would wait for the GIL after every part, behind those that verify. The driver is
// called through pointers from Python, so that this compiles without CUDA. Readers and writers live as long as the
// process.

#include "pinned_read.hpp"
#include "pinned_write.hpp"

namespace {

template <class Threads, class Work>
Threads* start(const Driver* driver, void* context, int threads, std::size_t part_bytes, int* status, Work work) {
    std::vector<Lane> lanes;
    *status = make_lanes(*driver, threads, part_bytes, lanes);
    if (*status) return nullptr;
    auto* made = new Threads();
    made->driver = *driver;
    made->context = context;
    made->part_bytes = part_bytes;
    for (const Lane& lane : lanes) std::thread(work, std::ref(*made), lane).detach();
    return made;
}

// Cuts what is to be checked at the ends of the parts of a read of one run, so that each thread checks what it has read.
void share_out(std::vector<ReadPart>& parts, const CheckedRun* runs, std::size_t count) {
    std::size_t at = 0;
    std::int64_t done = 0;  // bytes of the next run
    for (ReadPart& part : parts) {
        Read& read = *part.read;
        const Run whole = runs_of(part).front();
        const bool last = &part == &parts.back();
        part.first_checked = read.checked.size();
        while (at < count) {
            const CheckedRun& run = runs[at];
            const std::int64_t left = run.bytes - done, item = read.checks->itemsize;
            const std::int64_t until = whole.offset + whole.bytes - run.offset - done;  // the end of the part
            const std::int64_t bytes = last || until > left ? left : until > 0 ? until / item * item : 0;
            if (!bytes) break;
            read.checked.push_back({run.offset + done, bytes, run.first + done / item});
            done += bytes;
            if (done == run.bytes) at++, done = 0;
        }
        part.checked = read.checked.size() - part.first_checked;
    }
}

// Waits for a transfer and frees it: returns bytes moved or -errno, or sets `failed` to the CUDA status.
template <class Moved>
std::int64_t end(Moved* moved, std::int64_t* failed) {
    *failed = moved->failed;
    std::int64_t result = moved->refused ? -moved->refused : moved->bytes;
    delete moved;
    return result;
}

}  // namespace

// Threads for the device of the current context; null and the driver's status on error.
extern "C" Reader* open_reader(const Driver* driver, void* context, int threads, std::size_t part_bytes, int* status) {
    return start<Reader>(driver, context, threads, part_bytes, status, read_parts);
}

extern "C" Writer* open_writer(const Driver* driver, void* context, int threads, std::size_t part_bytes, int* status) {
    return start<Writer>(driver, context, threads, part_bytes, status, write_parts);
}

// `number` checks in each of some sets; they have to live until `end_checks`.
extern "C" Checks* begin_checks(const Check* checks, std::size_t number, std::size_t sets, std::size_t itemsize) {
    return new Checks(checks, number, sets, itemsize);
}

// No read uses them any more.
extern "C" void end_checks(Checks* checks, Spent* spent) {
    std::copy(checks->spent.begin(), checks->spent.end(), spent);
    delete checks;
}

// Starts to read runs of files, one after another, into device memory; reads of the lowest order go first. Files and
// their paths have to live until its end. Beside a read of one run of an open file others are read for checks, ordered
// by offset, from a descriptor of their own.
extern "C" Read* start_read(Reader* reader, const Planned* files, std::size_t file_count, const Run* runs,
                            std::size_t count, std::uint64_t target, std::int64_t order, Checks* checks,
                            int checked_file, const CheckedRun* checked, std::size_t checked_count) {
    auto* read = new Read;
    read->files.reset(new File[file_count]);
    for (std::size_t file = 0; file < file_count; file++) read->files[file].planned = files[file];
    read->checks = checks;
    read->checked_file = checked_file;
    read->runs.assign(runs, runs + count);
    const std::int64_t most = reader->part_bytes;
    std::vector<ReadPart> parts;
    std::int64_t before = 0, skipped = 0, left = 0;
    for (const Run& run : read->runs) left += run.bytes;
    for (std::size_t run = 0; left;) {
        std::int64_t bytes = std::min(most, left), passed = bytes;
        parts.push_back({read, order, 0, target + before, std::size_t(bytes), run, skipped, 0, 0});
        for (; passed && passed >= read->runs[run].bytes - skipped; skipped = 0) passed -= read->runs[run++].bytes - skipped;
        skipped += passed;
        before += bytes;
        left -= bytes;
    }
    for (const ReadPart& part : parts) {
        const std::vector<Run> inside = runs_of(part);
        for (auto run = inside.begin(); run != inside.end(); run = end_of_file(run, inside.end()))
            read->files[run->file].users++;
    }
    if (checks) share_out(parts, checked, checked_count);
    read->parts = parts.size();
    {
        std::lock_guard<std::mutex> lock(reader->mutex);
        for (ReadPart& part : parts) {
            part.number = reader->number++;
            reader->parts.push(part);
        }
    }
    reader->more.notify_all();
    return read;
}

// Waits until everything is on the device and frees the read; returns bytes read, or an error as `end` does: `failed` has
// the number of the file and the offset of what could not be read behind the status.
extern "C" std::int64_t end_read(Reader* reader, Read* read, std::int64_t* failed) {
    read->wait();
    for (void* copied : read->copied)
        if (int status = reader->driver.wait_for(copied)) read->failed = status;
    {
        std::lock_guard<std::mutex> lock(reader->mutex);
        reader->events.insert(reader->events.end(), read->copied.begin(), read->copied.end());
    }
    failed[1] = read->where.file;
    failed[2] = read->where.offset;
    return end(read, failed);
}

// Starts to write runs of equal length, contiguous on the device, to `targets`, which must live until the end of the
// write.
extern "C" Write* start_write(Writer* writer, std::uint64_t source, std::size_t run_bytes, char* const* targets,
                              std::size_t runs) {
    auto* write = new Write;
    std::vector<WritePart> parts;
    const std::size_t most = writer->part_bytes;
    if (run_bytes <= most) {
        const std::size_t step = most / run_bytes;
        for (std::size_t run = 0; run < runs; run += step)
            parts.push_back({write, source + run * run_bytes, targets + run, std::min(step, runs - run), run_bytes, 0});
    } else {
        for (std::size_t run = 0; run < runs; run++)
            for (std::size_t at = 0; at < run_bytes; at += most)
                parts.push_back({write, source + run * run_bytes + at, targets + run, 1, std::min(most, run_bytes - at), at});
    }
    write->parts = parts.size();
    {
        std::lock_guard<std::mutex> lock(writer->mutex);
        writer->parts.insert(writer->parts.end(), parts.begin(), parts.end());
    }
    writer->more.notify_all();
    return write;
}

// Waits until everything is written and frees the write.
extern "C" std::int64_t end_write(Writer*, Write* write, std::int64_t* failed) {
    write->wait();
    return end(write, failed);
}
