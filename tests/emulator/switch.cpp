// Switching stacks (switch.h).

#include "switch.h"

#if defined(__x86_64__)

// Saves what a call has to preserve, exchanges the stacks, and restores.
extern "C" void host_exchange(void** from, void* to);
asm(R"(
.text
.globl host_exchange
.type host_exchange,@function
host_exchange:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size host_exchange,.-host_exchange
)");

void exchange(Context& from, const Context& to) { host_exchange(&from.top, to.top); }

void prepare(Context& context, char* stack, std::size_t bytes, void (*begin)()) {
    auto** top = reinterpret_cast<void**>(stack + bytes);
    *--top = nullptr;  // return address of `begin`
    *--top = reinterpret_cast<void*>(begin);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    context.top = top;
}

#else

void exchange(Context& from, const Context& to) { swapcontext(&from.context, &to.context); }

void prepare(Context& context, char* stack, std::size_t bytes, void (*begin)()) {
    getcontext(&context.context);
    context.context.uc_stack.ss_sp = stack;
    context.context.uc_stack.ss_size = bytes;
    makecontext(&context.context, begin, 0);
}

#endif
