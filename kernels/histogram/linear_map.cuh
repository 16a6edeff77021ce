// Linear maps from samples to positions, for evenly spaced bins and for the cells of a lookup table.
//
// The maps are monotonic, however their arithmetic rounds. So what the host finds for the first and the last sample of
// a bin (linear_map.py, in the same arithmetic) holds for all samples in between.
#pragma once

#include "common/stream.cuh"

// The type in which samples are compared: their own, except that 16-bit samples are widened exactly.
template <typename T>
struct Key {
    using type = T;
    static __device__ T of(T x) { return x; }
};
template <>
struct Key<i16> {
    using type = int;
    static __device__ int of(i16 x) { return x; }
};
template <>
struct Key<u16> {
    using type = int;
    static __device__ int of(u16 x) { return x; }
};
template <>
struct Key<float16> {
    using type = float;
    static __device__ float of(float16 x) { return widen(x); }
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

template <typename K>
__device__ typename Unsigned<K>::type distance(K x, K first) {
    using U = typename Unsigned<K>::type;
    return U(x) - U(first);
}

// Parameters of a map. `reach`: for integers the distance of the last sample mapped, for floats its position.
template <typename K, typename R, typename S, typename O>
struct LinearMapOf {
    using Reach = R;
    using Scale = S;
    using Offset = O;
    K start;
    Reach reach;
    Scale scale;
    Offset offset;
};

// 32-bit integers: fixed point.
template <typename K>
struct LinearMap : LinearMapOf<K, u32, u32, u64> {
    __device__ bool at(K x, u32& position) const {
        const u32 far = distance(x, this->start);
        position = u32((u64(far) * this->scale + this->offset) >> 32);
        return far <= this->reach;
    }
};

// `offset` is 2^23 plus an integer. Floats are one apart there, so an addition rounded down leaves the integer part in
// the low bits. Anything outside [0, 2^23), NaN included, comes out beyond `reach`.
template <>
struct LinearMap<float> : LinearMapOf<float, u32, float, float> {
    __device__ bool at(float x, u32& position) const {
        position = __float_as_uint(__fadd_rd((x - start) * scale, offset)) - 0x4b000000u;
        return position <= reach;
    }
};

// The same next to 2^52.
inline __device__ u64 whole_part(double x, double offset) {
    return u64(__double_as_longlong(__dadd_rd(x, offset))) - 0x4330000000000000ull;
}
template <>
struct LinearMap<double> : LinearMapOf<double, u32, double, double> {
    __device__ bool at(double x, u32& position) const {
        const u64 whole = whole_part((x - start) * scale, offset);
        position = u32(whole);
        return whole <= reach;
    }
};

// 64-bit integers: the distance is exact, and the position rounds as for double.
template <typename K>
struct WideLinearMap : LinearMapOf<K, u64, double, double> {
    __device__ bool at(K x, u32& position) const {
        const u64 far = distance(x, this->start);
        position = u32(whole_part(double(far) * this->scale, this->offset));
        return far <= this->reach;
    }
};
template <>
struct LinearMap<i64> : WideLinearMap<i64> {};
template <>
struct LinearMap<u64> : WideLinearMap<u64> {};

// Lookup cells: 0 takes all samples before the map, then there is one per position; `last` takes all beyond, NaN
// included.
template <typename K>
__device__ u32 cell_on(const LinearMap<K>& line, u32 last, K x) {
    u32 position;
    if (line.at(x, position)) return position + 1;
    return x < line.start ? 0 : last;
}
// Clamps the bits of the sum as signed integers: those of numbers below 2^23, negative ones included, are smaller than
// the bits of 2^23; those of larger numbers and of NaN are larger.
inline __device__ u32 cell_on(const LinearMap<float>& line, u32 last, float x) {
    const float sum = __fadd_rd((x - line.start) * line.scale, line.offset);
#if ON_GPU
    const int bits = __float_as_int(sum);  // GPU arithmetic returns every NaN as 0x7fffffff
#else
    const int bits = sum == sum ? __float_as_int(sum) : 0x7fffffff;
#endif
    return u32(min(max(bits, 0x4affffff), 0x4affffff + int(last)) - 0x4affffff);
}

// What a lookup table maps: the sample's value, or a float's rank among all floats, which separates thresholds of
// every magnitude.
template <typename K>
struct ByValue {
    using type = K;
    static __device__ K of(K x) { return x; }
};
template <typename K>
struct ByBits;
template <>
struct ByBits<float> {
    using type = u32;
    static __device__ u32 of(float x) {
        const int bits = __float_as_int(x + 0.0f);  // -0.0 becomes 0.0
        return u32(bits ^ (bits >> 31 | int(0x80000000)));
    }
};
template <>
struct ByBits<double> {
    using type = u64;
    static __device__ u64 of(double x) {
        const i64 bits = __double_as_longlong(x + 0.0);
        return u64(bits ^ (bits >> 63 | i64(0x8000000000000000)));
    }
};
