// What barriers and warps (waiting.cpp) need from the threads of the block (threads.cpp).
#pragma once

#include "internal.h"

enum Order { ASCENDING, DESCENDING, WARPS, WARPS_DESCENDING, ANY, ORDERS };

extern unsigned threads, alive, at_barrier, votes, order;

void make_ready(Fiber& fiber);
void all_ready();  // makes all threads of the block that have not ended ready, in the seed's order
void go_on();      // switches to the next thread; returns when it is this thread's turn again
void shuffle(unsigned* values, unsigned count);
[[noreturn]] void stuck();
void release_barrier();
void try_warp(const Fiber& one);  // completes if all lanes of its mask that have not ended wait for the same
