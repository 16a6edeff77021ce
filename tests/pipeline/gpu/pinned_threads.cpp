// Threads that read and write through pinned memory, without Python, to run under a sanitizer: four threads make
// requests, and the driver copies as late as it may. Exits with status 1 if a byte is wrong.

#include "../../../pipeline/gpu/pinned.cpp"

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <map>

namespace {

struct Copy {
    void* target;
    const void* source;
    std::size_t bytes;
    bool done;
};

std::mutex watched;
std::map<void*, std::vector<Copy*>> asked, behind;  // copies on a stream, before an event
std::map<void*, bool> looked;                       // whether somebody has looked at an event
long made = 0;

int set_context(void*) { return 0; }

int allocate(void** memory, std::size_t bytes, unsigned) {
    *memory = std::malloc(bytes);
    return 0;
}

int create(void** handle, unsigned) {
    std::lock_guard<std::mutex> lock(watched);
    *handle = reinterpret_cast<void*>(++made);
    return 0;
}

int copy(void* target, const void* source, std::size_t bytes, void* stream) {
    std::lock_guard<std::mutex> lock(watched);
    asked[stream].push_back(new Copy{target, source, bytes, false});
    return 0;
}

int to_device(std::uint64_t target, const void* source, std::size_t bytes, void* stream) {
    return copy(reinterpret_cast<void*>(target), source, bytes, stream);
}

int to_host(void* target, std::uint64_t source, std::size_t bytes, void* stream) {
    return copy(target, reinterpret_cast<const void*>(source), bytes, stream);
}

int record(void* event, void* stream) {
    std::lock_guard<std::mutex> lock(watched);
    behind[event] = asked[stream];
    return 0;
}

int query(void* event) {
    std::lock_guard<std::mutex> lock(watched);
    if ((looked[event] = !looked[event])) return NOT_READY;
    for (Copy* one : behind[event])
        if (!one->done) {
            std::memcpy(one->target, one->source, one->bytes);
            one->done = true;
        }
    return 0;
}

void check(bool right) {
    if (!right) std::_Exit(1);
}

// Bytes of a chunk that were seen, by index, and their sum: two threads that add to it at a time are a data race.
struct Seen {
    std::int64_t bytes = 0, sum = 0;
};

void see(void* state, const void* samples, std::size_t n, std::int64_t first) {
    auto* seen = static_cast<Seen*>(state);
    for (std::size_t i = 0; i < n; i++) seen->sum += (first + i) * static_cast<const unsigned char*>(samples)[i];
    seen->bytes += n;
}

const Planned of(int file) { return {nullptr, file, 0, 0, 0, 0, 0, 0}; }

// Several reads of one run each, with checks of runs of their own.
void try_checks(Reader* reader, int file, const std::vector<char>& content, unsigned seed) {
    for (int i = 0; i < 20; i++) {
        std::vector<Seen> seen(1 + rand_r(&seed) % 4);
        std::vector<Check> list;
        for (Seen& one : seen) list.push_back({see, &one});
        Checks* checks = begin_checks(list.data(), 1, list.size(), 1);
        std::vector<std::vector<char>> targets;
        std::vector<Read*> started;
        Seen expected;
        for (int number = 0; number < 3; number++) {
            const Run run{0, rand_r(&seed) % 800000, 1 + rand_r(&seed) % 100000};
            const CheckedRun checked{rand_r(&seed) % 800000, 1 + rand_r(&seed) % 100000, rand_r(&seed) % 1000};
            for (std::int64_t at = 0; at < checked.bytes; at++)
                expected.sum += (checked.first + at) * static_cast<unsigned char>(content[checked.offset + at]);
            expected.bytes += checked.bytes;
            targets.emplace_back(run.bytes);
            auto address = reinterpret_cast<std::uint64_t>(targets.back().data());
            const Planned open = of(file);
            started.push_back(start_read(reader, &open, 1, &run, 1, address, 0, checks, file, &checked, 1));
        }
        std::int64_t failed[3];
        for (Read* read : started) check(end_read(reader, read, failed) > 0 && !failed[0]);
        std::vector<Spent> spent(seen.size());
        end_checks(checks, spent.data());
        for (const Seen& one : seen) expected.bytes -= one.bytes, expected.sum -= one.sum;
        for (const Spent& one : spent) expected.bytes += one.bytes;
        check(expected.sum == 0 && expected.bytes > 0);
    }
}

// Runs of an open file, and of two that the threads open; every other time one of these is not the planned one.
void try_reads(Reader* reader, int file, const char* path, const std::vector<char>& content, unsigned seed) {
    const std::int64_t size = content.size();
    for (int i = 0; i < 40; i++) {
        const Planned files[] = {of(file), {path, -1, IDENTIFIED, size, 0, 0, 0, 0},
                                 {path, -1, IDENTIFIED, size + i % 2, 0, 0, 0, 0}};
        bool wrong = false;
        std::vector<Run> runs(1 + rand_r(&seed) % 4);
        std::vector<char> expected;
        for (Run& run : runs) {
            run = {rand_r(&seed) % 3, rand_r(&seed) % 800000, rand_r(&seed) % 100000};
            wrong = wrong || (i % 2 && run.file == 2 && run.bytes);
            expected.insert(expected.end(), content.begin() + run.offset, content.begin() + run.offset + run.bytes);
        }
        std::vector<char> target(expected.size());
        std::int64_t failed[3];
        auto address = reinterpret_cast<std::uint64_t>(target.data());
        Read* started = start_read(reader, files, 3, runs.data(), runs.size(), address, rand_r(&seed) % 5, nullptr, -1, nullptr, 0);
        const std::int64_t got = end_read(reader, started, failed);
        check(!failed[0]);
        if (wrong) check(got == -ESTALE && failed[1] == 2);
        else check(got == std::int64_t(expected.size()) && target == expected);
    }
}

void try_writes(Writer* writer, unsigned seed) {
    for (int i = 0; i < 40; i++) {
        std::size_t bytes = 1 + rand_r(&seed) % 9000, runs = 1 + rand_r(&seed) % 20;
        std::vector<char> source(bytes * runs), target(2 * bytes * runs);
        for (char& byte : source) byte = rand_r(&seed);
        std::vector<char*> targets;
        for (std::size_t run = 0; run < runs; run++) targets.push_back(target.data() + 2 * bytes * run);
        std::int64_t failed[1];
        auto address = reinterpret_cast<std::uint64_t>(source.data());
        Write* started = start_write(writer, address, bytes, targets.data(), runs);
        check(end_write(writer, started, failed) == std::int64_t(bytes * runs) && !failed[0]);
        for (std::size_t run = 0; run < runs; run++)
            check(!std::memcmp(targets[run], source.data() + bytes * run, bytes));
    }
}

}  // namespace

int main(int, char** arguments) {
    const Driver driver{set_context, allocate, create, create, to_device, to_host, record, query};
    std::vector<char> content(1 << 20);
    for (char& byte : content) byte = std::rand();
    int file = open(arguments[1], O_RDWR | O_CREAT, 0600), status;
    check(pwrite(file, content.data(), content.size(), 0) == ssize_t(content.size()));
    Reader* reader = open_reader(&driver, nullptr, 6, 5000, &status);
    Writer* writer = open_writer(&driver, nullptr, 6, 5000, &status);
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 2; seed++) {
        threads.emplace_back(try_reads, reader, file, arguments[1], std::cref(content), seed);
        threads.emplace_back(try_writes, writer, seed);
        threads.emplace_back(try_checks, reader, file, std::cref(content), seed);
    }
    for (std::thread& thread : threads) thread.join();
    std::_Exit(0);
}
