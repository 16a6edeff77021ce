// A region of memory that a kernel may access, and a record of who did.
#pragma once

#include "internal.h"

constexpr unsigned MAX_REGIONS = 64;

// Last access to a cell: (block * 1024 + thread + 1) << 32 | epoch << 12 | clock of the lane. Zero: none.
using Stamp = std::uint64_t;

// Of the threads that only read, or only update atomically, two are kept, if possible of different warps: at least one
// differs from the next thread.
struct Cell {
    Stamp write, read[2], atomic[2];
};

struct Region {
    std::uintptr_t begin, end;
    std::uintptr_t origin;  // address of the first cell
    const void* key;        // declaration of a shared array, null for the dynamic one
    const char* name;       // of a shared array, null for an argument
    int argument;
    unsigned element;       // bytes, for the index in a message
    unsigned granule;       // bytes of a cell
    bool constant;          // nothing may write it, so there can be no race
    bool may_be_unwritten;
    Cell* cells;
    std::uint8_t* written;  // of each byte whether it has a value; null where all have
};

extern Region regions[MAX_REGIONS];
extern unsigned region_count;
