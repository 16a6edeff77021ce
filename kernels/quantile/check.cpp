// Counts of samples around values for check.py, which shares no code with cpu.cpp and gpu.cu and goes other ways: samples
// are compared as the numbers that they are, and those of one or two bytes are counted by their bits.

#include <cstddef>
#include <cstdint>

namespace {

using std::size_t;

constexpr size_t BLOCK = 4096;  // samples that stay in the L1 cache while they are compared with one value after another

}  // namespace

// As in check.py.
struct State {
    uint64_t type, number;  // of values
    const void* values;     // ascending
    int64_t* counts;        // [below, equal, between, equal, ..., above, NaN]; or of each bit pattern
};

namespace {

// Every sample is compared with each value.
template <class T>
void compare(const State& state, const T* samples, size_t n) {
    const T* values = static_cast<const T*>(state.values);
    int64_t* const counts = state.counts;
    for (size_t start = 0; start < n; start += BLOCK) {
        const T* part = samples + start;
        const size_t length = n - start < BLOCK ? n - start : BLOCK;
        int32_t numbers = 0, done = 0;
        for (size_t i = 0; i < length; ++i) numbers += part[i] == part[i];
        for (size_t j = 0; j < state.number; ++j) {
            int32_t less = 0, equal = 0;
            for (size_t i = 0; i < length; ++i) less += part[i] < values[j];
            for (size_t i = 0; i < length; ++i) equal += part[i] == values[j];
            counts[2 * j] += less - done;
            counts[2 * j + 1] += equal;
            done = less + equal;
        }
        counts[2 * state.number] += numbers - done;
        counts[2 * state.number + 1] += static_cast<int64_t>(length) - numbers;
    }
}

// The greatest value that is not above a sample is looked for.
template <class T>
void look_up(const State& state, const T* samples, size_t n) {
    const T* values = static_cast<const T*>(state.values);
    for (size_t i = 0; i < n; ++i) {
        const T x = samples[i];
        if (x != x) {
            ++state.counts[2 * state.number + 1];
            continue;
        }
        size_t low = 0, high = state.number;  // values before `low` are less than x, those from `high` on are not
        while (low < high) {
            const size_t middle = (low + high) / 2;
            if (values[middle] < x)
                low = middle + 1;
            else
                high = middle;
        }
        ++state.counts[low < state.number && values[low] == x ? 2 * low + 1 : 2 * low];
    }
}

constexpr uint64_t FEW = 16;  // values that every sample is compared with

template <class T>
void count(const State& state, const void* samples, size_t n) {
    if (state.number <= FEW)
        compare(state, static_cast<const T*>(samples), n);
    else
        look_up(state, static_cast<const T*>(samples), n);
}

// Neighbours are counted in different tables, so that equal ones do not wait for each other.
template <class U>
void patterns(int64_t* counts, const void* data, size_t n) {
    constexpr size_t NUMBER = size_t(1) << (8 * sizeof(U));
    const U* samples = static_cast<const U*>(data);
    size_t i = 0;
    for (; i + 2 <= n; i += 2) ++counts[samples[i]], ++counts[NUMBER + samples[i + 1]];
    if (i < n) ++counts[samples[i]];
}

}  // namespace

// Numbered as in check.py.
enum Type { PATTERNS8, PATTERNS16, INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64 };

extern "C" void add_samples(const State* state, const void* samples, size_t n, int64_t) {
    switch (state->type) {
        case PATTERNS8: return patterns<uint8_t>(state->counts, samples, n);
        case PATTERNS16: return patterns<uint16_t>(state->counts, samples, n);
        case INT32: return count<int32_t>(*state, samples, n);
        case UINT32: return count<uint32_t>(*state, samples, n);
        case INT64: return count<int64_t>(*state, samples, n);
        case UINT64: return count<uint64_t>(*state, samples, n);
        case FLOAT32: return count<float>(*state, samples, n);
        case FLOAT64: return count<double>(*state, samples, n);
    }
}
