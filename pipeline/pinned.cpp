// Bytes of files to a device through pinned memory: a thread reads a part while the device fetches the one before it.
//
// Threads of C++ and not of Python, because each would wait for the interpreter after every part, behind those that
// verify. The driver is called by pointers that Python hands in, so that this compiles without CUDA.

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <queue>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr int BUFFERS = 2;  // of a thread: one that is filled, one that the device fetches

// Functions of libcuda, in the order of FUNCTIONS in pinned.py.
struct Driver {
    int (*set_context)(void* context);
    int (*allocate)(void** memory, std::size_t bytes, unsigned flags);
    int (*create_stream)(void** stream, unsigned flags);
    int (*create_event)(void** event, unsigned flags);
    int (*copy)(std::uint64_t target, const void* source, std::size_t bytes, void* stream);
    int (*record)(void* event, void* stream);
    int (*synchronize)(void* event);
};
constexpr unsigned PORTABLE = 1, NON_BLOCKING = 1;
// Waiting for an event that does not block would keep a core busy, which others read with.
constexpr unsigned BLOCKING_WITHOUT_TIME = 1 | 2;

// Bytes on their way, of which threads bring one part each.
struct Read {
    std::mutex mutex;
    std::condition_variable started;
    std::size_t parts;                 // that are not yet read
    std::int64_t bytes = 0;            // that are
    int refused = 0, failed = 0;       // errno, status of CUDA
    std::vector<void*> copied;         // an event of each part: when all have happened, everything is there
};

struct Part {
    Read* read;
    std::int64_t order, number;
    int file;
    std::int64_t offset;
    std::uint64_t target;
    std::size_t bytes;
};

// What was opened first goes first. Taken in turns, chunks that are read side by side would end at the same time, and
// then nothing is under way while the next ones begin.
struct Later {
    bool operator()(const Part& a, const Part& b) const {
        return a.order != b.order ? a.order > b.order : a.number > b.number;
    }
};

struct Reader {
    Driver driver;
    void* context;
    std::size_t part_bytes;
    std::mutex mutex;
    std::condition_variable more;
    std::priority_queue<Part, std::vector<Part>, Later> parts;
    std::int64_t number = 0;  // of the next part
    std::vector<void*> events;  // that nobody uses

    int take_event(void** event) {
        std::lock_guard<std::mutex> lock(mutex);
        if (events.empty()) return driver.create_event(event, BLOCKING_WITHOUT_TIME);
        *event = events.back();
        events.pop_back();
        return 0;
    }
};

struct Buffer {
    char* memory;
    void* copied;
};

// Reads until the memory is full or the file ends: how many bytes, or -1.
std::int64_t fill(int file, char* memory, std::size_t bytes, std::int64_t offset) {
    std::size_t filled = 0;
    while (filled < bytes) {
        ssize_t got = pread(file, memory + filled, bytes - filled, offset + filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (!got) break;
        filled += got;
    }
    return filled;
}

// One part: into the buffer as soon as the device has fetched what was there before, and from there on its way.
void bring(Reader& reader, const Part& part, Buffer& buffer, void* stream) {
    const Driver& driver = reader.driver;
    int failed = driver.synchronize(buffer.copied), refused = 0;
    std::int64_t got = 0;
    // An event of its own says that the part is there: that of the buffer is soon another part's, for which whoever
    // waits for this one would wait, too.
    void* copied = nullptr;
    if (!failed) {
        got = fill(part.file, buffer.memory, part.bytes, part.offset);
        if (got < 0) refused = errno;
        if (got > 0) failed = reader.take_event(&copied);
        if (got > 0 && !failed) failed = driver.copy(part.target, buffer.memory, got, stream);
        if (got > 0 && !failed) failed = driver.record(buffer.copied, stream);
        if (got > 0 && !failed) failed = driver.record(copied, stream);
    }
    Read& read = *part.read;
    std::lock_guard<std::mutex> lock(read.mutex);
    read.bytes += got > 0 ? got : 0;
    if (refused) read.refused = refused;
    if (failed) read.failed = failed;
    if (copied) read.copied.push_back(copied);
    if (!--read.parts) read.started.notify_all();
}

void work(Reader& reader, Buffer* buffers, void* stream) {
    reader.driver.set_context(reader.context);
    for (int turn = 0;; turn = (turn + 1) % BUFFERS) {
        std::unique_lock<std::mutex> lock(reader.mutex);
        reader.more.wait(lock, [&] { return !reader.parts.empty(); });
        Part part = reader.parts.top();
        reader.parts.pop();
        lock.unlock();
        bring(reader, part, buffers[turn], stream);
    }
}

}  // namespace

// Threads for the device of a context, which is the current one; they live as long as the process.
// Null where the driver refuses, with its status.
extern "C" Reader* open_reader(const Driver* driver, void* context, int threads, std::size_t part_bytes, int* status) {
    auto* reader = new Reader{*driver, context, part_bytes, {}, {}, {}, 0, {}};
    char* memory;
    *status = driver->allocate(reinterpret_cast<void**>(&memory), part_bytes * BUFFERS * threads, PORTABLE);
    for (int i = 0; i < threads && !*status; i++) {
        void* stream;
        *status = driver->create_stream(&stream, NON_BLOCKING);
        auto* buffers = new Buffer[BUFFERS];
        for (int k = 0; k < BUFFERS && !*status; k++) {
            buffers[k].memory = memory + (i * BUFFERS + k) * part_bytes;
            *status = driver->create_event(&buffers[k].copied, BLOCKING_WITHOUT_TIME);
        }
        if (!*status) std::thread(work, std::ref(*reader), buffers, stream).detach();
    }
    return *status ? nullptr : reader;
}

// Starts to read from an offset of a file into the memory of the device; of several reads the lowest order goes first.
extern "C" Read* start_read(Reader* reader, int file, std::int64_t offset, std::uint64_t target, std::size_t bytes,
                            std::int64_t order) {
    auto* read = new Read;
    read->parts = (bytes + reader->part_bytes - 1) / reader->part_bytes;
    {
        std::lock_guard<std::mutex> lock(reader->mutex);
        for (std::size_t start = 0; start < bytes; start += reader->part_bytes)
            reader->parts.push({read, order, reader->number++, file, offset + std::int64_t(start), target + start,
                                std::min(reader->part_bytes, bytes - start)});
    }
    reader->more.notify_all();
    return read;
}

// Waits until everything is there, and ends the read: bytes that there were, -errno, or `failed` set to CUDA's status.
extern "C" std::int64_t end_read(Reader* reader, Read* read, int* failed) {
    {
        std::unique_lock<std::mutex> lock(read->mutex);
        read->started.wait(lock, [&] { return !read->parts; });
    }
    for (void* copied : read->copied)
        if (int status = reader->driver.synchronize(copied)) read->failed = status;
    {
        std::lock_guard<std::mutex> lock(reader->mutex);
        reader->events.insert(reader->events.end(), read->copied.begin(), read->copied.end());
    }
    *failed = read->failed;
    std::int64_t found = read->refused ? -read->refused : read->bytes;
    delete read;
    return found;
}
