// Counts for check.py, which shares no code with cpu.cpp and gpu.cu and goes another way.
//
// Samples become ranks: unsigned integers in the order of the samples, both zeros the same. The range of ranks in which
// bounds lie is cut into cells of equal length, a power of two, and cells into leaves, so finely that all samples of a
// leaf fall into one slot, or into two that one bound separates. With that bound a sample is compared, both as float64,
// which is how the bins are defined. No sample is multiplied, and no edge is converted to another type.
//
//   count_values   samples of one or two bytes: how often each value occurs
//   count_leaves   leaves that lie in one slot each: how often each leaf is hit
//   count_slots    leaves with one bound at most
//   count_crowded  leaves with any number of bounds, which are bisected
//
// Four tables are counted in, in turn: a sample that hits the counter of the one before would wait for its store.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;
typedef uint32_t u32;
typedef uint64_t u64;

constexpr size_t BLOCK = 1024;  // samples whose places are found before they are counted; 4 or 8 KiB
constexpr size_t TURNS = 4;

// --- where a sample lies ----------------------------------------------------------------------------------------------

template <class Bits, Bits SIGN>
struct Integer {
    typedef Bits Word;
    static constexpr bool HAS_NAN = false;
    static bool nan(Word) { return false; }
    static Word rank(Word bits) { return bits ^ SIGN; }
};

template <class Bits, Bits SIGN, Bits INFINITE>
struct Float {
    typedef Bits Word;
    static bool nan(Word bits) { return (bits & ~SIGN) > INFINITE; }
    static Word rank(Word bits) { return bits & SIGN ? SIGN - (bits & ~SIGN) : SIGN + bits; }
};

template <class T>
struct Kind;
template <>
struct Kind<int32_t> : Integer<u32, 0x80000000u> {};
template <>
struct Kind<u32> : Integer<u32, 0> {};
template <>
struct Kind<int64_t> : Integer<u64, 0x8000000000000000u> {};
template <>
struct Kind<u64> : Integer<u64, 0> {};
template <>
struct Kind<float> : Float<u32, 0x80000000u, 0x7f800000u> {};
template <>
struct Kind<double> : Float<u64, 0x8000000000000000u, 0x7ff0000000000000u> {};

}  // namespace

// As in check.py. The leaf of place p in a cell is number `first` + (p >> shift), modulo 2**32.
struct Cell {
    u32 first, shift;
};

struct Leaves {
    u64 origin, last, nan;  // the rank of place 0, the last place, the place of NaN beyond it
    u64 shift;              // places per cell, as a power of two
    const Cell* cells;      // none if each is a leaf
    const u32 *low, *high;  // slots of the first and the last sample of each leaf
    const double* bounds;   // between each slot and the next one
    u32* counters;
    u64 table[TURNS];  // where each table of counters begins
};

namespace {

// Places of a whole block.
template <class T>
void find_places(const T* samples, const Leaves& leaves, typename Kind<T>::Word* __restrict places) {
    typedef typename Kind<T>::Word Word;
    const Word origin = static_cast<Word>(leaves.origin), last = static_cast<Word>(leaves.last);
    const Word beyond = static_cast<Word>(leaves.nan);
    for (size_t i = 0; i < BLOCK; ++i) {
        Word bits;
        std::memcpy(&bits, samples + i, sizeof bits);
        const Word rank = Kind<T>::rank(bits), place = rank > origin ? rank - origin : 0;
        places[i] = Kind<T>::nan(bits) ? beyond : place < last ? place : last;
    }
}

// `counter_of(sample, place)` is the counter of a sample.
template <class T, class Count>
void count(const void* data, size_t n, const Leaves& leaves, Count counter_of) {
    const T* samples = static_cast<const T*>(data);
    u32* const tables[TURNS] = {leaves.counters + leaves.table[0], leaves.counters + leaves.table[1],
                                leaves.counters + leaves.table[2], leaves.counters + leaves.table[3]};
    typename Kind<T>::Word places[BLOCK];
    T rest[BLOCK] = {};
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t length = n - start < BLOCK ? n - start : BLOCK;
        const T* part = samples + start;
        if (length < BLOCK) part = static_cast<const T*>(std::memcpy(rest, part, length * sizeof(T)));
        find_places(part, leaves, places);
        size_t i = 0;
        for (; i + TURNS <= length; i += TURNS)
#pragma GCC unroll 4
            for (size_t k = 0; k < TURNS; ++k) ++tables[k][counter_of(part[i + k], places[i + k])];
        for (; i < length; ++i) ++tables[0][counter_of(part[i], places[i])];
    }
}

template <bool FLAT, class Word>
u32 leaf_at(Word place, const Cell* cells, u64 shift) {
    const Word number = place >> shift;
    if (FLAT) return static_cast<u32>(number);
    return cells[number].first + static_cast<u32>(place >> cells[number].shift);
}

enum What { LEAVES, SLOTS, CROWDED };

template <class T, What WHAT, bool FLAT>
void count_in(const void* samples, size_t n, const Leaves& leaves) {
    const Cell* const cells = leaves.cells;
    const u64 shift = leaves.shift;
    const u32 *const lows = leaves.low, *const highs = leaves.high;
    const double* const bounds = leaves.bounds;
    count<T>(samples, n, leaves, [=](T sample, typename Kind<T>::Word place) {
        const u32 leaf = leaf_at<FLAT>(place, cells, shift);
        if (WHAT == LEAVES) return leaf;
        const double number = static_cast<double>(sample);
        u32 low = lows[leaf];
        if (WHAT == SLOTS) return low + (number >= bounds[low]);
        for (u32 high = highs[leaf]; low < high;) {
            const u32 middle = low + (high - low) / 2;
            if (number >= bounds[middle]) low = middle + 1;
            else high = middle;
        }
        return low;
    });
}

template <class T>
void count_kind(What what, const void* samples, size_t n, const Leaves& leaves) {
    if (what == CROWDED) return count_in<T, CROWDED, false>(samples, n, leaves);
    if (what == SLOTS) return leaves.cells ? count_in<T, SLOTS, false>(samples, n, leaves) : count_in<T, SLOTS, true>(samples, n, leaves);
    return leaves.cells ? count_in<T, LEAVES, false>(samples, n, leaves) : count_in<T, LEAVES, true>(samples, n, leaves);
}

}  // namespace

// Types of samples, numbered as in check.py.
enum Type { INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64 };

extern "C" {

// Adds to leaves.counters how often leaves (0) or slots (1, 2) are hit, by fewer than 2**32 samples.
void count_leaves(int type, int what, const void* samples, size_t n, const Leaves* leaves) {
    switch (type) {
        case INT32: return count_kind<int32_t>(static_cast<What>(what), samples, n, *leaves);
        case UINT32: return count_kind<u32>(static_cast<What>(what), samples, n, *leaves);
        case INT64: return count_kind<int64_t>(static_cast<What>(what), samples, n, *leaves);
        case UINT64: return count_kind<u64>(static_cast<What>(what), samples, n, *leaves);
        case FLOAT32: return count_kind<float>(static_cast<What>(what), samples, n, *leaves);
        case FLOAT64: return count_kind<double>(static_cast<What>(what), samples, n, *leaves);
    }
}
}
