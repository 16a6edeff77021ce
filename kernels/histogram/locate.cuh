// Where a sample falls: its slot among exact thresholds (binning.py), by shift, linear map or lookup table.
//
// Each has two halves. `quick` finds the slot of nearly every sample without a branch and returns false for the rest,
// which `slow` finds.
//
// FIRST_SLOT: slot of counter 0. MISSES: `quick` may set any counter for a sample that it does not find; otherwise it
// sets the sample's own or, with BEYOND, one past the last. SELDOM_SLOW: on most data `slow` is never called. NEXT: the
// faster choice, as measured.
#pragma once

#include "histogram/linear_map.cuh"

template <typename K>
struct Shift {
    K start;                            // smallest sample of the first bin
    typename Unsigned<K>::type reach;   // distance of the last sample that the shift bins
    int shift;
    K end;                              // smallest overflow sample, if has_end
    bool has_end;
    u32 bins;

    static constexpr u32 FIRST_SLOT = 1;
    static constexpr bool MISSES = false, BEYOND = true, SELDOM_SLOW = true;
    static constexpr Next NEXT = AHEAD;
    __device__ bool quick(K x, u32& counter) const {
        const auto offset = distance(x, start);
        counter = u32(min(offset >> shift, decltype(offset)(0xffffffffu)));
        return offset <= reach;
    }
    __device__ u32 slow(K x) const {
        if (x < start) return 0;
        return has_end && x >= end ? bins + 1 : bins;  // the last bin includes its upper edge
    }
};

// Reads a word or two of shared memory into `value` if `wanted`, without a branch.
template <typename K>
__device__ void load_shared_if(K& value, const K* from, bool wanted) {
#if ON_GPU
    const u32 address = u32(__cvta_generic_to_shared(from));
    if (sizeof(K) == 4) {
        u32 word = reinterpret_cast<const u32&>(value);
        asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p ld.shared.u32 %0, [%1];\n\t}"
            : "+r"(word) : "r"(address), "r"(u32(wanted)));
        value = reinterpret_cast<const K&>(word);
    } else {
        u64 word = reinterpret_cast<const u64&>(value);
        asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p ld.shared.u64 %0, [%1];\n\t}"
            : "+l"(word) : "r"(address), "r"(u32(wanted)));
        value = reinterpret_cast<const K&>(word);
    }
#else
    if (wanted) value = *from;
#endif
}

// The thresholds, ascending, and copies of the first and the last.
template <typename K>
struct Thresholds {
    const K* values;
    int count;
    K lowest, highest;
    u32 bins;

    // `low` plus the number of thresholds in [low, high) that are not above the sample.
    __device__ u32 between(int low, int high, K x) const {
        while (low < high) {
            const int middle = (low + high) >> 1;
            if (x >= values[middle]) low = middle + 1;
            else high = middle;
        }
        return u32(low);
    }
    __device__ u32 find(K x) const {
        if (x != x) return bins + 2;
        if (!count || x < lowest) return 0;
        return x >= highest ? u32(count) : between(1, count - 1, x);
    }
};

// Evenly spaced bins are 2^fraction positions wide, up to rounding. The first sample of bin i is at or above position
// i * 2^fraction - below, and the last sample of bin i - 1 less than `uncertain` above that: in between the threshold
// decides, elsewhere the position does. The host computes both bounds in the map's arithmetic. SURE: both are zero.
template <typename K, bool SURE>
struct Regular {
    LinearMap<K> line;
    int fraction;
    u32 below, uncertain;
    Thresholds<K> thresholds;

    static constexpr u32 FIRST_SLOT = 1;
    static constexpr bool MISSES = true, BEYOND = false, SELDOM_SLOW = SURE;
    static constexpr Next NEXT = SURE || sizeof(K) == 8 ? Next::COPIED : Next::IN_TURNS;
    __device__ bool quick(K x, u32& counter) const {
        u32 position;
        const bool near = line.at(x, position);
        counter = position >> fraction;
        return near && (SURE || ((position + below) & ((1u << fraction) - 1)) >= uncertain);
    }
    __device__ u32 slow(K x) const {
        u32 position;
        if (!line.at(x, position)) return thresholds.find(x);
        const int bin = int((position + below) >> fraction);
        return u32(bin) + (bin < thresholds.count && x >= thresholds.values[bin]);
    }
};

// Any edges: for each lookup cell a table holds the number of thresholds before it and in it. If there is none in the
// cell, the first number is the slot; one is compared; more are searched. The first cell takes all samples before the
// map, the last all samples beyond it.
template <typename K, typename Map, bool HELD>
struct Search {
    static constexpr u32 FIRST_SLOT = 0;
    static constexpr bool MISSES = false, BEYOND = false, SELDOM_SLOW = true;
    static constexpr Next NEXT = Next::IN_TURNS;
    static constexpr u32 FIRST_BITS = 21, MANY = (1u << (32 - FIRST_BITS)) - 1;  // MANY: this many or more
    LinearMap<typename Map::type> line;
    u32 last;
    const u32* cells;
    Thresholds<K> thresholds;

    // Reads the threshold only if `wanted`, to avoid bank conflicts with other lanes. HELD: in shared memory.
    __device__ bool reaches(K x, u32 number, bool wanted) const {
#if ON_GPU
        if (HELD) {
            K value = x;
            load_shared_if(value, thresholds.values + number, wanted);
            return wanted && x >= value;
        }
#endif
        return wanted && x >= thresholds.values[number];
    }
    __device__ bool quick(K x, u32& slot) const {
        const u32 entry = cells[cell_on(line, last, Map::of(x))], first = entry & ((1u << FIRST_BITS) - 1);
        slot = first + reaches(x, first, entry != first);
        if (entry >> FIRST_BITS > 1) {
            const u32 inside = entry >> FIRST_BITS;
            slot = inside == MANY ? thresholds.find(x) : thresholds.between(int(first), int(first + inside), x);
        }
        return true;
    }
    __device__ u32 slow(K x) const { return 0; }
};

// A sample below `low` counts as `low`, one above `last` as `beyond`, which maps past the last bin although that
// includes its upper edge. Every result is a counter, and none is uncertain.
struct Narrow {
    int low, last, beyond;
    u32 scale, offset;
    int fraction;

    static constexpr u32 FIRST_SLOT = 0;
    static constexpr bool MISSES = false, BEYOND = false, SELDOM_SLOW = true;
    static constexpr Next NEXT = AHEAD;
    __device__ bool quick(int x, u32& counter) const {
        counter = (u32(x > last ? beyond : max(x, low)) * scale + offset) >> fraction;
        return true;
    }
    __device__ u32 slow(int x) const { return 0; }
};

struct Value {
    static constexpr u32 FIRST_SLOT = 0;
    static constexpr bool MISSES = false, BEYOND = false, SELDOM_SLOW = true;
    static constexpr Next NEXT = AHEAD;
    __device__ bool quick(u8 x, u32& slot) const {
        slot = x;
        return true;
    }
    __device__ u32 slow(u8 x) const { return x; }
};
