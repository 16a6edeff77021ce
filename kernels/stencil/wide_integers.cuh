// Window sums as integers; sums of floats count units of the last bit of the smallest one. Intermediate sums may wrap,
// as long as the sum of a window fits.
#pragma once

#include "common/stream.cuh"

// 128 bits in two's complement.
struct Wide {
    u64 low, high;
};
inline __device__ Wide operator+(Wide a, Wide b) {
    const u64 low = a.low + b.low;
    return {low, a.high + b.high + (low < a.low)};
}
inline __device__ Wide operator-(Wide a, Wide b) { return {a.low - b.low, a.high - b.high - (a.low < b.low)}; }

// 96 bits in two's complement: enough for sums of fewer than 2^32 integers of 64 bits.
struct Long {
    u64 low;
    u32 high;
};
inline __device__ Long operator+(Long a, Long b) {
#if ON_GPU  // the carry flag passes from one instruction to the next, without a comparison
    asm("add.cc.u64 %0, %0, %2; addc.u32 %1, %1, %3;" : "+l"(a.low), "+r"(a.high) : "l"(b.low), "r"(b.high));
    return a;
#else
    const u64 low = a.low + b.low;
    return {low, a.high + b.high + (low < a.low)};
#endif
}
inline __device__ Long operator-(Long a, Long b) {
#if ON_GPU
    asm("sub.cc.u64 %0, %0, %2; subc.u32 %1, %1, %3;" : "+l"(a.low), "+r"(a.high) : "l"(b.low), "r"(b.high));
    return a;
#else
    return {a.low - b.low, a.high - b.high - (a.low < b.low)};
#endif
}

constexpr i64 NAN_BITS = 0x7ff8000000000000, INFINITY_BITS = 0x7ff0000000000000;

// Sum of a window that has NaN or infinities.
inline __device__ double not_finite(bool nan, bool above, bool below) {
    if (nan || (above && below)) return __longlong_as_double(NAN_BITS);
    return above ? __longlong_as_double(INFINITY_BITS) : -__longlong_as_double(INFINITY_BITS);
}

constexpr int COUNT_BITS = 21;

// How many elements of a window are NaN, infinity and negative infinity: three counts in one word.
struct Marks {
    static constexpr int BITS = COUNT_BITS;
    u64 counts;
    static __device__ Marks of(bool nan, bool negative) { return {u64(1) << (nan ? 0 : negative ? 2 * BITS : BITS)}; }
    __device__ bool has(int kind) const { return counts >> kind * BITS & ((1 << BITS) - 1); }
    __device__ bool any() const { return counts != 0; }
    __device__ double value() const { return not_finite(has(0), has(1), has(2)); }
};
inline __device__ Marks operator+(Marks a, Marks b) { return {a.counts + b.counts}; }
inline __device__ Marks operator-(Marks a, Marks b) { return {a.counts - b.counts}; }

// The same for windows of any size: NaN; infinities, and above them negative infinities.
struct Tally {
    u64 nans, infinities;
    static __device__ Tally of(bool nan, bool negative) { return {nan, nan ? 0 : u64(1) << (negative ? 32 : 0)}; }
    __device__ bool any() const { return nans || infinities; }
    __device__ double value() const { return not_finite(nans, u32(infinities), infinities >> 32); }
};
inline __device__ Tally operator+(Tally a, Tally b) { return {a.nans + b.nans, a.infinities + b.infinities}; }
inline __device__ Tally operator-(Tally a, Tally b) { return {a.nans - b.nans, a.infinities - b.infinities}; }

inline __device__ u64 lane_before(u64 value, int lanes) { return __shfl_up_sync(~0u, value, lanes); }
inline __device__ Wide lane_before(Wide value, int lanes) {
    return {lane_before(value.low, lanes), lane_before(value.high, lanes)};
}
inline __device__ Long lane_before(Long value, int lanes) {
    return {lane_before(value.low, lanes), __shfl_up_sync(~0u, value.high, lanes)};
}
inline __device__ Marks lane_before(Marks value, int lanes) { return {lane_before(value.counts, lanes)}; }
inline __device__ int lane_before(int value, int lanes) { return __shfl_up_sync(~0u, value, lanes); }
inline __device__ int lane_across(int value, int lanes) { return __shfl_xor_sync(~0u, value, lanes); }
inline __device__ u64 lane_across(u64 value, int lanes) { return __shfl_xor_sync(~0u, value, lanes); }
inline __device__ Wide lane_across(Wide value, int lanes) {
    return {lane_across(value.low, lanes), lane_across(value.high, lanes)};
}
inline __device__ Long lane_across(Long value, int lanes) {
    return {lane_across(value.low, lanes), __shfl_xor_sync(~0u, value.high, lanes)};
}
inline __device__ Marks lane_across(Marks value, int lanes) { return {lane_across(value.counts, lanes)}; }
inline __device__ Tally lane_before(Tally value, int lanes) {
    return {lane_before(value.nans, lanes), lane_before(value.infinities, lanes)};
}
inline __device__ Tally lane_across(Tally value, int lanes) {
    return {lane_across(value.nans, lanes), lane_across(value.infinities, lanes)};
}

// Adds the sum of the lane that many places before this one, if there is one.
#if ON_GPU  // the shuffle's predicate says whether there is one: no comparison, and the sums stay in place
inline __device__ void add_lane_before(u64& sum, int lanes) {
    asm volatile("{.reg .b32 low, high; .reg .u64 other; .reg .pred is; mov.b64 {low, high}, %0;"
                 "shfl.sync.up.b32 low, low, %1, 0, -1; shfl.sync.up.b32 high|is, high, %1, 0, -1;"
                 "mov.b64 other, {low, high}; @is add.u64 %0, %0, other;}"
                 : "+l"(sum)
                 : "r"(lanes));
}
inline __device__ void add_lane_before(int& sum, int lanes) {
    asm volatile("{.reg .s32 other; .reg .pred is; shfl.sync.up.b32 other|is, %0, %1, 0, -1; @is add.s32 %0, %0, other;}"
                 : "+r"(sum)
                 : "r"(lanes));
}
inline __device__ void add_lane_before(double& sum, int lanes) {
    asm volatile("{.reg .b32 low, high; .reg .f64 other; .reg .pred is; mov.b64 {low, high}, %0;"
                 "shfl.sync.up.b32 low, low, %1, 0, -1; shfl.sync.up.b32 high|is, high, %1, 0, -1;"
                 "mov.b64 other, {low, high}; @is add.f64 %0, %0, other;}"
                 : "+d"(sum)
                 : "r"(lanes));
}
inline __device__ void add_lane_before(Long& sum, int lanes) {
    asm volatile("{.reg .b32 low, high, top; .reg .u64 other; .reg .pred is; mov.b64 {low, high}, %0;"
                 "shfl.sync.up.b32 low, low, %2, 0, -1; shfl.sync.up.b32 high, high, %2, 0, -1;"
                 "shfl.sync.up.b32 top|is, %1, %2, 0, -1; mov.b64 other, {low, high};"
                 "@is add.cc.u64 %0, %0, other; @is addc.u32 %1, %1, top;}"
                 : "+l"(sum.low), "+r"(sum.high)
                 : "r"(lanes));
}
inline __device__ void add_lane_before(Marks& sum, int lanes) { add_lane_before(sum.counts, lanes); }
inline __device__ void add_lane_before(Tally& sum, int lanes) {
    add_lane_before(sum.nans, lanes), add_lane_before(sum.infinities, lanes);
}
#else
template <typename S> __device__ void add_lane_before(S& sum, int lanes) {
    const S other = lane_before(sum, lanes);
    if (int(threadIdx.x) % 32 >= lanes) sum = sum + other;
}
#endif

// The parts of a finite float: its magnitude is size_of(x) * 2^(place_of(x) + BIAS). Its `key` orders magnitudes and
// has 2^KEY_BITS values per place. `scaled` is the number divided by 2^SCALE.
template <typename T> struct Float {
    static constexpr bool IS = false;
};
template <> struct Float<float16> {
    static constexpr bool IS = true;
    static constexpr int BITS = 11, BIAS = -25, PLACES = 30, KEY_BITS = 10;
    static __device__ int exponent(float16 x) { return x.bits >> 10 & 0x1f; }
    static __device__ u64 fraction(float16 x) { return x.bits & 0x3ff; }
    static __device__ bool negative(float16 x) { return x.bits >> 15; }
    static __device__ u32 key(float16 x) { return x.bits & 0x7fff; }
    static __device__ bool is_zero(float16 x) { return !key(x); }
    // Its bits moved to those of a float64, without correcting the bias; this holds for subnormal numbers, too.
    static constexpr int SCALE = 1008;
    static __device__ double scaled(float16 x) {
        const u32 high = u32(x.bits & 0x8000) << 16 | key(x) << 10;
        return __longlong_as_double(i64(u64(high) << 32));
    }
};
template <> struct Float<float> {
    static constexpr bool IS = true;
    static constexpr int BITS = 24, BIAS = -150, PLACES = 254, KEY_BITS = 23;
    static __device__ u32 key(float x) { return __float_as_uint(x) & 0x7fffffff; }
    static __device__ bool is_zero(float x) { return !key(x); }
    static constexpr int SCALE = 0;
    static __device__ double scaled(float x) { return x; }
    static __device__ int exponent(float x) { return (__float_as_int(x) >> 23) & 0xff; }
    static __device__ u64 fraction(float x) { return __float_as_int(x) & 0x7fffff; }
    static __device__ bool negative(float x) { return __float_as_int(x) < 0; }
};
template <> struct Float<double> {
    static constexpr bool IS = true;
    static constexpr int BITS = 53, BIAS = -1075, PLACES = 2046, KEY_BITS = 20;
    static __device__ u32 key(double x) { return u32(u64(__double_as_longlong(x)) >> 32) & 0x7fffffff; }
    static __device__ bool is_zero(double x) { return x == 0; }
    static constexpr int SCALE = 0;
    static __device__ double scaled(double x) { return x; }
    static __device__ int exponent(double x) { return int(__double_as_longlong(x) >> 52) & 0x7ff; }
    static __device__ u64 fraction(double x) { return __double_as_longlong(x) & ((u64(1) << 52) - 1); }
    static __device__ bool negative(double x) { return __double_as_longlong(x) < 0; }
};
template <typename T> __device__ bool is_finite(T x) { return Float<T>::exponent(x) <= Float<T>::PLACES; }
template <typename T> __device__ int place_of(T x) { return max(Float<T>::exponent(x), 1); }
template <typename T> __device__ u64 size_of(T x) {
    return Float<T>::fraction(x) | u64(Float<T>::exponent(x) != 0) << (Float<T>::BITS - 1);
}

template <typename Mark, typename T> __device__ Mark mark_of(T x) {
    if (is_finite(x)) return {};
    return Mark::of(Float<T>::fraction(x), Float<T>::negative(x));
}
template <bool MARKED, typename T> __device__ T finite_part(T x) {
    if constexpr (MARKED) return is_finite(x) ? x : T{};
    return x;
}

inline __device__ double power_of_two(int exponent) {  // from -1074 to 1023
    return __longlong_as_double(exponent < -1022 ? i64(1) << (exponent + 1074) : i64(exponent + 1023) << 52);
}

// (high * 2^64 + low + a remainder below 1, if there is a `rest`) * 2^unit, rounded to nearest, ties to even. It is a
// multiple of 2^-1074, so that subnormal results are not rounded a second time.
inline __device__ double rounded(u64 high, u64 low, bool rest, int unit) {
    if (!high) high = low, low = 0, unit -= 64;
    if (!high) return 0;
    const int zeros = __clzll(i64(high));
    u64 top = zeros ? high << zeros | low >> (64 - zeros) : high;
    if (low << zeros || rest) top |= 1;  // a sticky bit for all that is lost, far below the last bit kept
    int exponent = unit + 64 - zeros;
    if (exponent < -1074) top >>= -1074 - exponent, exponent = -1074;
    return double(top) * power_of_two(exponent);
}
