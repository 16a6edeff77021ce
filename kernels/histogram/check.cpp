// Counts for check.py, which shares no code with cpu.cpp and gpu.cu and goes other ways.
//
//   values      samples of one or two bytes: how often each value occurs.
//   bracketed   bins of about equal width: two lines, of which one is never above the slot and the other never
//               below (bracket.py verifies that at each edge). Where they agree, that is the slot; a group in which
//               they differ for some sample is compared with the edges. Lines are computed in float64, or in float32
//               for samples in float32 where that is exact enough (`what` is 1).
//   in_leaves   any bins. Samples become ranks: unsigned integers in their order, both zeros the same. The ranks
//               in which bounds lie are cut into cells of equal length, a power of two, and cells into leaves, so
//               finely that a leaf is in one slot, or in two that one bound separates (leaves.py).
//
// Samples are compared with the edges as float64; no edge is converted.
//
// Four tables are counted in, in turn: a sample that hits the counter of the one before would wait. Rows that take turns
// have tables of their own, rows one after another only slots.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;
typedef uint32_t u32;
typedef uint64_t u64;

constexpr size_t BLOCK = 512;  // samples whose places are found before they are counted; 2 or 4 KiB
constexpr size_t TURNS = 4;

// --- where a sample lies ----------------------------------------------------------------------------------------------

template <class Bits, Bits SIGN>
struct Integer {
    typedef Bits Word;
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

// These as in check.py.
struct Bracket {
    double scale, low, high;  // a slot is at least sample * scale + low, and at most sample * scale + high,
    double first, last;       // of samples in between; those outside are in the slot of the nearer one
    u64 nan;                  // the slot of NaN
    const double* bounds;     // between each slot and the next one
};

struct Leaves {
    u64 origin, last, nan;          // the rank of place 0, the last place, the place of NaN beyond it
    u64 shift;                      // log2 of the places per cell
    const u32 *first, *leaf_shift;  // the leaf of place p in cell c is first[c] + (p >> leaf_shift[c]), modulo 2**32
    const u32 *low, *high;          // slots of the first and the last sample of each leaf
    const double* bounds;           // between each slot and the next one
};

enum Way { VALUES, BRACKETED, IN_LEAVES };

// Types of samples; of samples counted by value, their bytes.
enum Type { INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64 };

struct Counting {
    u64 way, type, what;
    Bracket bracket;
    Leaves leaves;
    u32* counters;
    u64 table[TURNS];           // where each table begins
    u64 number, counted, most;  // of counters in all tables; samples counted in them so far, and at most
    int64_t* totals;            // counts before those
    const int64_t* slot_of;     // the slot of each counter of a table
    u64 used, stride;           // counters of a table; from one table to the next
    u64 slots, rows;            // slots of a row; rows that take turns, sample by sample: row r has the tables r, r + rows, …
    int64_t start;              // added to the index of a sample, which says its row
    u64 turn;                   // of several rows, the table of the next sample
    const int64_t *begins, *ends;  // or rows from a begin to an end, both ascending, with
    int64_t* of_rows;              // slots of their own
};

namespace {

// `find(samples, counter)` sets the counters of a whole block.
template <class T, class Find>
void count(const void* data, size_t n, const Counting& to, Find find) {
    const T* samples = static_cast<const T*>(data);
    u32 counter[BLOCK];
    T rest[BLOCK] = {};
    u64 row = 0;
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t length = n - start < BLOCK ? n - start : BLOCK;
        const T* part = samples + start;
        if (length < BLOCK) part = static_cast<const T*>(std::memcpy(rest, part, length * sizeof(T)));
        find(part, counter);
        size_t i = 0;
        for (; to.ends && i < length; ++i) {
            const int64_t at = static_cast<int64_t>(start + i);
            while (row < to.rows && to.ends[row] <= at) ++row;
            const u64 slot = static_cast<u64>(to.slot_of[counter[i]]);
            if (row < to.rows && to.begins[row] <= at) ++to.of_rows[row * to.slots + slot];
        }
        if (to.rows > 1 && !to.ends) {
            const u64 tables = to.number / to.stride;
            for (u64 turn = (to.turn + start) % tables; i < length; turn = 0)
                for (; turn < tables && i < length; ++turn, ++i) ++to.counters[turn * to.stride + counter[i]];
        }
        if (i == length) continue;
        u32* const tables[TURNS] = {to.counters + to.table[0], to.counters + to.table[1], to.counters + to.table[2],
                                    to.counters + to.table[3]};
        for (; i + TURNS <= length; i += TURNS)
#pragma GCC unroll 4
            for (size_t k = 0; k < TURNS; ++k) ++tables[k][counter[i + k]];
        for (; i < length; ++i) ++tables[0][counter[i]];
    }
}

// --- bins of about equal width ----------------------------------------------------------------------------------------

// Neighbouring samples: all of them are compared with the edges if the lines differ for any of them.
constexpr size_t GROUP = 128;

// `Real` is the arithmetic of the lines.
template <class T, class Real>
void bracketed(const void* data, size_t n, const Bracket& bracket, const Counting& to) {
    const Real scale = static_cast<Real>(bracket.scale), first = static_cast<Real>(bracket.first);
    const Real low = static_cast<Real>(bracket.low), high = static_cast<Real>(bracket.high);
    const Real last = static_cast<Real>(bracket.last);
    const double* const bounds = bracket.bounds;
    const u32 nan = static_cast<u32>(bracket.nan);
    count<T>(data, n, to, [=](const T* samples, u32* __restrict slot) {
        for (size_t group = 0; group < BLOCK; group += GROUP, samples += GROUP, slot += GROUP) {
            u32 differ = 0;
            for (size_t i = 0; i < GROUP; ++i) {
                const Real number = static_cast<Real>(samples[i]), above = number > first ? number : first;
                const Real place = (above < last ? above : last) * scale;
                const u32 least = static_cast<u32>(static_cast<int32_t>(place + low));
                differ |= least ^ static_cast<u32>(static_cast<int32_t>(place + high));
                slot[i] = least;
            }
            // A loop of its own: GCC 13 would vectorize neither.
            for (size_t i = 0; i < GROUP; ++i) slot[i] = samples[i] == samples[i] ? slot[i] : nan;
            if (differ)
                for (size_t i = 0; i < GROUP; ++i) slot[i] += static_cast<double>(samples[i]) >= bounds[slot[i]];
        }
    });
}

// --- any bins ---------------------------------------------------------------------------------------------------------

// `put(i, place)` for each sample of a block.
template <class T, class Put>
void find_places(const T* samples, const Leaves& leaves, Put put) {
    typedef typename Kind<T>::Word Word;
    const Word origin = static_cast<Word>(leaves.origin), last = static_cast<Word>(leaves.last);
    const Word beyond = static_cast<Word>(leaves.nan);
    for (size_t i = 0; i < BLOCK; ++i) {
        Word bits;
        std::memcpy(&bits, samples + i, sizeof bits);
        const Word rank = Kind<T>::rank(bits), place = rank > origin ? rank - origin : 0;
        put(i, Kind<T>::nan(bits) ? beyond : place < last ? place : last);
    }
}

// Loops as short as these are vectorized, with gathers.
template <class T>
void find_leaves(const T* samples, const Leaves& leaves, u32* __restrict leaf) {
    typedef typename Kind<T>::Word Word;
    const u32 *const first = leaves.first, *const leaf_shift = leaves.leaf_shift;
    const int shift = static_cast<int>(leaves.shift);
    const auto shifted = [=](size_t i, Word place) { leaf[i] = static_cast<u32>(place >> shift); };
    if (!first) return find_places(samples, leaves, shifted);
    Word places[BLOCK];
    u32 cell[BLOCK];
    find_places(samples, leaves, [&](size_t i, Word place) { places[i] = place; });
    for (size_t i = 0; i < BLOCK; ++i) cell[i] = static_cast<u32>(places[i] >> shift);
    for (size_t i = 0; i < BLOCK; ++i) leaf[i] = first[cell[i]] + static_cast<u32>(places[i] >> leaf_shift[cell[i]]);
}

// What is counted: leaves that are each in one slot; slots, of leaves in two at most; slots, of leaves in any number.
enum What { LEAVES, SLOTS, CROWDED };

// The first slot in [low, high] with a bound above a sample.
inline u32 bisect(double number, u32 low, u32 high, const double* bounds) {
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (number >= bounds[middle]) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Replaces the number of a sample's leaf by its slot. Few samples are in crowded leaves, which are short.
template <class T>
void find_slots(What what, const T* samples, const Leaves& leaves, u32* __restrict slot) {
    if (what == LEAVES) return;
    const u32 *const lows = leaves.low, *const highs = leaves.high;
    const double* const bounds = leaves.bounds;
    u32 last[BLOCK], crowded = 0;
    if (what == CROWDED)
        for (size_t i = 0; i < BLOCK; ++i) last[i] = highs[slot[i]];
    for (size_t i = 0; i < BLOCK; ++i) slot[i] = lows[slot[i]];
    if (what == CROWDED)
        for (size_t i = 0; i < BLOCK; ++i) crowded |= last[i] - slot[i] > 1;
    if (crowded)
        for (size_t i = 0; i < BLOCK; ++i)
            if (last[i] - slot[i] > 1) slot[i] = bisect(static_cast<double>(samples[i]), slot[i], last[i], bounds);
    for (size_t i = 0; i < BLOCK; ++i) slot[i] += static_cast<double>(samples[i]) >= bounds[slot[i]];
}

template <class T>
void in_leaves(What what, const void* data, size_t n, const Leaves& leaves, const Counting& to) {
    count<T>(data, n, to, [&](const T* samples, u32* counter) {
        find_leaves(samples, leaves, counter);
        find_slots(what, samples, leaves, counter);
    });
}

void bracketed(const Counting& c, const void* samples, size_t n) {
    switch (c.type) {
        case INT32: return bracketed<int32_t, double>(samples, n, c.bracket, c);
        case UINT32: return bracketed<u32, double>(samples, n, c.bracket, c);
        case INT64: return bracketed<int64_t, double>(samples, n, c.bracket, c);
        case UINT64: return bracketed<u64, double>(samples, n, c.bracket, c);
        case FLOAT32:
            if (c.what) return bracketed<float, float>(samples, n, c.bracket, c);
            return bracketed<float, double>(samples, n, c.bracket, c);
        case FLOAT64: return bracketed<double, double>(samples, n, c.bracket, c);
    }
}

void in_leaves(const Counting& c, const void* samples, size_t n) {
    const What what = static_cast<What>(c.what);
    switch (c.type) {
        case INT32: return in_leaves<int32_t>(what, samples, n, c.leaves, c);
        case UINT32: return in_leaves<u32>(what, samples, n, c.leaves, c);
        case INT64: return in_leaves<int64_t>(what, samples, n, c.leaves, c);
        case UINT64: return in_leaves<u64>(what, samples, n, c.leaves, c);
        case FLOAT32: return in_leaves<float>(what, samples, n, c.leaves, c);
        case FLOAT64: return in_leaves<double>(what, samples, n, c.leaves, c);
    }
}

// Counts bit patterns; tables have 2**8 or 2**16 counters.
template <class Word>
void values(const Counting& c, const void* samples, size_t n) {
    count<Word>(samples, n, c, [](const Word* part, u32* __restrict counter) {
        for (size_t i = 0; i < BLOCK; ++i) counter[i] = part[i];
    });
}

}  // namespace

// Counts at most `most` samples more.
extern "C" void count_samples(Counting* counting, const void* samples, size_t n, int64_t first) {
    Counting& c = *counting;
    c.turn = static_cast<u64>(c.start + first) % (c.number / c.stride);
    if (c.counted + n > c.most) {
        for (u64 i = 0; i < c.number; ++i) c.totals[i] += c.counters[i], c.counters[i] = 0;
        c.counted = 0;
    }
    c.counted += n;
    switch (c.way) {
        case VALUES: return c.type == 1 ? values<uint8_t>(c, samples, n) : values<uint16_t>(c, samples, n);
        case BRACKETED: return bracketed(c, samples, n);
        case IN_LEAVES: return in_leaves(c, samples, n);
    }
}

// Adds the counts of all tables to the slots of each row.
extern "C" void collect_counts(const Counting* counting, int64_t* slots) {
    const Counting& c = *counting;
    for (u64 table = 0; table < c.number / c.stride; ++table) {
        int64_t* of_row = slots + table % c.rows * c.slots;
        const u64 from = table * c.stride;
        for (u64 i = 0; i < c.used; ++i) of_row[c.slot_of[i]] += c.totals[from + i] + c.counters[from + i];
    }
}
