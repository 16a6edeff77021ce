// Where a sample falls: the slot of a value among exact thresholds (kernels/binning.py), by shift, guess or search.
#pragma once

#include "stream.cuh"

struct float16 {
    u16 bits;
};

// The type that samples are compared in: their own, but 16-bit ones widen, exactly.
template <typename T>
struct Key {
    using type = T;
    static __device__ T of(T x) { return x; }
};
template <>
struct Key<short> {
    using type = int;
    static __device__ int of(short x) { return x; }
};
template <>
struct Key<u16> {
    using type = int;
    static __device__ int of(u16 x) { return x; }
};
template <>
struct Key<float16> {
    using type = float;
    static __device__ float of(float16 x) {
        const u32 magnitude = (x.bits & 0x7fffu) << 13;
        // Moving the exponent by a multiplication keeps subnormals exact; 2^112 is the difference of the biases.
        float value = __uint_as_float(magnitude) * 5.192296858534828e33f;
        if (magnitude >= 0x0f800000u) value = __uint_as_float(magnitude | 0x7f800000u);  // infinity and NaN
        return (x.bits & 0x8000u) ? -value : value;
    }
};

template <typename K>
struct Unsigned {
    using type = u32;
};
template <>
struct Unsigned<i64> {
    using type = u64;
};
template <>
struct Unsigned<u64> {
    using type = u64;
};

// The type that a guess is computed in: its error stays below one bin for up to 2^20 bins, corrections do the rest.
template <typename K>
struct Guess {
    using type = float;
};
template <>
struct Guess<double> {
    using type = double;
};
template <>
struct Guess<i64> {
    using type = double;
};
template <>
struct Guess<u64> {
    using type = double;
};

template <typename K>
__device__ typename Unsigned<K>::type distance(K x, K first) {
    using U = typename Unsigned<K>::type;
    return U(x) - U(first);
}
inline __device__ float distance(float x, float first) { return x - first; }
inline __device__ double distance(double x, double first) { return x - first; }

template <typename K>
struct Shift {
    K start;                            // smallest sample of the first bin
    typename Unsigned<K>::type reach;   // distance of the last sample that the shift places
    int shift;
    K end;                              // smallest sample of the overflow, where has_end
    bool has_end;
    u32 bins;

    __device__ u32 operator()(K x) const {
        const auto offset = distance(x, start);
        if (offset <= reach) return u32(offset >> shift) + 1;
        if (x < start) return 0;
        return has_end && x >= end ? bins + 1 : bins;  // the last edge is closed: what lies on it is in the last bin
    }
};

// The guess never decreases with x, so its extremes on a bin are those at the first and last sample of the bin. The host
// evaluates them in the same arithmetic: guesses of bin i lie in [i - below, i + 1 + above]; either may be negative, and
// what lies above the last bin is cut off. A guess that no neighbour's interval reaches is therefore right, and the
// thresholds are read for the few others only.
template <typename K>
struct Regular {
    using G = typename Guess<K>::type;
    const K* thresholds;
    int count;        // thresholds, at least one
    K start, end;     // smallest sample of the first bin; smallest of the overflow, where has_end
    bool has_end;
    G scale, offset, below, above;
    u32 bins;

    __device__ u32 operator()(K x) const {
        if (x != x) return bins + 2;
        if (x < start) return 0;
        if (has_end && x >= end) return bins + 1;
        const G guess = G(distance(x, start)) * scale + offset;
        const int top = min(count, int(bins)) - 1;  // the last bin that a sample can reach
        int i = guess < G(top + 1) ? int(guess) : top;
        const G inside = guess - G(i);
        if (!(inside >= G(0) && inside > above && G(1) - inside > below)) {
            while (i > 0 && x < thresholds[i]) --i;
            while (i < top && x >= thresholds[i + 1]) ++i;
        }
        return u32(i) + 1;
    }
};

template <typename K>
struct Search {
    const K* thresholds;
    int count;
    u32 bins, first, last;

    // A slot outside the window is not searched for: any other outside of it will do.
    __device__ u32 operator()(K x) const {
        if (x != x) return bins + 2;
        int low = min(count, int(first)), high = min(count, int(last));
        if (low > 0 && x < thresholds[low - 1]) return 0;
        if (high < count && x >= thresholds[high]) return bins + 1;
        while (low < high) {
            const int middle = (low + high) >> 1;
            if (x >= thresholds[middle]) low = middle + 1;
            else high = middle;
        }
        return u32(low);
    }
};

struct Value {
    __device__ u32 operator()(u8 x) const { return x; }
};
