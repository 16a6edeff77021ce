// Locators made of numbers in memory: the kernels of rows have one signature for all of them, and rows may differ.
//
// facts: what a locator knows, one number each, floats by their bits (row_maps.py). table: what it looks up, in shared
// memory. A counter is found as locate.cuh says; to which slot it belongs, the host knows.
#pragma once

#include "histogram/locate.cuh"

template <typename N>
inline __device__ N fact(i64 bits) { return N(bits); }
template <>
inline __device__ float fact<float>(i64 bits) { return __int_as_float(int(bits)); }
template <>
inline __device__ double fact<double>(i64 bits) { return __longlong_as_double(bits); }

template <typename Locate>
struct From;

template <>
struct From<Value> : Value {
    __device__ From(const i64*, const u64*) : Value{nullptr} {}
};

template <>
struct From<Narrow> : Narrow {
    __device__ From(const i64* facts, const u64*)
        : Narrow{int(facts[0]), int(facts[1]), int(facts[2]), u32(facts[3]), u32(facts[4]), int(facts[5]), nullptr} {}
};

template <typename K>
inline __device__ Clamped<K> clamped(const i64* facts) {
    return {K(facts[0]), K(facts[1]), K(facts[2]), 0, 0};
}

template <typename K, bool UNIT>
struct From<Shift<K, UNIT>> : Shift<K, UNIT> {
    __device__ From(const i64* facts, const u64*)
        : Shift<K, UNIT>{clamped<K>(facts), K(facts[3]), int(facts[4])} {}
};

template <typename K>
struct From<Linear<K>> : Linear<K> {
    __device__ From(const i64* facts, const u64*)
        : Linear<K>{clamped<K>(facts), u32(facts[3]), u64(facts[4]), int(facts[5])} {}
};

// Evenly spaced edges: a guess is clamped to a step, and is the counter or the one before it. NaN, whose guess is the
// greatest, passes every threshold. Of each step there are several copies, shared out among the lanes.
template <typename K>
struct Stepped;

template <typename K>
struct From<Stepped<K>> {
    Guess<K> guess;
    int low, high, copies;
    const K* steps;  // the last sample before each threshold, and one that none but NaN is above

    __device__ From(const i64* facts, const u64* table)
        : guess{fact<K>(facts[0]), fact<typename Guess<K>::Real>(facts[1])}, low(ORIGIN + int(facts[2])),
          high(ORIGIN + int(facts[3])), copies(int(facts[4])),
          steps(reinterpret_cast<const K*>(table) + threadIdx.x % copies) {}
    __device__ u32 operator()(K x) const {
        const int at = min(max(guess(x), low), high) - ORIGIN;
        return u32(at + !(x <= steps[at * copies]));
    }
};

// Any edges: the cells of a lookup table lie `facts[3]` words behind the steps.
template <typename K, typename Map, typename Entry>
struct Searched;

template <typename K, typename Map, typename Entry>
struct From<Searched<K, Map, Entry>> {
    using M = typename Map::type;
    Cells<K, Map, Entry, 1> table;

    __device__ From(const i64* facts, const u64* words)
        : table{{fact<M>(facts[0]), fact<typename Guess<M>::Real>(facts[1])},
                reinterpret_cast<const Entry*>(words + facts[3]), int(facts[2]), reinterpret_cast<const K*>(words)} {}
    __device__ u32 operator()(K x) const {
        const int at = table(x);
        return u32(at + !(x <= table.steps[at]));
    }
};
