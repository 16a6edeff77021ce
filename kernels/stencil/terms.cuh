// How elements are represented as terms of a sum: sums over part of a tile are of type Part, window sums of type Whole.
#pragma once

#include "stencil/rows.cuh"

// Least and largest place of the finite nonzero elements, and whether all are finite.
template <typename T, typename ForEach>
__device__ bool places(const ForEach& for_each, i64 count, int& least, int& largest) {
    __shared__ int range[2];
    if (threadIdx.x == 0) range[0] = Float<T>::PLACES, range[1] = 0;
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
    if (threadIdx.x % 32 == 0) atomicMin(&range[0], low), atomicMax(&range[1], high);
    finite = __syncthreads_and(finite);
    least = range[0], largest = range[1];
    __syncthreads();
    return finite;
}

// Integers of up to 16 bits: the elements that enter and leave within a tile add up to less than 2^31.
template <typename T, int SIZE = sizeof(T), bool FLOAT = Float<T>::IS> struct Terms {
    static constexpr bool ADAPTS = false, LAYERED = false;
    using Mark = Marks;
    using Part = int;
    using Whole = u64;
    __device__ Part term(T x) const { return x; }
    __device__ bool holds(Whole) const { return true; }
    __device__ i64 result(Whole sum) const { return i64(sum); }
};
template <typename T> struct Terms<T, 4, false> {
    static constexpr bool ADAPTS = false, LAYERED = false;
    using Mark = Marks;
    using Part = u64;
    using Whole = u64;
    __device__ Part term(T x) const { return u64(i64(x)); }
    __device__ bool holds(Whole) const { return true; }
    __device__ i64 result(Whole sum) const { return i64(sum); }
};
template <typename T> struct Terms<T, 8, false> {
    static constexpr bool ADAPTS = false, LAYERED = false;
    using Mark = Marks;
    using Part = Long;
    using Whole = Long;
    __device__ Part term(T x) const { return {u64(x), x < T(0) ? ~0u : 0}; }
    __device__ bool holds(Whole sum) const { return sum.high == (T(-1) < T(0) && i64(sum.low) < 0 ? ~0u : 0); }
    __device__ T result(Whole sum) const { return T(sum.low); }
};

// Floats that are multiples of a power of two, the grid, and not too large for it. Adding one to the `counter`, a
// float64 number so large that its spacing is the grid, counts grid units in the counter's bits. These bits are summed
// as integers, which may wrap on the way; they contain the counter once per element, which is subtracted in the end.
template <typename T> struct Grid {
    static constexpr bool ADAPTS = true, LAYERED = false;
    using Mark = Marks;
    static constexpr int LEAST = 1 + Float<T>::BIAS;
    static constexpr int MOST = 50;  // bits of an element that can be counted
    u32 least, range;                // keys of the elements that fit: from least to least + range

    __device__ bool fits(T x) const { return Float<T>::key(x) - least <= range | Float<T>::is_zero(x); }
    __device__ bool holds(u64) const { return true; }
    // Lets elements at places `below` to `above` fit.
    __device__ void reach(int below, int above) {
        least = below > 1 ? u32(below) << Float<T>::KEY_BITS : 0;
        range = (u32(above + 1) << Float<T>::KEY_BITS) - 1 - least;
    }
    // Adding this number rounds to the grid.
    static __device__ double counter(int grid) { return 1.5 * power_of_two(grid + 52 - Float<T>::SCALE); }
    // Bits of an element such that a window's sum has at most 62.
    static __device__ int bits(i64 radius) { return min(MOST, __clzll(2 * radius) - 2); }
};

// One grid.
template <typename T> struct OneGrid : Grid<T> {
    using Part = u64;
    using Whole = u64;
    double counter, unit;
    u64 offset;

    // Chooses the grid for elements at places `low` to `high`, leaving headroom for elements up to 2^spare times as
    // large; false if there is none. A sum has `terms` more elements added than subtracted.
    __device__ bool choose(int low, int high, int spare, i64 radius, i64 terms, int) {
        const int bits = this->bits(radius), edge = Float<T>::BIAS + Float<T>::BITS - bits;
        const int grid = max(min(high + spare, Float<T>::PLACES) + edge, this->LEAST);
        this->reach(grid - Float<T>::BIAS, min(grid - edge, Float<T>::PLACES));
        counter = Grid<T>::counter(grid), unit = power_of_two(grid);
        offset = u64(terms) * u64(__double_as_longlong(counter));
        return low >= grid - Float<T>::BIAS;
    }
    __device__ Part term(T x) const { return u64(__double_as_longlong(Float<T>::scaled(x) + counter)); }
    __device__ double result(Whole sum) const { return double(i64(sum - offset)) * unit; }
};

struct Pair {
    u64 high, low;
};
inline __device__ Pair operator+(Pair a, Pair b) { return {a.high + b.high, a.low + b.low}; }
inline __device__ Pair operator-(Pair a, Pair b) { return {a.high - b.high, a.low - b.low}; }
inline __device__ Pair lane_before(Pair value, int lanes) {
    return {lane_before(value.high, lanes), lane_before(value.low, lanes)};
}
inline __device__ Pair lane_across(Pair value, int lanes) {
    return {lane_across(value.high, lanes), lane_across(value.low, lanes)};
}

#if ON_GPU
inline __device__ void add_lane_before(Pair& sum, int lanes) {
    add_lane_before(sum.high, lanes), add_lane_before(sum.low, lanes);
}
#endif

// Two grids: the remainder of an element on the coarse grid is counted on a fine one, 2^split times as fine.
template <typename T> struct TwoGrids : Grid<T> {
    using Part = Pair;
    using Whole = Pair;
    static constexpr int SPLIT = 42;  // with the low 11 bits of the coarse sum it fits into a float64
    double coarse, fine, unit, ratio;
    u64 offset_high, offset_low;
    int split;

    __device__ bool choose(int low, int high, int spare, i64 radius, i64 terms, int) {
        const int bits = this->bits(radius), edge = Float<T>::BIAS + Float<T>::BITS - bits;
        split = min(SPLIT, bits + 1);
        const int wanted = max(min(high + spare, Float<T>::PLACES) + edge - split, this->LEAST);
        const int grid = min(wanted, 971 - split), above = min(grid + split - edge, Float<T>::PLACES);
        this->reach(grid - Float<T>::BIAS, above);
        unit = power_of_two(grid), ratio = power_of_two(split);
        coarse = this->counter(grid + split), fine = this->counter(grid);
        offset_high = u64(terms) * u64(__double_as_longlong(coarse));
        offset_low = u64(terms) * u64(__double_as_longlong(fine));
        return low >= grid - Float<T>::BIAS && high <= above;
    }
    __device__ bool holds(Pair) const { return true; }
    __device__ Part term(T x) const {
        const double all = Float<T>::scaled(x), counted = all + coarse;
        const double rest = all - (counted - coarse) + fine;
        return {u64(__double_as_longlong(counted)), u64(__double_as_longlong(rest))};
    }
    // The only rounding: both terms are exact.
    __device__ double result(Whole sum) const {
        const i64 low = i64(sum.low - offset_low), high = i64(sum.high - offset_high) + (low >> split);
        const i64 last = (high & 2047) << split | (low & ((i64(1) << split) - 1));
        return fma(double(high & ~i64(2047)), ratio, double(last)) * unit;
    }
};

template <typename T> struct Terms<T, 2, true> : OneGrid<T> {};

// Two float64 numbers, each a multiple of a power of two so large that its sums are exact.
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

#if ON_GPU
inline __device__ void add_lane_before(Cuts& sum, int lanes) {
    add_lane_before(sum.high, lanes), add_lane_before(sum.low, lanes);
}
#endif

// Elements cut at a grid 2^g into a multiple of it and a remainder, both summed in float64. Every intermediate sum has
// at most 2^b elements: a window, or the elements that enter and leave within a tile, the difference of two windows.
// With elements below 2^k and g = k + b - 53 the sums of multiples are exact. Remainders are at most 2^(g - 1): their
// sums are exact if no element has a bit below 2^(g - 1 + b - 53). Adding both sums is the only rounding.
template <typename T, int SIZE> struct Terms<T, SIZE, true> : Grid<T> {
    using Part = Cuts;
    using Whole = Cuts;
    double magic;  // adding it rounds to the grid

    __device__ bool choose(int low, int high, int spare, i64 radius, i64, int tile) {
        const i64 width = 2 * radius + 1, most = max(width, min(2 * width, i64(2 * tile)));
        const int bits = max(64 - __clzll(most - 1), 2);  // at least 2: `magic` has to exceed every element
        const int above = min(max(high, 1) + spare, Float<T>::PLACES);
        const int grid = max(above + Float<T>::BIAS + Float<T>::BITS + bits - 53, -1074);
        const int below = max(grid + bits - 54 - Float<T>::BIAS, 1);
        magic = 1.5 * power_of_two(min(grid + 52, 1023));
        this->reach(below, above);
        return grid <= 970 && low >= below;
    }
    __device__ bool holds(Cuts) const { return true; }
    __device__ Part term(T x) const {
        const double all = x, high = all + magic - magic;
        return {high, all - high};
    }
    __device__ double result(Whole sum) const { return sum.high + sum.low; }
};
