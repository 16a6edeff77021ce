// Switching stacks: a few instructions on x86-64, the C library's slower functions elsewhere.
#pragma once

#include <cstddef>

#if defined(__x86_64__)
struct Context {
    void* top;
};
#else
#include <ucontext.h>
struct Context {
    ucontext_t context;
};
#endif

void exchange(Context& from, const Context& to);
// A new stack, on which `begin` will run when it is first switched to; it must not return.
void prepare(Context& context, char* stack, std::size_t bytes, void (*begin)());
