// Memory that a kernel may access: copies of its array arguments, and the shared arrays of its blocks, each between
// guard zones and with a record of its accesses (races.cpp).

#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#ifdef HOST_SANITIZED
#include <sanitizer/asan_interface.h>
#endif

Region regions[MAX_REGIONS];
unsigned region_count;

namespace {

constexpr unsigned MAX_ARGUMENTS = 32;
constexpr std::size_t ARENA = std::size_t(64) << 30;  // address space; only what is in use takes memory
constexpr std::size_t GUARD = 1 << 20, ALIGNMENT = 256;
constexpr std::size_t POISONED = 64 << 10;  // bytes of a guard zone that are poisoned for AddressSanitizer

// Overlapping arrays: what is written to one is read from the other.
struct Group {
    std::uintptr_t original, copy;
    std::uint64_t bytes;
    unsigned granule;
    bool constant;
    Cell* cells;
};

Group groups[MAX_ARGUMENTS];
unsigned group_count, global_count;
void* pointers[MAX_ARGUMENTS];
void* copied_arguments[MAX_ARGUMENTS];
std::uintptr_t arena, free_at, shared_begin;
Random noise;

void poison(std::uintptr_t begin, std::uint64_t bytes, bool poisoned) {
#ifdef HOST_SANITIZED
    auto* const from = reinterpret_cast<void*>(begin);
    if (poisoned) __asan_poison_memory_region(from, bytes);
    else __asan_unpoison_memory_region(from, bytes);
#else
    (void)begin, (void)bytes, (void)poisoned;
#endif
}

// Allocates memory with a guard zone on either side, at the same offset within ALIGNMENT as `like`.
std::uintptr_t reserve(std::uint64_t bytes, std::uintptr_t like) {
    const std::uintptr_t begin = (free_at + GUARD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + like % ALIGNMENT;
    free_at = begin + bytes;
    if (free_at + GUARD > arena + ARENA) std::abort();  // far above what any test needs
    poison(begin - POISONED, POISONED, true);
    poison(begin, bytes, false);
    poison(begin + bytes, POISONED, true);
    return begin;
}

Region& add_region(std::uintptr_t begin, std::uint64_t bytes) {
    if (region_count == MAX_REGIONS) fault(nullptr, "more than %u arrays in a block", MAX_REGIONS);
    Region& region = regions[region_count++];
    region = {};
    region.begin = region.origin = begin;
    region.end = begin + bytes;
    return region;
}

template <typename T> T* zeros(std::uint64_t count) { return static_cast<T*>(std::calloc(count + 1, sizeof(T))); }

// Indeterminate in C++: filled with a value that differs between seeds, so that a result that uses it changes.
void add_shared(const void* key, const char* name, std::uint64_t bytes, unsigned element) {
    const std::uintptr_t begin = reserve(bytes, 0);
    Region& region = add_region(begin, bytes);
    region.key = key;
    region.name = name;
    region.element = element;
    region.granule = 1;
    region.cells = zeros<Cell>(bytes);
    region.written = zeros<std::uint8_t>(bytes);
    region.may_be_unwritten = launch.speculative;
    auto* const values = reinterpret_cast<std::uint8_t*>(begin);
    for (std::uint64_t i = 0; i < bytes; i += 8) {
        const std::uint64_t any = noise.next();
        std::memcpy(values + i, &any, bytes - i < 8 ? bytes - i : 8);
    }
}

void free_shared() {
    while (region_count > global_count) {
        Region& region = regions[--region_count];
        std::free(region.cells);
        std::free(region.written);
    }
}

bool is_array(unsigned i) {
    return launch.kernel->parameters[i].kind >= HOST_POINTER && launch.arrays[i].pointer;
}

// Arrays of the launch by address; overlapping ones share a group.
void find_groups() {
    unsigned sorted[MAX_ARGUMENTS], count = 0;
    for (unsigned i = 0; i < launch.kernel->count; ++i) {
        if (!is_array(i)) continue;
        unsigned at = count++;
        for (; at && launch.arrays[sorted[at - 1]].pointer > launch.arrays[i].pointer; --at) sorted[at] = sorted[at - 1];
        sorted[at] = i;
    }
    for (unsigned k = 0; k < count; ++k) {
        const Array& array = launch.arrays[sorted[k]];
        const HostParameter& parameter = launch.kernel->parameters[sorted[k]];
        const bool constant = parameter.kind == HOST_CONST_POINTER;
        Group* const last = group_count ? &groups[group_count - 1] : nullptr;
        if (!last || array.pointer >= last->original + last->bytes) {
            groups[group_count++] = {array.pointer, 0, array.bytes, parameter.bytes, constant, nullptr};
            continue;
        }
        const std::uint64_t bytes = array.pointer + array.bytes - last->original;
        if (bytes > last->bytes) last->bytes = bytes;
        if (parameter.bytes < last->granule) last->granule = parameter.bytes;
        last->constant = last->constant && constant;
    }
}

const Group& group_of(const Array& array) {
    const Group* group = groups;
    while (array.pointer < group->original || array.pointer + array.bytes > group->original + group->bytes) ++group;
    return *group;
}

}  // namespace

void** memory_begin() {
    if (!arena) {
        void* const room = mmap(nullptr, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                                -1, 0);
        if (room == MAP_FAILED) std::abort();
        arena = reinterpret_cast<std::uintptr_t>(room);
    }
    free_at = arena;
    region_count = group_count = 0;
    find_groups();
    for (Group* group = groups; group < groups + group_count; ++group) {
        group->copy = reserve(group->bytes, group->original);
        std::memcpy(reinterpret_cast<void*>(group->copy), reinterpret_cast<void*>(group->original), group->bytes);
        if (!group->constant) group->cells = zeros<Cell>(group->bytes / group->granule);
    }
    for (unsigned i = 0; i < launch.kernel->count; ++i) {
        copied_arguments[i] = launch.arguments[i];
        if (!is_array(i)) continue;
        const Array& array = launch.arrays[i];
        const Group& group = group_of(array);
        Region& region = add_region(group.copy + (array.pointer - group.original), array.bytes);
        region.argument = int(i);
        region.origin = group.copy;
        region.element = launch.kernel->parameters[i].bytes;
        region.granule = group.granule;
        region.constant = group.constant;
        region.cells = group.cells;
        region.written = array.written;
        pointers[i] = reinterpret_cast<void*>(region.begin);
        copied_arguments[i] = &pointers[i];
    }
    global_count = region_count;
    shared_begin = free_at;
    return copied_arguments;
}

void memory_begin_block(std::uint64_t seed) {
    noise = {seed};
    free_shared();
    free_at = shared_begin;
    add_shared(nullptr, "dynamic shared memory", launch.shared_bytes, 1);
}

void memory_end() {
    free_shared();
    for (const Group* group = groups; group < groups + group_count; ++group) {
        if (group->constant) continue;
        std::memcpy(reinterpret_cast<void*>(group->original), reinterpret_cast<void*>(group->copy), group->bytes);
        std::free(group->cells);
    }
#ifdef HOST_SANITIZED
    // Writes were not watched.
    for (unsigned i = 0; i < global_count; ++i)
        if (regions[i].written) std::memset(regions[i].written, 1, regions[i].end - regions[i].begin);
#endif
    region_count = global_count = 0;
}

extern "C" {

void* host_shared(const void* key, const char* name, unsigned bytes, unsigned element) {
    Region* region = regions + global_count;
    while (region < regions + region_count && region->key != key) ++region;
    if (region == regions + region_count) add_shared(key, name, bytes, element);
    return reinterpret_cast<void*>(region->begin);
}

void* host_dynamic_shared(const char* name, unsigned element) {
    Region& region = regions[global_count];
    region.name = name;
    region.element = element;
    return reinterpret_cast<void*>(region.begin);
}

}  // extern "C"
