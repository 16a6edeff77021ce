// Replaces races.cpp if sanitizers check every load and store: only the order of threads remains.

#include "internal.h"

void fences_begin() {}
void fences_begin_block() {}

extern "C" {

void host_fence() { switch_sometimes(); }

void host_atomic(void*, unsigned, void*) { switch_sometimes(); }

void host_misaligned(const void* address, unsigned bytes, void* place) {
    fault(place, "misaligned: %u bytes at %p", bytes, address);
}

}  // extern "C"
