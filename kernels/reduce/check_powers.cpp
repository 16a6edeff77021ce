// Exact sums of third and fourth powers for check_powers.py, which shares no code with cpu_powers.cpp and gpu_powers.cu
// and goes other ways.
//
// Sums are buckets, one for each power of two, as in check.cpp. Samples of a block become unsigned integers of up to 64
// bits: integers by their ranks, floats by a shift to the lowest exponent of a window; floats below the window follow in
// further windows or one by one. An integer is one or two digits of 32 bits, its square up to four; products of digits
// are added by place. So a sample's power is never formed, and loops are vectorized.

#include "check_digits.hpp"
#include "check_window.hpp"

namespace {

constexpr size_t PART = 512;  // samples at a time whose integers stay in the first-level cache

// Bits that a sample may be shifted by.
template <class F>
constexpr int WIDTH = sizeof(typename F::Word) == 8 ? 64 - 1 - F::FRACTION : 32 - 1 - F::FRACTION;

template <class F>
void add_window(const typename F::Word* x, const Window<F>& window, Cubes& cubes, Fourths& fourths) {
    typedef typename F::Word Word;
    alignas(Lanes) u64 number[PART], minus[PART];
    for (size_t start = 0; start < BLOCK; start += PART) {
        for (size_t i = 0; i < PART; ++i) {
            const Word bits = window.template kept<false>(x[start + i]);
            typedef decltype(Word() | u32()) Shifted;  // at least 32 bits, which `WIDTH` leaves room for
            number[i] = static_cast<Shifted>(static_cast<Shifted>(F::integer(bits)) << window.above_base(bits));
            minus[i] = -static_cast<u64>(bits >> (8 * sizeof(Word) - 1));
        }
        if constexpr (sizeof(Word) == 8) add_long<Lanes>(number, minus, PART, window.power(), cubes, fourths);
        else add_short<Lanes>(number, minus, PART, window.power(), cubes, fourths);
    }
}

// Samples below a magnitude, zeros aside.
template <class F>
void add_each_below(const typename F::Word* x, typename F::Word ceiling, Cubes& cubes, Fourths& fourths) {
    typedef typename F::Word Word;
    const Word most = ceiling - 1;
    for (size_t start = 0; start < BLOCK; start += GROUP) {
        Word any = 0;
        for (size_t i = 0; i < GROUP; ++i) any |= static_cast<Word>(F::size(x[start + i]) - 1) < most;
        for (size_t i = start; any && i < start + GROUP; ++i) {
            const Word size = F::size(x[i]);
            if (!size || size >= ceiling) continue;
            const int exponent = static_cast<int>(size >> F::FRACTION);
            const u64 number = F::integer(size), minus = -static_cast<u64>(x[i] >= F::SIGN);
            if constexpr (sizeof(Word) == 8) add_long<u64>(&number, &minus, 1, exponent - (exponent > 0) + F::LEAST, cubes, fourths);
            else add_short<u64>(&number, &minus, 1, exponent - (exponent > 0) + F::LEAST, cubes, fourths);
        }
    }
}

template <class F>
void sum_floats(const void* data, size_t n, Cubes& cubes, Fourths& fourths) {
    typedef typename F::Word Word;
    const Word* samples = static_cast<const Word*>(data);
    Word copy[BLOCK];
    for (size_t start = 0; start < n; start += BLOCK) {
        const Word* block = filled(samples + start, n - start < BLOCK ? n - start : BLOCK, Word(0), copy);
        // One window after another, as long as enough samples are in it.
        Word ceiling = F::INFINITE, largest = largest_below<F>(block, ceiling);
        while (largest) {
            const Window<F> window(largest, ceiling, WIDTH<F>);
            if (number_in(block, window) < WORTHWHILE) break;
            add_window<F>(block, window, cubes, fourths);
            ceiling = window.floor;
            largest = largest_below<F>(block, ceiling);
        }
        if (largest) add_each_below<F>(block, ceiling, cubes, fourths);
    }
}

// Ranks: `half` is what is added to a sample.
template <class Word>
void sum_ranks(const void* data, size_t n, Word half, Cubes& cubes, Fourths& fourths) {
    const Word* samples = static_cast<const Word*>(data);
    alignas(Lanes) u64 number[PART];
    alignas(Lanes) const u64 none[PART] = {};
    for (size_t start = 0; start < n; start += PART) {
        const size_t length = n - start < PART ? n - start : PART;
        for (size_t i = 0; i < length; ++i) number[i] = static_cast<Word>(samples[start + i] ^ half);
        for (size_t i = length; i < PART; ++i) number[i] = 0;
        if constexpr (sizeof(Word) == 8) add_long<Lanes>(number, none, PART, 0, cubes, fourths);
        else add_short<Lanes>(number, none, PART, 0, cubes, fourths);
    }
}

}  // namespace

// Types are numbered as in partial.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

typedef void (*Add)(void* state, const void* x, size_t n, int64_t first);

// What is kept from call to call.
struct State {
    int type;
    Add moments;  // checks the rest of the partial
    void* of_moments;
    Cubes cubes;
    Fourths fourths;
};

extern "C" {

size_t state_bytes() { return sizeof(State); }

// A state of zeros.
void begin(State* state, int type, Add moments, void* of_moments) {
    state->type = type, state->moments = moments, state->of_moments = of_moments;
}

// At most 2**31 samples, of which the first one is the one with index `first`.
void add_samples(State* state, const void* x, size_t n, int64_t first) {
    state->moments(state->of_moments, x, n, first);
    Cubes& cubes = state->cubes;
    Fourths& fourths = state->fourths;
    switch (state->type) {
        case INT8: sum_ranks<uint8_t>(x, n, 0x80, cubes, fourths); break;
        case UINT8: sum_ranks<uint8_t>(x, n, 0, cubes, fourths); break;
        case INT16: sum_ranks<uint16_t>(x, n, 0x8000, cubes, fourths); break;
        case UINT16: sum_ranks<uint16_t>(x, n, 0, cubes, fourths); break;
        case INT32: sum_ranks<u32>(x, n, 0x80000000u, cubes, fourths); break;
        case UINT32: sum_ranks<u32>(x, n, 0, cubes, fourths); break;
        case INT64: sum_ranks<u64>(x, n, u64(1) << 63, cubes, fourths); break;
        case UINT64: sum_ranks<u64>(x, n, 0, cubes, fourths); break;
        case FLOAT16: sum_floats<Half>(x, n, cubes, fourths); break;
        case FLOAT32: sum_floats<Single>(x, n, cubes, fourths); break;
        case FLOAT64: sum_floats<Double>(x, n, cubes, fourths); break;
    }
}

// The words of the sum of cubes, followed by those of fourth powers.
void finish(const State* state, int64_t* words) {
    state->cubes.words(words);
    state->fourths.words(words + CUBE_WORDS);
}
}
