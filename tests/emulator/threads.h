// What barriers and warps (waiting.cpp) need of the threads of the block (threads.cpp).
#pragma once

#include "internal.h"

enum Order { ASCENDING, DESCENDING, WARPS, WARPS_DESCENDING, ANY, ORDERS };

extern unsigned threads, alive, at_barrier, votes, order;

void make_ready(Fiber& fiber);
void all_ready();  // all threads of the block that have not ended, in the order that the seed chose
void go_on();      // whoever is next; comes back when it is this thread's turn again
void shuffle(unsigned* values, unsigned count);
[[noreturn]] void stuck();
void release_barrier();
void try_warp(const Fiber& one);  // goes on where all lanes of its mask that have not ended wait for the same
