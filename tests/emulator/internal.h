// Shared by the two halves of the runtime: threads that take turns (threads.cpp), and the memory that they may access
// (memory.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime.h"
#include "switch.h"

constexpr unsigned WARP = 32, MAX_THREADS = 1024, MAX_MUTANTS = 1024;
constexpr std::size_t STACK = 64 << 10;  // bytes per fiber

enum class State : std::uint8_t { READY, BARRIER, WARP_OPERATION, DONE };

struct Fiber {
    Context context;
    char* stack;
    uint3 index;
    unsigned number, lane, warp;
    State state;
    int line;            // of the barrier at which it waits
    HostWarp operation;  // warp operation for which it waits
    unsigned mask, bytes;
    int source;
    unsigned char value[16], result[16];
    // What this thread knows about the lanes of its warp: how often each had synchronised (own entry: itself).
    std::uint32_t clock[WARP];
};

struct Array {
    std::uintptr_t pointer;  // address of the caller's array; zero for an argument that is no array
    std::uint64_t bytes;
    std::uint8_t* written;  // of each byte whether it has a value; null where all have
};

// A launch, as the caller describes it.
struct Launch {
    const HostKernel* kernel;
    unsigned grid[3], block[3];
    void** arguments;
    Array* arrays;  // one for each argument
    std::uint64_t shared_bytes, seed, budget;
    std::int32_t mutant;
    std::uint32_t speculative;  // uninitialised shared memory may be read: the result shows whether that mattered
};

// A fault of a kernel; without one, the amount of work seen.
struct Report {
    char text[600];
    std::uint64_t place;  // the faulting instruction; zero if unknown
    std::uint64_t accesses, switches;
};

extern Launch launch;
extern Report* report;
extern Fiber fibers[MAX_THREADS];
extern Fiber* current;  // null if no fiber runs
extern std::uint32_t block_number, epoch;  // epoch: number of barriers that this block has passed

struct Random {
    std::uint64_t state;
    std::uint64_t next() {  // splitmix64
        std::uint64_t z = (state += 0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    unsigned below(unsigned limit) { return unsigned(((next() >> 32) * limit) >> 32); }
};

// Ends the launch; `place` is an address in the kernel's code, or null.
[[noreturn]] void fault(const void* place, const char* format, ...) __attribute__((format(printf, 2, 3)));
void count_access(const void* place);  // ends a launch that exceeds its budget
void switch_sometimes();  // lets another thread run, as the seed decides
void** memory_begin();    // guarded copies of the arrays; the arguments, which point to them
void memory_begin_block(std::uint64_t noise);
void fences_begin();  // of a launch; of a block
void fences_begin_block();
void memory_end();  // copies what the kernel wrote back to the caller's arrays
