// CUDA builtins for the host's compiler: what a `.cu` file of kernels/ needs to run on a CPU (runtime.h).
//
// Add a builtin that a kernel needs here, written as plainly as possible. What no CPU has (tensor cores, asynchronous
// copies) sits behind a named device function in the kernel's source, which falls back to plain arithmetic if
// `__CUDA_ARCH__` is not defined.
#pragma once

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)
#define __maxnreg__(...)

// Constant within a thread, even if other threads run in between: the compiler may cache them.
#define threadIdx host_thread_index()
#define blockIdx host_block_index()
#define blockDim host_block_size()
#define gridDim host_grid_size()
constexpr int warpSize = 32;

#define __syncthreads() host_barrier(__LINE__)
#define __syncthreads_or(predicate) (host_barrier_vote(__LINE__, (predicate) != 0) > 0)
#define __syncthreads_and(predicate) (host_barrier_vote(__LINE__, (predicate) == 0) == 0)
#define __syncthreads_count(predicate) host_barrier_vote(__LINE__, (predicate) != 0)
// Fences order the accesses of one thread; only barriers order those of different threads of a block.
inline void __threadfence() { host_fence(); }
inline void __threadfence_block() { host_switch_point(); }
inline i64_ clock64() { return host_clock(); }

// --- vectors and memory -----------------------------------------------------------------------------------------------

#define HOST_VECTORS(name, T, bytes)                                        \
    struct alignas(2 * bytes) name##2 { T x, y; };                          \
    struct alignas(4 * bytes > 16 ? 16 : 4 * bytes) name##4 { T x, y, z, w; }; \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }              \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
HOST_VECTORS(int, int, 4)
HOST_VECTORS(uint, unsigned, 4)
HOST_VECTORS(float, float, 4)
HOST_VECTORS(double, double, 8)
HOST_VECTORS(longlong, long long, 8)
HOST_VECTORS(ulonglong, unsigned long long, 8)

// The cache hint is dropped, the alignment is not: a GPU faults if an address is not a multiple of the size.
template <typename T> T __ldcs(const T* from) { return *host_aligned(from); }
template <typename T> T __ldcg(const T* from) { return *host_aligned(from); }
template <typename T> T __ldg(const T* from) { return *host_aligned(from); }
template <typename T> void __stcs(T* to, T value) { *host_aligned(to) = value; }
template <typename T> void __stcg(T* to, T value) { *host_aligned(to) = value; }

// --- arithmetic -------------------------------------------------------------------------------------------------------

#define HOST_MIN_MAX(T)                              \
    inline T min(T a, T b) { return b < a ? b : a; } \
    inline T max(T a, T b) { return a < b ? b : a; }
HOST_MIN_MAX(int)
HOST_MIN_MAX(unsigned)
HOST_MIN_MAX(long long)
HOST_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return __builtin_fminf(a, b); }  // of a NaN and a number, returns the number
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }
inline float fabsf(float a) { return __builtin_fabsf(a); }
inline double fabs(double a) { return __builtin_fabs(a); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

template <typename To, typename From> To host_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    return __builtin_bit_cast(To, value);
}
inline int __float_as_int(float x) { return host_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return host_bits<unsigned>(x); }
inline float __int_as_float(int x) { return host_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return host_bits<float>(x); }
inline long long __double_as_longlong(double x) { return host_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return host_bits<double>(x); }
// To nearest, ties to even; values out of range convert as on a GPU.
template <typename To, typename From> To host_nearest(From x, To least, To most, To of_nan) {
    const From rounded = __builtin_rint(x);
    if (!(x == x)) return of_nan;
    return rounded < From(least) ? least : rounded >= -From(least) ? most : To(rounded);
}
inline int __float2int_rn(float x) { return host_nearest<int, float>(x, -2147483647 - 1, 2147483647, 0); }
inline long long __double2ll_rn(double x) {
    constexpr long long MOST = 0x7fffffffffffffff;
    return host_nearest<long long, double>(x, -MOST - 1, MOST, -MOST - 1);
}
// Selects four of eight bytes.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned bytes = 0;
    for (int i = 0; i < 4; ++i, selector >>= 4) {
        bytes |= unsigned((((unsigned long long)b << 32 | a) >> 8 * (selector & 7)) & 0xff) << 8 * i;
    }
    return bytes;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
// Sums rounded down: the exact sum, or the next number below it.
inline float host_below(float x) { return __builtin_nextafterf(x, -__builtin_inff()); }
inline double host_below(double x) { return __builtin_nextafter(x, -__builtin_inf()); }
template <typename T> T host_add_down(T a, T b) {
    const T sum = a + b;
    const T back = sum - a, lost = (a - (sum - back)) + (b - back);  // the exact rounding error
    return lost < 0 ? host_below(sum) : sum;
}
inline float __fadd_rd(float a, float b) { return host_add_down(a, b); }
inline double __dadd_rd(double a, double b) { return host_add_down(a, b); }
inline float __double2float_rd(double x) { return double(float(x)) > x ? host_below(float(x)) : float(x); }
// The product is exact in double. Rounding down twice is rounding down once.
inline float __fmaf_rd(float a, float b, float c) { return __double2float_rd(host_add_down(double(a) * b, double(c))); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(((unsigned long long)a * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }

// Numbers that share a word, from the lowest bits up.
template <typename T> T host_part(unsigned word, int i) { return T(word >> 8 * sizeof(T) * i); }
template <typename A, typename B, typename Sum> Sum host_dot(Sum a, Sum b, Sum sum) {
    for (int i = 0; i < int(4 / sizeof(A)); ++i) sum += Sum(host_part<A>(unsigned(a), i)) * host_part<B>(unsigned(b), i);
    return sum;
}
inline int __dp4a(int a, int b, int sum) { return host_dot<signed char, signed char>(a, b, sum); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) { return host_dot<unsigned char, unsigned char>(a, b, sum); }
inline int __dp2a_lo(int a, int b, int sum) { return host_dot<short, signed char>(a, b, sum); }
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned sum) {
    return host_dot<unsigned short, unsigned char>(a, b, sum);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned sum) { return __dp2a_lo(a, b >> 16, sum); }
#define HOST_PAIRS(name, T, choose)                                                                     \
    inline unsigned name(unsigned a, unsigned b) {                                                      \
        unsigned pairs = 0;                                                                             \
        for (int i = 0; i < 2; ++i) {                                                                   \
            const int chosen = choose(int(host_part<T>(a, i)), int(host_part<T>(b, i)));                \
            pairs |= unsigned((unsigned short)chosen) << 16 * i;                                        \
        }                                                                                               \
        return pairs;                                                                                   \
    }
HOST_PAIRS(__vmins2, short, min)
HOST_PAIRS(__vmaxs2, short, max)
HOST_PAIRS(__vminu2, unsigned short, min)
HOST_PAIRS(__vmaxu2, unsigned short, max)

// --- warps: lanes exchange values and wait for each other, but only __syncwarp orders memory
// --------------------------

inline void __syncwarp(unsigned mask = ~0u) { host_warp(HOST_SYNC, mask, nullptr, 0, 0); }
inline unsigned __activemask() { return host_active_lanes(); }
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned votes = predicate != 0;
    host_warp(HOST_BALLOT, mask, &votes, sizeof votes, 0);
    return votes;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

template <typename T> T host_shuffle(unsigned mask, T value, int source) {
    host_warp(HOST_SHUFFLE, mask, &value, sizeof value, source);
    return value;
}
// A lane reads within its group of `width`; beyond the ends of the group it keeps its own value.
template <typename T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    return host_shuffle(mask, value, (host_lane() & -width) + (lane & (width - 1)));
}
template <typename T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = host_lane(), source = lane - int(delta);
    return host_shuffle(mask, value, source < (lane & -width) ? lane : source);
}
template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = host_lane(), source = lane + int(delta);
    return host_shuffle(mask, value, source >= (lane & -width) + width ? lane : source);
}
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
    const int lane = host_lane(), source = lane ^ lanes;
    return host_shuffle(mask, value, source >= (lane & -width) + width ? lane : source);
}
template <typename T, typename Combine> T host_reduce(unsigned mask, T value, Combine combine) {
    T total = value;
    for (int lane = 0, first = 1; lane < 32; ++lane) {
        const T other = __shfl_sync(mask, value, lane);
        if (mask & host_existing_lanes() & 1u << lane) total = first ? other : combine(total, other), first = 0;
    }
    return total;
}
#define HOST_REDUCE(name, T, expression) \
    inline T name(unsigned mask, T value) { return host_reduce(mask, value, [](T a, T b) { return T(expression); }); }
HOST_REDUCE(__reduce_add_sync, unsigned, a + b)
HOST_REDUCE(__reduce_max_sync, unsigned, a < b ? b : a)
HOST_REDUCE(__reduce_min_sync, unsigned, b < a ? b : a)
HOST_REDUCE(__reduce_or_sync, unsigned, a | b)

// --- atomic operations ------------------------------------------------------------------------------------------------

// Never inlined and not instrumented: host_atomic has already reported the accesses in here, as one.
template <typename T, typename Operation>
__attribute__((noinline, no_sanitize("thread"))) T host_update(T* cell, Operation operation) {
    host_atomic(cell, sizeof(T), __builtin_return_address(0));
    const T old = *cell;
    *cell = operation(old);
    return old;
}
// The mutant of an atomic operation: other threads may run between its load and its store.
template <typename T, typename Operation> T host_plain_update(T* cell, Operation operation) {
    const T old = *const_cast<volatile T*>(cell);
    *const_cast<volatile T*>(cell) = operation(old);
    return old;
}
template <typename T> struct HostValue { using type = T; };  // only the cell determines the type of an operation
#define HOST_ATOMIC(name, expression)                                                                            \
    template <typename T> T name(T* cell, typename HostValue<T>::type value) {                                   \
        return host_update(cell, [value](T old) -> T { return expression; });                                    \
    }                                                                                                            \
    template <typename T> T host_plain_##name(T* cell, typename HostValue<T>::type value) {                      \
        return host_plain_update(cell, [value](T old) -> T { return expression; });                              \
    }                                                                                                            \
    template <typename T> T host_either_##name(int mutant, T* cell, typename HostValue<T>::type value) {         \
        return host_mutant(mutant) ? host_plain_##name(cell, value) : name(cell, value);                         \
    }
HOST_ATOMIC(atomicAdd, host_sum(old, value))
HOST_ATOMIC(atomicSub, host_sum(old, T(0) - value))
HOST_ATOMIC(atomicMax, old < value ? value : old)
HOST_ATOMIC(atomicMin, value < old ? value : old)
HOST_ATOMIC(atomicAnd, old & value)
HOST_ATOMIC(atomicOr, old | value)
HOST_ATOMIC(atomicXor, old ^ value)
HOST_ATOMIC(atomicExch, value)
template <typename T> T atomicCAS(T* cell, typename HostValue<T>::type expected, typename HostValue<T>::type value) {
    return host_update(cell, [=](T old) { return old == expected ? value : old; });
}
template <typename T>
T host_plain_atomicCAS(T* cell, typename HostValue<T>::type expected, typename HostValue<T>::type value) {
    return host_plain_update(cell, [=](T old) { return old == expected ? value : old; });
}
template <typename T>
T host_either_atomicCAS(int mutant, T* cell, typename HostValue<T>::type expected, typename HostValue<T>::type value) {
    return host_mutant(mutant) ? host_plain_atomicCAS(cell, expected, value) : atomicCAS(cell, expected, value);
}
