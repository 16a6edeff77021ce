// Where a sample falls: the counter among exact thresholds (binning.py), by shift, linear map or lookup table.
//
// Each finds the counter of every sample without a branch, except for a crowded cell of a lookup table. slot(counter):
// where its samples belong. NEXT: the faster choice, as measured.
#pragma once

#include "histogram/guess.cuh"

// Integers that are clamped first: those below the first threshold to the sample before it, those beyond the last edge
// to one that counts two after the last bin. The upper edge alone comes one after the last bin, which includes it: the
// counter after `bins`.
template <typename K>
struct Clamped {
    K low, last, beyond;
    u32 bins, skipped;  // `skipped`: slots before the first counter

    static constexpr Next NEXT = AHEAD;
    __device__ K clamp(K x) const { return x > last ? beyond : max(x, low); }
    __device__ u32 slot(u32 counter) const { return counter + skipped - (counter + skipped > bins); }
};

// UNIT: bins one value wide. Counters begin with `low`. `beyond` is the first sample beyond the last bin.
template <typename K, bool UNIT>
struct Shift : Clamped<K> {
    K base;  // what would be the first sample of the bin before the first
    int shift;

    __device__ u32 operator()(K x) const {
        if (UNIT) {  // the difference first: with the minimum it is one instruction
            const auto far = distance(max(x, this->low), this->low);
            const u32 most = u32(distance(this->beyond, this->low));
            return far < most ? u32(far) : most;
        }
        return u32(distance(this->clamp(x), base) >> shift);
    }
};

// Fixed point, in units of 2^-(32 + fraction).
template <typename K>
struct Linear : Clamped<K> {
    u32 scale;
    u64 offset;
    int fraction;

    __device__ u32 operator()(K x) const {
        return u32((u64(distance(this->clamp(x), this->low)) * scale + offset) >> 32) >> fraction;
    }
};

// Any edges. An entry of a cell has the number of thresholds before the cell; CROWDED if there are two or more in it, and
// then MANY if there are more, or if it takes NaN, too. The first cell takes all samples before the map, the last but one
// all samples beyond it and NaN; the last is none, and says where that ends.
template <typename K, typename Map, typename Entry, int STRIDE>
struct Cells {
    static constexpr Entry CROWDED = Entry(1) << (8 * sizeof(Entry) - 1), MANY = CROWDED / 2;
    Guess<typename Map::type> guess;
    const Entry* entries;  // in shared memory
    int cells;
    const K* steps;  // the last sample before each threshold, each so many items after the one before

    __device__ int operator()(K x) const {
        const int cell = min(max(guess(Map::of(x)), ORIGIN - 1), ORIGIN - 3 + cells) - (ORIGIN - 1);
        const Entry entry = entries[cell];
        const int before = int(entry % MANY);
        if (entry < CROWDED) return before;
        if (entry & MANY) return searched(x, before, int(entries[cell + 1] % MANY));
        return before + (x > steps[before * STRIDE]);
    }

private:
    // `low` plus the number of thresholds in [low, high) that the sample passes, or one less.
    __device__ int searched(K x, int low, int high) const {
        if (x != x) return high;
        while (high - low > 1) {
            const int middle = (low + high - 1) >> 1;
            if (x <= steps[middle * STRIDE]) high = middle;
            else low = middle + 1;
        }
        return low;
    }
};

// A sample below `low` counts as `low`, one above `last` as `beyond`, which maps past the last bin although that
// includes its upper edge.
struct Narrow {
    int low, last, beyond;
    u32 scale, offset;
    int fraction;
    const u32* slot_of;

    static constexpr Next NEXT = AHEAD;
    __device__ u32 operator()(int x) const { return (u32(x > last ? beyond : max(x, low)) * scale + offset) >> fraction; }
    __device__ u32 slot(u32 counter) const { return slot_of[counter]; }
};

struct Value {
    const u32* slot_of;

    static constexpr Next NEXT = AHEAD;
    __device__ u32 operator()(u8 x) const { return x; }
    __device__ u32 slot(u32 counter) const { return slot_of[counter]; }
};

// The same for samples instead of their keys.
template <typename T, typename Locate>
struct OfKeys {
    Locate locate;

    static constexpr Next NEXT = Locate::NEXT;
    __device__ u32 operator()(T x) const { return locate(Key<T>::of(x)); }
    __device__ u32 slot(u32 counter) const { return locate.slot(counter); }
};
template <typename T, typename Locate>
__device__ OfKeys<T, Locate> of_keys(const Locate& locate) {
    return {locate};
}
