// Where a sample falls: its slot among exact thresholds (kernels/binning.py), by shift, line or table.
//
// Each way has two halves. `quick` finds the slot of nearly every sample with no branch; of the others it says that it
// did not, and `slow` finds those.
#pragma once

#include "line.cuh"

template <typename K>
struct Shift {
    K start;                            // smallest sample of the first bin
    typename Unsigned<K>::type reach;   // distance of the last sample that the shift places
    int shift;
    K end;                              // smallest sample of the overflow, where has_end
    bool has_end;
    u32 bins;

    __device__ bool quick(K x, u32& slot) const {
        const auto offset = distance(x, start);
        slot = u32(offset >> shift) + 1;
        return offset <= reach;
    }
    __device__ u32 slow(K x) const {
        if (x < start) return 0;
        return has_end && x >= end ? bins + 1 : bins;  // the last edge is closed: what lies on it is in the last bin
    }
};

// The thresholds themselves: as many as there are, ascending.
template <typename K>
struct Thresholds {
    const K* values;
    int count;
    u32 bins;

    // How many of those from `low` on, but below `high`, a sample reaches, and with them all below `low`.
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
        if (!count || x < values[0]) return 0;
        return x >= values[count - 1] ? u32(count) : between(1, count - 1, x);
    }
};

// Evenly spaced bins are 2^fraction positions of the line wide, up to rounding. The first sample of bin i is at least at
// i * 2^fraction - below, the last of bin i - 1 less than `doubtful` beyond that: between the two a threshold decides,
// and elsewhere the position does. The host finds both bounds in the arithmetic of the line. SURE: both are zero.
template <typename K, bool SURE>
struct Regular {
    Line<K> line;
    int fraction;
    u32 below, doubtful;
    Thresholds<K> thresholds;

    __device__ bool quick(K x, u32& slot) const {
        u32 position;
        const bool near = line.at(x, position);
        slot = (position >> fraction) + 1;
        return near && (SURE || ((position + below) & ((1u << fraction) - 1)) >= doubtful);
    }
    __device__ u32 slow(K x) const {
        u32 position;
        if (!line.at(x, position)) return thresholds.find(x);
        const int bin = int((position + below) >> fraction);
        return u32(bin) + (bin < thresholds.count && x >= thresholds.values[bin]);
    }
};

// Any edges: positions are cells. Of each cell a table says how many thresholds lie before it; the next one is compared,
// which is all there is to do where the cell holds no more than that. Elsewhere the table also says how many it holds.
template <typename K, typename Map>
struct Search {
    static constexpr u32 FIRST_BITS = 21, MANY = (1u << (32 - FIRST_BITS)) - 1;  // MANY: so many or more
    Line<typename Map::type> line;
    const u32* cells;
    Thresholds<K> thresholds;

    __device__ bool quick(K x, u32& slot) const {
        u32 cell;
        const bool near = line.at(Map::of(x), cell);
        const u32 entry = cells[near ? cell : 0], first = entry & ((1u << FIRST_BITS) - 1);
        slot = first + (x >= thresholds.values[first]);
        if (entry > first) {
            const u32 inside = entry >> FIRST_BITS;
            slot = thresholds.between(int(first), inside == MANY ? thresholds.count : int(first + inside), x);
        }
        return near;
    }
    __device__ u32 slow(K x) const { return thresholds.find(x); }
};

// What is below `low` counts as that, what is above `last` as `beyond`, which is far enough from the last edge, where the
// last bin is closed. Every result is a counter, and none is doubtful.
struct Narrow {
    int low, last, beyond;
    u32 scale, offset;
    int fraction;

    __device__ bool quick(int x, u32& counter) const {
        counter = (u32(x > last ? beyond : max(x, low)) * scale + offset) >> fraction;
        return true;
    }
    __device__ u32 slow(int x) const { return 0; }
};

struct Value {
    __device__ bool quick(u8 x, u32& slot) const {
        slot = x;
        return true;
    }
    __device__ u32 slow(u8 x) const { return x; }
};
