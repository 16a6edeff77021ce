// The interface between kernels compiled for the host (cuda.h), the runtime, and device.py.
#pragma once

using i64_ = long long;
struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

enum HostWarp { HOST_SYNC, HOST_BALLOT, HOST_SHUFFLE };
enum HostParameterKind { HOST_UNSIGNED, HOST_SIGNED, HOST_FLOATING, HOST_BOOL, HOST_POINTER, HOST_CONST_POINTER };

struct HostParameter {
    unsigned kind;   // HostParameterKind
    unsigned bytes;  // size of the value, or of what a pointer points to
};
struct HostKernel {
    const char* name;  // instance, as the wrapper requests it
    void (*invoke)(void** arguments);
    const HostParameter* parameters;
    unsigned count;
};

extern "C" {
__attribute__((const)) uint3 host_thread_index();
__attribute__((const)) uint3 host_block_index();
__attribute__((const)) uint3 host_block_size();
__attribute__((const)) uint3 host_grid_size();
__attribute__((const)) int host_lane();
__attribute__((const)) int host_mutant(int number);  // 1 if this mutant is active
unsigned host_active_lanes();
unsigned host_existing_lanes();
i64_ host_clock();
void host_switch_point();
void host_fence();
void host_barrier(int line);
int host_barrier_vote(int line, int predicate);
void host_warp(HostWarp operation, unsigned mask, void* value, unsigned bytes, int source);
void host_atomic(void* cell, unsigned bytes, void* place);
void host_misaligned(const void* address, unsigned bytes, void* place);
// The block's array for the declaration `key`: the first thread of a block to get here creates it.
void* host_shared(const void* key, const char* name, unsigned bytes, unsigned element);
void* host_dynamic_shared(const char* name, unsigned element);
}

template <typename T> inline __attribute__((always_inline)) T* host_aligned(T* address) {
    if ((unsigned long long)address % alignof(T)) host_misaligned(address, alignof(T), __builtin_return_address(0));
    return address;
}
// Integers wrap as on a GPU; in C++ only unsigned ones do.
inline int host_sum(int a, int b) { return int(unsigned(a) + unsigned(b)); }
inline long long host_sum(long long a, long long b) { return (long long)((unsigned long long)a + (unsigned long long)b); }
template <typename T> T host_sum(T a, T b) { return a + b; }

// --- a kernel's parameters, from its type -----------------------------------------------------------------------------

template <typename T> struct HostKind {
    // Converting 2 and 0.5 to the type distinguishes the kinds.
    static constexpr bool BOOL = T(2) == T(1), FLOATING = !BOOL && T(0.5) != T(0), SIGNED = T(-1) < T(0);
    static constexpr HostParameterKind KIND = BOOL ? HOST_BOOL : FLOATING ? HOST_FLOATING : SIGNED ? HOST_SIGNED
                                                                                              : HOST_UNSIGNED;
    static constexpr HostParameter value{KIND, sizeof(T)};
};
template <typename T> struct HostKind<T*> {
    static constexpr HostParameter value{HOST_POINTER, sizeof(T)};
};
template <typename T> struct HostKind<const T*> {
    static constexpr HostParameter value{HOST_CONST_POINTER, sizeof(T)};
};

template <auto KERNEL, typename Type> struct HostCall;
template <auto KERNEL, typename... Arguments> struct HostCall<KERNEL, void (*)(Arguments...)> {
    static constexpr HostParameter PARAMETERS[] = {HostKind<Arguments>::value...};
    template <int... I> struct Indices {
        // Not instrumented: the arguments belong to the emulator.
        __attribute__((no_sanitize("thread"))) static void invoke(void** arguments) { KERNEL(*static_cast<Arguments*>(arguments[I])...); }
    };
    static constexpr HostKernel described(const char* name) {
        return {name, Indices<__integer_pack(sizeof...(Arguments))...>::invoke, PARAMETERS, sizeof...(Arguments)};
    }
};
template <auto KERNEL> constexpr HostKernel host_kernel(const char* name) {
    return HostCall<KERNEL, decltype(KERNEL)>::described(name);
}
