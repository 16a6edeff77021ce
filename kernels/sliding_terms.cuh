// What elements are as terms of a sum: the sums of a tile's threads are of type Part, those of windows of type Whole.
#pragma once

#include "sliding_row.cuh"

// Least and largest place of the finite elements but zeros, and whether all are finite.
template <typename T, typename ForEach>
__device__ bool places(const ForEach& for_each, i64 count, int& least, int& largest) {
    __shared__ int found[2];
    if (threadIdx.x == 0) found[0] = Float<T>::PLACES, found[1] = 0;
    int low = Float<T>::PLACES, high = 0;
    bool finite = true;
    for_each(count, [&](T x) {
        finite = finite && is_finite(x);
        if (size_of(x) && is_finite(x)) low = min(low, place_of(x)), high = max(high, place_of(x));
    });
    __syncthreads();
#pragma unroll
    for (int k = 16; k > 0; k /= 2) {
        low = min(low, __shfl_xor_sync(~0u, low, k));
        high = max(high, __shfl_xor_sync(~0u, high, k));
    }
    if (threadIdx.x % 32 == 0) atomicMin(&found[0], low), atomicMax(&found[1], high);
    finite = __syncthreads_and(finite);
    least = found[0], largest = found[1];
    __syncthreads();
    return finite;
}

// Integers of up to 16 bits: what comes into a tile and goes out of it adds up to less than 2^31.
template <typename T, int SIZE = sizeof(T), bool FLOAT = Float<T>::IS> struct Terms {
    static constexpr bool ADAPTS = false;
    using Part = int;
    using Whole = u64;
    template <typename ForEach> __device__ bool open(const ForEach&, i64, int, int) const { return true; }
    __device__ bool fits(T) const { return true; }
    __device__ Part term(T x) const { return x; }
    __device__ bool holds(Whole) const { return true; }
    __device__ i64 result(Whole sum) const { return i64(sum); }
};
template <typename T> struct Terms<T, 4, false> {
    static constexpr bool ADAPTS = false;
    using Part = u64;
    using Whole = u64;
    template <typename ForEach> __device__ bool open(const ForEach&, i64, int, int) const { return true; }
    __device__ bool fits(T) const { return true; }
    __device__ Part term(T x) const { return u64(i64(x)); }
    __device__ bool holds(Whole) const { return true; }
    __device__ i64 result(Whole sum) const { return i64(sum); }
};
template <typename T> struct Terms<T, 8, false> {
    static constexpr bool ADAPTS = false;
    using Part = Wide;
    using Whole = Wide;
    template <typename ForEach> __device__ bool open(const ForEach&, i64, int, int) const { return true; }
    __device__ bool fits(T) const { return true; }
    __device__ Part term(T x) const { return Element<Wide, T>::of(x, 0); }
    __device__ bool holds(Whole sum) const { return sum.high == (T(-1) < T(0) && i64(sum.low) < 0 ? ~u64(0) : 0); }
    __device__ T result(Whole sum) const { return T(sum.low); }
};

// Floats in units of the last bit of the smallest one, or how many of them are not finite.
template <typename S, typename T> struct FixedTerms {
    static constexpr bool ADAPTS = false;
    using Part = S;
    using Whole = S;
    int base;
    template <typename ForEach> __device__ bool open(const ForEach&, i64, int, int) const { return true; }
    __device__ bool fits(T) const { return true; }
    __device__ Part term(T x) const { return Element<S, T>::of(x, base); }
    __device__ bool holds(Whole) const { return true; }
    __device__ double result(Whole sum) const { return Result<T>::of(sum, base); }
};

// Two float64 numbers, each a multiple of a power of two so large that sums of them are exact.
struct Cuts {
    double high, low;
};
inline __device__ Cuts operator+(Cuts a, Cuts b) { return {a.high + b.high, a.low + b.low}; }
inline __device__ Cuts operator-(Cuts a, Cuts b) { return {a.high - b.high, a.low - b.low}; }
inline __device__ Cuts lane_before(Cuts value, int lanes) {
    return {__shfl_up_sync(~0u, value.high, lanes), __shfl_up_sync(~0u, value.low, lanes)};
}
inline __device__ Cuts lane_across(Cuts value, int lanes) {
    return {__shfl_xor_sync(~0u, value.high, lanes), __shfl_xor_sync(~0u, value.low, lanes)};
}

// Floats cut at a grid 2^g into a multiple of it and what is left. Every sum on the way is one of at most 2^b elements:
// a window, or what comes into a tile and goes out of it, the difference of two windows. With elements below 2^k and
// g = k + b - 53 it is a float64 number. What is left is at most 2^(g - 1): its sums are float64 numbers if no element
// has a bit below 2^(g - 1 + b - 53). The sum of both is then rounded for the first time.
template <typename T, int SIZE> struct Terms<T, SIZE, true> {
    static constexpr bool ADAPTS = true;
    static constexpr int SPARE = 1;  // so much larger may elements become before the grid is chosen anew
    using Part = Cuts;
    using Whole = Cuts;
    double magic;      // adding it rounds to the grid
    u32 least, range;  // keys of the elements that fit

    // Chooses a grid for the windows of a tile; false if there is none.
    template <typename ForEach> __device__ bool open(const ForEach& for_each, i64 radius, int count, int tile) {
        int low, high;
        const bool finite = places<T>(for_each, 2 * radius + count, low, high);
        const i64 width = 2 * radius + 1, most = max(width, min(2 * width, i64(2 * tile)));
        const int bits = max(64 - __clzll(most - 1), 2);  // 2: `magic` has to be larger than any element
        if (!high) low = high = 1;  // only zeros: any grid
        const int above = min(high + SPARE, Float<T>::PLACES);
        const int grid = max(above + Float<T>::BIAS + Float<T>::BITS + bits - 53, -1074);
        const int below = max(grid + bits - 54 - Float<T>::BIAS, 1);
        magic = 1.5 * power_of_two(min(grid + 52, 1023));
        least = below > 1 ? u32(below) << Float<T>::KEY_BITS : 0;
        range = (u32(above + 1) << Float<T>::KEY_BITS) - 1 - least;
        return finite && grid <= 970 && low >= below;
    }
    __device__ bool fits(T x) const { return Float<T>::key(x) - least <= range | Float<T>::is_zero(x); }
    __device__ Part term(T x) const {
        const double all = Float<T>::to_double(x), high = all + magic - magic;
        return {high, all - high};
    }
    __device__ bool holds(Whole) const { return true; }
    __device__ double result(Whole sum) const { return sum.high + sum.low; }
};
