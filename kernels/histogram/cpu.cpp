// Histogram on the CPU, called by cpu.py. Each function adds the counts of fewer than 2**32 samples to slots
// (underflow, the bins, overflow, NaN; see binning.py), of one row, of rows that take turns, sample by sample, or of rows one
// after another. Counts are exact: only guesses round, and each is checked by a comparison.
//
//   count_shifted    integers in bins 2**shift wide, the last one up to `reach`: subtract, shift
//   count_patterns   samples of one or two bytes: a table holds the slot of each bit pattern
//   count_guessed    bins of about equal width: a linear map gives the slot or the one before, a comparison decides
//   count_searched   any bins: branch-free binary search, for several samples side by side
//
// The slots of a piece of samples are computed first, vectorized, and then counted in several tables in turn: a sample
// that hits the same counter as the one before would wait for its store.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace {

using std::size_t;
typedef uint32_t u32;

constexpr size_t PIECE = 256;  // samples at a time: so few that the core places the next ones while it still counts
constexpr size_t ABREAST = 16;  // samples searched side by side

// Where samples are counted: `count` zeroed tables of u32, `stride` apart; if there is none, in the slots themselves.
// Of `rows` rows, which take turns, the first sample is in the `first`; row r has the tables r, r + rows, … Or row r is
// the samples from begins[r] to ends[r], which ascend, and is counted in its slots.
struct Counters {
    int64_t* slots;
    size_t number;
    u32* tables;
    size_t stride;
    size_t count, rows, first;
    const int64_t *begins, *ends;

    void follow(const u32* slot, size_t n, int64_t start) const {
        const int64_t stop = start + static_cast<int64_t>(n);
        for (size_t row = static_cast<size_t>(std::upper_bound(ends, ends + rows, start) - ends); row < rows; ++row) {
            const int64_t from = begins[row] > start ? begins[row] : start, to = ends[row] < stop ? ends[row] : stop;
            if (from >= stop) return;
            int64_t* const of_row = slots + row * number;
            for (int64_t i = from; i < to; ++i) ++of_row[slot[i - start]];
        }
    }

    template <int TABLES>
    void tally(const u32* slot, size_t n) const {
        size_t i = 0;
        for (; i + TABLES <= n; i += TABLES)
#pragma GCC unroll 8
            for (int k = 0; k < TABLES; ++k) ++tables[k * stride + slot[i + k]];
        for (; i < n; ++i) ++tables[slot[i]];
    }

    void take_turns(const u32* slot, size_t n, size_t turn) const {
        for (size_t i = 0; i < n; turn = 0) {
            const size_t end = i + (count - turn) < n ? i + (count - turn) : n;
            for (u32* table = tables + turn * stride; i < end; ++i, table += stride) ++table[slot[i]];
        }
    }

    // Of samples from index `start` on.
    void add(const u32* slot, size_t n, size_t start) const {
        if (ends) return follow(slot, n, static_cast<int64_t>(start));
        if (rows > 1) return take_turns(slot, n, (first + start) % count);
        switch (count) {
            case 4: return tally<4>(slot, n);
            case 2: return tally<2>(slot, n);
            default:
                for (size_t i = 0; i < n; ++i) ++slots[slot[i]];
        }
    }

    void finish() const {
        for (size_t k = 0; k < count; ++k)
            for (size_t i = 0; i < number; ++i) slots[k % rows * number + i] += tables[k * stride + i];
    }
};

// `find(samples, n, slot)` computes the slots of up to PIECE samples.
template <class T, class Find>
void count(const T* samples, size_t n, const Counters& counters, Find find) {
    u32 slot[PIECE];
    for (size_t start = 0; start < n; start += PIECE) {
        size_t length = n - start < PIECE ? n - start : PIECE;
        find(samples + start, length, slot);
        counters.add(slot, length, start);
    }
    counters.finish();
}

// The float paths find NaN in underflow.
template <class T>
void put_nan(const T* samples, size_t n, u32 last, u32* __restrict slot) {
    for (size_t i = 0; i < n; ++i) slot[i] = samples[i] == samples[i] ? slot[i] : last;
}

template <class T, class U>
void shifted(const void* data, size_t n, uint64_t first, uint64_t reach, int shift, const Counters& counters) {
    const T* samples = static_cast<const T*>(data);
    const T least = static_cast<T>(first);
    const U furthest = static_cast<U>(reach);  // samples below the first bin wrap around to larger offsets
    const u32 overflow = static_cast<u32>(counters.number - 2);
    const U most = static_cast<U>(-1), last = overflow - 2 < most ? static_cast<U>(overflow - 2) : most;
    count(samples, n, counters, [=](const T* part, size_t length, u32* __restrict slot) {
        for (size_t i = 0; i < length; ++i) {
            U offset = static_cast<U>(static_cast<U>(part[i]) - static_cast<U>(least));
            U bin = static_cast<U>(offset >> shift);
            slot[i] = offset > furthest ? overflow : static_cast<u32>(bin < last ? bin : last) + 1;
            slot[i] = part[i] < least ? 0 : slot[i];
        }
    });
}

template <class U>
void patterns(const void* data, size_t n, const u32* slot_of, const Counters& counters) {
    count(static_cast<const U*>(data), n, counters, [=](const U* part, size_t length, u32* __restrict slot) {
        for (size_t i = 0; i < length; ++i) slot[i] = slot_of[part[i]];
    });
}

struct LinearMap {
    double scale, offset, top;

    // Monotonic, however it rounds; NaN maps to 0.
    template <class T>
    u32 operator()(T sample) const {
        double place = static_cast<double>(sample) * scale + offset;
        place = place > 0 ? place : 0;
        place = place < top ? place : top;
        return static_cast<u32>(static_cast<int32_t>(place));
    }
};

template <class T>
bool map_holds(const void* data, size_t last, LinearMap line, T least, T greatest, T (*before)(T)) {
    const T* thresholds = static_cast<const T*>(data);
    for (size_t slot = 0; slot <= last; ++slot) {
        T low = slot ? thresholds[slot - 1] : least;
        if (slot < last && !(low < thresholds[slot])) continue;  // nothing lies between them
        T high = slot < last ? before(thresholds[slot]) : greatest;
        if (line(low) + 1 < slot || line(low) > slot || line(high) + 1 < slot || line(high) > slot) return false;
    }
    return true;
}

template <class T>
void guessed(const void* data, size_t n, const void* edges, LinearMap line, const Counters& counters) {
    const T* samples = static_cast<const T*>(data);
    const T* thresholds = static_cast<const T*>(edges);
    const u32 nan = static_cast<u32>(counters.number - 1);
    count(samples, n, counters, [=](const T* part, size_t length, u32* __restrict slot) {
        for (size_t i = 0; i < length; ++i) slot[i] = line(part[i]);
        for (size_t i = 0; i < length; ++i) slot[i] += part[i] >= thresholds[slot[i]];
        put_nan(part, length, nan, slot);
    });
}

template <class T>
void searched(const void* data, size_t n, const void* edges, size_t last, const Counters& counters) {
    const T* samples = static_cast<const T*>(data);
    const T* thresholds = static_cast<const T*>(edges);
    const u32 nan = static_cast<u32>(counters.number - 1);
    // Each step halves the candidates for the next threshold above a sample.
    auto search = [=](const T* part, u32* __restrict slot, size_t length) {
        u32 lower[ABREAST] = {};
        size_t left = last;
        for (; left > 1; left -= left / 2) {
            u32 half = static_cast<u32>(left / 2);
            for (size_t i = 0; i < length; ++i)
                lower[i] += half & -static_cast<u32>(thresholds[lower[i] + half - 1] <= part[i]);
        }
        for (size_t i = 0; i < length; ++i) slot[i] = lower[i] + (left && thresholds[lower[i]] <= part[i]);
    };
    count(samples, n, counters, [=](const T* part, size_t length, u32* __restrict slot) {
        size_t i = 0;
        for (; i + ABREAST <= length; i += ABREAST) search(part + i, slot + i, ABREAST);
        search(part + i, slot + i, length - i);
        put_nan(part, length, nan, slot);
    });
}

template <class T>
T one_less(T value) {
    return static_cast<T>(value - 1);
}

float next_below(float value) { return __builtin_nextafterf(value, -__builtin_inff()); }
double next_below(double value) { return __builtin_nextafter(value, -__builtin_inf()); }

}  // namespace

// Sample types, numbered as in cpu.py.
enum Type { INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64 };

#define COUNTERS Counters{slots, number, tables, stride, count, rows, first_row, begins, ends}
#define TAKEN                                                                                                   \
    int64_t *slots, size_t number, u32 *tables, size_t stride, size_t count, size_t rows, size_t first_row, \
        const int64_t *begins, const int64_t *ends

extern "C" {

void count_shifted(int type, const void* samples, size_t n, uint64_t first, uint64_t reach, int shift, TAKEN) {
    switch (type) {
        case INT16: return shifted<int16_t, uint16_t>(samples, n, first, reach, shift, COUNTERS);
        case UINT16: return shifted<uint16_t, uint16_t>(samples, n, first, reach, shift, COUNTERS);
        case INT32: return shifted<int32_t, uint32_t>(samples, n, first, reach, shift, COUNTERS);
        case UINT32: return shifted<uint32_t, uint32_t>(samples, n, first, reach, shift, COUNTERS);
        case INT64: return shifted<int64_t, uint64_t>(samples, n, first, reach, shift, COUNTERS);
        case UINT64: return shifted<uint64_t, uint64_t>(samples, n, first, reach, shift, COUNTERS);
    }
}

void count_patterns(int bytes, const void* samples, size_t n, const u32* slot_of, TAKEN) {
    if (bytes == 1)
        patterns<uint8_t>(samples, n, slot_of, COUNTERS);
    else
        patterns<uint16_t>(samples, n, slot_of, COUNTERS);
}

// Whether the map gives every sample its slot or the one before. As it is monotonic, checking the first and the last
// sample of each slot is enough.
int holds(int type, const void* thresholds, size_t last, double scale, double offset) {
    LinearMap line{scale, offset, static_cast<double>(last - 1)};
    float infinite = __builtin_inff();
    switch (type) {
        case INT32: return map_holds<int32_t>(thresholds, last, line, INT32_MIN, INT32_MAX, one_less);
        case UINT32: return map_holds<uint32_t>(thresholds, last, line, 0, UINT32_MAX, one_less);
        case INT64: return map_holds<int64_t>(thresholds, last, line, INT64_MIN, INT64_MAX, one_less);
        case UINT64: return map_holds<uint64_t>(thresholds, last, line, 0, UINT64_MAX, one_less);
        case FLOAT32: return map_holds<float>(thresholds, last, line, -infinite, infinite, next_below);
        case FLOAT64: return map_holds<double>(thresholds, last, line, -infinite, infinite, next_below);
    }
    return 0;
}

void count_guessed(int type, const void* samples, size_t n, const void* thresholds, size_t last, double scale,
                   double offset, TAKEN) {
    LinearMap line{scale, offset, static_cast<double>(last - 1)};
    switch (type) {
        case INT32: return guessed<int32_t>(samples, n, thresholds, line, COUNTERS);
        case UINT32: return guessed<uint32_t>(samples, n, thresholds, line, COUNTERS);
        case INT64: return guessed<int64_t>(samples, n, thresholds, line, COUNTERS);
        case UINT64: return guessed<uint64_t>(samples, n, thresholds, line, COUNTERS);
        case FLOAT32: return guessed<float>(samples, n, thresholds, line, COUNTERS);
        case FLOAT64: return guessed<double>(samples, n, thresholds, line, COUNTERS);
    }
}

void count_searched(int type, const void* samples, size_t n, const void* thresholds, size_t last, TAKEN) {
    switch (type) {
        case INT32: return searched<int32_t>(samples, n, thresholds, last, COUNTERS);
        case UINT32: return searched<uint32_t>(samples, n, thresholds, last, COUNTERS);
        case INT64: return searched<int64_t>(samples, n, thresholds, last, COUNTERS);
        case UINT64: return searched<uint64_t>(samples, n, thresholds, last, COUNTERS);
        case FLOAT32: return searched<float>(samples, n, thresholds, last, COUNTERS);
        case FLOAT64: return searched<double>(samples, n, thresholds, last, COUNTERS);
    }
}
}
