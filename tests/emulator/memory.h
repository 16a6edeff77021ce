// A region of memory that a kernel may touch, and who touched it.
#pragma once

#include "internal.h"

constexpr unsigned MAX_REGIONS = 64;

// Who touched a cell, and when: (block * 1024 + thread + 1) << 32 | epoch << 12 | clock of the lane. Zero: nobody.
using Stamp = std::uint64_t;

// Of those who only read, or only update atomically, two in different threads are kept, if possible in different warps:
// whoever comes next is not both of them.
struct Cell {
    Stamp write, read[2], atomic[2];
};

struct Region {
    std::uintptr_t begin, end;
    std::uintptr_t origin;  // where the cells begin
    const void* key;        // declaration of a shared array, null for the dynamic one
    const char* name;       // of a shared array, null for an argument
    int argument;
    unsigned element;       // bytes, for the index in a message
    unsigned granule;       // bytes of a cell
    bool constant;          // nobody may write it, so nobody can collide
    bool may_be_unwritten;
    Cell* cells;
    std::uint8_t* written;  // of each byte whether it has a value; null where all have
};

extern Region regions[MAX_REGIONS];
extern unsigned region_count;
