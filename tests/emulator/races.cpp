// Checks every load and store of a kernel: is it inside an array, is the cell initialised, does it race?
//
// A kernel compiled with -fsanitize=thread calls the functions at the end of this file. Two accesses to a cell, at
// least one a write and not both atomic, are a race unless the first happened before the second: in the same thread;
// before a barrier of the block that precedes the second; or before a __syncwarp that synchronised the second's lane
// with it. This does not depend on the order in which the threads happened to run. Across blocks, accesses of an
// earlier block before a barrier and then a __threadfence happened before those of a later block that has updated a
// cell atomically and then passed a __threadfence; whether that cell's value allowed it to proceed shows only in the
// result.

#include "memory.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

enum Access { READ, WRITE, ATOMIC };
constexpr const char* DOES[] = {"reads", "writes", "atomically updates"};

Region* recent = regions;
std::vector<std::uint32_t> published;  // for each block that has run: its accesses before this epoch are published
unsigned updater, informed;            // thread of this block plus one that updated a global cell; that then passed a fence
std::uint32_t informed_at;             // epoch of that

// Whether another block's accesses happened before this thread's.
bool knows(Stamp before) {
    return informed && (epoch > informed_at || current->number + 1 == informed) &&
           unsigned(before) >> 12 < published[unsigned((before >> 32) - 1) / MAX_THREADS];
}

const char* described(const Region& region, std::uintptr_t address) {
    static char text[100];
    const long long index = ((long long)address - (long long)region.begin) / (long long)region.element;
    if (region.name) std::snprintf(text, sizeof text, "%s[%lld] (shared)", region.name, index);
    else std::snprintf(text, sizeof text, "argument %d, element %lld", region.argument, index);
    return text;
}

const char* here() {
    static char text[100];
    std::snprintf(text, sizeof text, "thread %u (%u, %u, %u) of block %u", current->number, current->index.x,
                  current->index.y, current->index.z, block_number);
    return text;
}

// Outside of all arrays. The nearest one is most likely the intended one.
[[gnu::noinline]] void outside(std::uintptr_t address, unsigned bytes, Access access, const void* place) {
    Dl_info of_address, of_place;
    // Constants are in the kernel's own library.
    if (access == READ && dladdr(reinterpret_cast<void*>(address), &of_address) && dladdr(place, &of_place) &&
        of_address.dli_fbase == of_place.dli_fbase)
        return;
    const Region* nearest = nullptr;
    std::uintptr_t least = ~std::uintptr_t(0);
    for (const Region* region = regions; region < regions + region_count; ++region) {
        const std::uintptr_t distance = address < region->begin ? region->begin - address : address - region->end;
        if (distance < least) least = distance, nearest = region;
    }
    if (!nearest) fault(place, "out of bounds: %s %s %u bytes where there is no array", here(), DOES[access], bytes);
    fault(place, "out of bounds: %s %s %u bytes at %s, which has %llu elements", here(), DOES[access], bytes,
          described(*nearest, address), (unsigned long long)(nearest->end - nearest->begin) / nearest->element);
}

unsigned thread_of(Stamp stamp) { return (unsigned(stamp >> 32) - 1) % MAX_THREADS; }
unsigned block_of(Stamp stamp) { return (unsigned(stamp >> 32) - 1) / MAX_THREADS; }

bool collides(Stamp before, Stamp now, bool shared) {
    if (!before || before >> 32 == now >> 32) return false;
    if (block_of(before) != block_number) return !shared && !knows(before);
    if (unsigned(before) >> 12 < epoch) return false;
    const unsigned thread = thread_of(before);
    return thread / WARP != current->warp || (before & 0xfff) > current->clock[thread % WARP];
}

[[noreturn, gnu::noinline]] void race(const Region& region, std::uintptr_t address, Stamp before, Access then,
                                      Access access, const void* place) {
    fault(place, "race: %s %s %s, which thread %u of block %u %s without a barrier in between", here(), DOES[access],
          described(region, address), thread_of(before), block_of(before), DOES[then]);
}

// A slot is free if it is this thread's own, or if every later access happens after it.
bool is_free(Stamp before, Stamp now) {
    return !before || before >> 32 == now >> 32 ||
           (block_of(before) == block_number && unsigned(before) >> 12 < epoch);
}

void keep(Stamp* two, Stamp now) {
    if (is_free(two[0], now)) two[0] = now;
    else if (is_free(two[1], now) || thread_of(two[0]) / WARP == thread_of(two[1]) / WARP) two[1] = now;
}

void check_cell(const Region& region, Cell& cell, std::uintptr_t address, Access access, Stamp now, const void* place) {
    const bool shared = region.name;
    if (collides(cell.write, now, shared)) race(region, address, cell.write, WRITE, access, place);
    if (access != ATOMIC)
        for (const Stamp before : cell.atomic)
            if (collides(before, now, shared)) race(region, address, before, ATOMIC, access, place);
    if (access != READ)
        for (const Stamp before : cell.read)
            if (collides(before, now, shared)) race(region, address, before, READ, access, place);
    if (access == ATOMIC && !shared) updater = current->number + 1;
    if (access == WRITE) cell.write = now;
    else keep(access == READ ? cell.read : cell.atomic, now);
}

inline bool is_same(const Cell& one, const Cell& other) {
    return !((one.write ^ other.write) | (one.read[0] ^ other.read[0]) | (one.read[1] ^ other.read[1]) |
             (one.atomic[0] ^ other.atomic[0]) | (one.atomic[1] ^ other.atomic[1]));
}

inline bool is_inside(const Region& region, std::uintptr_t address, unsigned bytes) {
    return address >= region.begin && address + bytes <= region.end;
}

void check(const void* pointer, unsigned bytes, Access access, const void* place) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (address - reinterpret_cast<std::uintptr_t>(current->stack) < STACK) return;  // a local variable
    count_access(place);
    if (!is_inside(*recent, address, bytes) || recent >= regions + region_count) {
        Region* region = regions;
        while (region < regions + region_count && !is_inside(*region, address, bytes)) ++region;
        if (region == regions + region_count) return outside(address, bytes, access, place);
        recent = region;
    }
    Region& region = *recent;
    if (region.written) {
        std::uint8_t* const written = region.written + (address - region.begin);
        if (access != READ || !region.may_be_unwritten)
            for (unsigned i = 0; i < bytes && access != WRITE; ++i)
                if (!written[i])
                    fault(place, "no value: %s %s %s, which nobody has written", here(), DOES[access],
                          described(region, address + i));
        if (access == WRITE) std::memset(written, 1, bytes);
    }
    if (region.constant) {
        if (access == READ) return;
        fault(place, "not its own: %s %s %s, which is const", here(), DOES[access], described(region, address));
    }
    const Stamp now = Stamp(block_number * MAX_THREADS + current->number + 1) << 32 | Stamp(epoch) << 12 |
                      current->clock[current->lane];
    const std::uintptr_t offset = address - region.origin;
    Cell* const end = region.cells + (offset + bytes + region.granule - 1) / region.granule;
    Cell* cell = region.cells + offset / region.granule;
    const auto check_one = [&] {
        check_cell(region, *cell, region.origin + (cell - region.cells) * region.granule, access, now, place);
    };
    const Cell before = *cell;
    check_one();
    // Most adjacent cells were accessed by the same threads: check the first for all.
    for (const Cell after = *cell++; cell < end; ++cell) {
        if (is_same(*cell, before)) *cell = after;
        else check_one();
    }
    switch_sometimes();
}

// Loads and stores of a power-of-two size, which the compiler assumes to be aligned.
inline void check_aligned(const void* pointer, unsigned bytes, Access access, const void* place) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % bytes) host_misaligned(pointer, bytes, const_cast<void*>(place));
    check(pointer, bytes, access, place);
}

}  // namespace

#define PLACE __builtin_return_address(0)

void fences_begin() { published.assign(std::size_t(launch.grid[0]) * launch.grid[1] * launch.grid[2], 0); }
void fences_begin_block() { updater = informed = 0; }

extern "C" {

void host_fence() {
    published[block_number] = epoch;
    if (updater == current->number + 1 && !informed) informed = updater, informed_at = epoch;
    switch_sometimes();
}

void host_atomic(void* cell, unsigned bytes, void* place) { check_aligned(cell, bytes, ATOMIC, place); }

void host_misaligned(const void* address, unsigned bytes, void* place) {
    fault(place, "misaligned: %s touches %u bytes at an address that is %u more than a multiple of them", here(), bytes,
          unsigned(reinterpret_cast<std::uintptr_t>(address) % bytes));
}

#define HOOKS(bytes)                                                                                          \
    void __tsan_read##bytes(void* address) { check_aligned(address, bytes, READ, PLACE); }                    \
    void __tsan_write##bytes(void* address) { check_aligned(address, bytes, WRITE, PLACE); }                  \
    void __tsan_volatile_read##bytes(void* address) { check_aligned(address, bytes, READ, PLACE); }           \
    void __tsan_volatile_write##bytes(void* address) { check_aligned(address, bytes, WRITE, PLACE); }         \
    void __tsan_unaligned_read##bytes(void* address) { check(address, bytes, READ, PLACE); }                  \
    void __tsan_unaligned_write##bytes(void* address) { check(address, bytes, WRITE, PLACE); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void* address, unsigned long bytes) { check(address, unsigned(bytes), READ, PLACE); }
void __tsan_write_range(void* address, unsigned long bytes) { check(address, unsigned(bytes), WRITE, PLACE); }
void __tsan_init() {}

}  // extern "C"
