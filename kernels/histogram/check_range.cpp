// Finite extremes for check_range.py: samples are compared as the numbers that they are, in many lanes.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;

constexpr size_t LANES = 64;

template <class T>
struct Number {
    typedef T Stored;
    static T of(T sample) { return sample; }
    static bool finite(T number) { return number - number == 0; }  // of integers all
};

// float16 in the order of the numbers, as signed integers.
struct Half {
    typedef uint16_t Stored;
    static int16_t of(uint16_t bits) {
        const int16_t size = bits & 0x7fff, minus = static_cast<int16_t>(-(bits >> 15));
        return static_cast<int16_t>((size ^ minus) - minus);
    }
    static bool finite(int16_t number) { return (number < 0x7c00) & (number > -0x7c00); }
};

template <class Kind, class T>
void extremes(const void* data, size_t n, T* range) {
    typedef typename Kind::Stored Stored;
    const Stored* samples = static_cast<const Stored*>(data);
    T low[LANES], high[LANES];
    Stored rest[LANES];
    for (size_t j = 0; j < LANES; ++j) low[j] = range[0], high[j] = range[1];
    for (size_t start = 0; start < n; start += LANES) {
        const Stored* part = samples + start;
        if (n - start < LANES) {
            for (size_t j = 0; j < LANES; ++j) rest[j] = part[j < n - start ? j : 0];
            part = rest;
        }
        for (size_t j = 0; j < LANES; ++j) {
            const T number = Kind::of(part[j]);
            const bool finite = Kind::finite(number);
            low[j] = finite & (number < low[j]) ? number : low[j];
            high[j] = finite & (number > high[j]) ? number : high[j];
        }
    }
    for (size_t j = 0; j < LANES; ++j) {
        range[0] = low[j] < range[0] ? low[j] : range[0];
        range[1] = high[j] > range[1] ? high[j] : range[1];
    }
}

template <class T>
void extremes_of(const void* samples, size_t n, void* range) {
    extremes<Number<T>>(samples, n, static_cast<T*>(range));
}

}  // namespace

// Types of samples, numbered as in check_range.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

// As in check_range.py.
struct State {
    uint64_t type;
    void* range;  // [least, greatest]; of float16 numbers as by Half
};

// Widens the range to the finite samples.
extern "C" void widen_range(const State* state, const void* samples, size_t n, int64_t) {
    void* const range = state->range;
    switch (state->type) {
        case INT8: return extremes_of<int8_t>(samples, n, range);
        case UINT8: return extremes_of<uint8_t>(samples, n, range);
        case INT16: return extremes_of<int16_t>(samples, n, range);
        case UINT16: return extremes_of<uint16_t>(samples, n, range);
        case INT32: return extremes_of<int32_t>(samples, n, range);
        case UINT32: return extremes_of<uint32_t>(samples, n, range);
        case INT64: return extremes_of<int64_t>(samples, n, range);
        case UINT64: return extremes_of<uint64_t>(samples, n, range);
        case FLOAT16: return extremes<Half>(samples, n, static_cast<int16_t*>(range));
        case FLOAT32: return extremes_of<float>(samples, n, range);
        case FLOAT64: return extremes_of<double>(samples, n, range);
    }
}
