// Which sums of windows are right, for check.py.
//
// The exact sum of a window is an integer, updated as elements enter and leave; for floats it counts a unit that all
// samples of a block are multiples of. A float64 result is not recomputed but held against the definition of rounding
// to nearest: the exact sum lies no further from it than half a step, and at exactly half a step only if the result is
// even. Blocks whose exponents are too far apart for 128-bit integers are reported as undecided (false).

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;
__extension__ typedef __int128 int128;

constexpr size_t STEP = 16384;  // sums per block, at least: its samples stay in the cache

size_t least(size_t a, size_t b) { return a < b ? a : b; }
size_t largest(size_t a, size_t b) { return a > b ? a : b; }

// --- integers ---------------------------------------------------------------------------------------------------------

template <class Sum, class Sample, class Result>
void right_integers(const Sample* x, const Result* results, size_t length, size_t width, bool* right) {
    Sum sum = 0;
    for (size_t i = 0; i < width - 1; ++i) sum += x[i];
    for (size_t i = 0; i < length; ++i) {
        sum += x[i + width - 1];
        right[i] = sum == static_cast<Sum>(results[i]);
        sum -= x[i];
    }
}

// --- floats -----------------------------------------------------------------------------------------------------------

// An IEEE 754 format: word, bits of the fraction, exponent bias.
template <class Word, int FRACTION, int BIAS>
struct Format {
    typedef Word Bits;
    static constexpr Word HIDDEN = Word(1) << FRACTION, SIGN = Word(1) << (8 * sizeof(Word) - 1);
    static constexpr int SPECIAL = (SIGN - 1) >> FRACTION;  // exponent of infinities and NaN
    static constexpr int WIDTH = FRACTION + 1;              // bits of the significand

    static int exponent(Word bits) { return static_cast<int>((bits & (SIGN - 1)) >> FRACTION); }
    static bool finite(Word bits) { return exponent(bits) != SPECIAL; }
    static bool nan(Word bits) { return (bits & (SIGN - 1)) > (SIGN - HIDDEN); }
    // A finite number is this integer times 2**place, with its sign.
    static Word integer(Word bits) { return (bits & (HIDDEN - 1)) | (exponent(bits) ? HIDDEN : 0); }
    static int place(Word bits) { return (exponent(bits) ? exponent(bits) : 1) - BIAS - FRACTION; }
};

typedef Format<uint16_t, 10, 15> Half;
typedef Format<uint32_t, 23, 127> Single;
typedef Format<uint64_t, 52, 1023> Double;

// Whether a finite float64 is `sum` * 2**place, rounded. Sums are below 2**(MOST - 1).
template <class Sum>
bool rounded(Sum sum, uint64_t result, int place) {
    constexpr int MOST = 8 * sizeof(Sum) - 2;
    if (!sum) return !result;
    const Sum integer = static_cast<Sum>(Double::integer(result));
    const int shift = Double::place(result) - place;
    if (result & Double::SIGN) sum = -sum;
    if (shift <= 0) {  // its steps are no larger than a unit: nothing was rounded
        if (shift < -Double::WIDTH) return false;
        return sum == integer >> -shift && integer >> -shift << -shift == integer;
    }
    if (shift > MOST - Double::WIDTH) return false;
    const Sum away = sum - (integer << shift), half = Sum(1) << (shift - 1);
    const bool even = !(integer & 1);
    if (away >= 0) return away < half || (away == half && even);
    // Below a power of two steps are half as long; where that makes half a step half a unit, `below` is 0, which is as
    // good: differences are whole units.
    const Sum below = integer == static_cast<Sum>(Double::HIDDEN) ? half / 2 : half;
    return -away < below || (-away == below && even);
}

// A window sliding over a block of samples that are multiples of 2**place.
template <class Sum, class Kind>
struct Window {
    typedef typename Kind::Bits Bits;
    int place;
    Sum sum = 0;
    size_t nan = 0, above = 0, below = 0;  // numbers of NaN and infinities in the window

    void take(Bits bits, int sign) {
        if (__builtin_expect(Kind::finite(bits), 1)) {
            const Sum term = Kind::integer(bits) ? static_cast<Sum>(Kind::integer(bits)) << (Kind::place(bits) - place) : 0;
            sum += (bits & Kind::SIGN ? -term : term) * sign;
        } else {
            (Kind::nan(bits) ? nan : bits & Kind::SIGN ? below : above) += sign;
        }
    }

    bool is(uint64_t result) const {
        if (__builtin_expect(nan || above || below, 0)) {
            if (nan || (above && below)) return Double::nan(result);
            return result == (Double::SIGN - Double::HIDDEN) + (below ? Double::SIGN : 0);
        }
        return Double::finite(result) && rounded(sum, result, place);
    }
};

template <class Sum, class Kind>
void slide(const typename Kind::Bits* x, const uint64_t* results, size_t length, size_t width, int place, bool* right) {
    Window<Sum, Kind> window{place};
    for (size_t i = 0; i < width - 1; ++i) window.take(x[i], 1);
    for (size_t i = 0; i < length; ++i) {
        window.take(x[i + width - 1], 1);
        right[i] = window.is(results[i]);
        window.take(x[i], -1);
    }
}

template <class Kind>
void right_floats(const typename Kind::Bits* x, const uint64_t* results, size_t length, size_t width, bool* right) {
    typedef typename Kind::Bits Bits;
    Bits small = Kind::SIGN - Kind::HIDDEN, large = 0;  // magnitudes of finite nonzero samples
    for (size_t i = 0; i < length + width - 1; ++i) {
        const Bits size = x[i] & (Kind::SIGN - 1);
        const bool counts = size && size < Bits(Kind::SIGN - Kind::HIDDEN);
        small = counts && size < small ? size : small;
        large = counts && size > large ? size : large;
    }
    const int place = large ? Kind::place(small) : 0;
    // Bits of a sum with its sign, and two to spare for results that are larger.
    const int bits = (large ? Kind::place(large) - place : 0) + Kind::WIDTH + 64 - __builtin_clzll(width) + 3;
    if (bits <= 64)
        slide<int64_t, Kind>(x, results, length, width, place, right);
    else if (bits <= 128)
        slide<int128, Kind>(x, results, length, width, place, right);
    else
        std::memset(right, 0, length);
}

// Calls `check(samples, sums, number of sums, width, answers)` for blocks of each row.
template <class Sample, class Result, class Check>
void in_blocks(const void* samples, const void* sums, size_t rows, size_t length, size_t width, bool* right, Check check) {
    const size_t step = largest(STEP, 2 * width);
    const Sample* x = static_cast<const Sample*>(samples);
    const Result* results = static_cast<const Result*>(sums);
    for (size_t row = 0; row < rows; ++row, x += length + width - 1, results += length, right += length)
        for (size_t start = 0; start < length; start += step)
            check(x + start, results + start, least(step, length - start), width, right + start);
}

}  // namespace

// Types of samples, numbered as in check.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

// For rows of `length` sums of windows of `width` samples: which are certainly right.
extern "C" void right_sums(int type, const void* x, const void* results, size_t rows, size_t length, size_t width,
                           bool* right) {
#define INTEGERS(SUM, SAMPLE, RESULT) \
    in_blocks<SAMPLE, RESULT>(x, results, rows, length, width, right, right_integers<SUM, SAMPLE, RESULT>)
#define FLOATS(KIND) in_blocks<KIND::Bits, uint64_t>(x, results, rows, length, width, right, right_floats<KIND>)
    switch (type) {
        case INT8: INTEGERS(int64_t, int8_t, int64_t); break;
        case UINT8: INTEGERS(int64_t, uint8_t, int64_t); break;
        case INT16: INTEGERS(int64_t, int16_t, int64_t); break;
        case UINT16: INTEGERS(int64_t, uint16_t, int64_t); break;
        case INT32: INTEGERS(int64_t, int32_t, int64_t); break;
        case UINT32: INTEGERS(int64_t, uint32_t, int64_t); break;
        case INT64: INTEGERS(int128, int64_t, int64_t); break;
        case UINT64: INTEGERS(int128, uint64_t, uint64_t); break;
        case FLOAT16: FLOATS(Half); break;
        case FLOAT32: FLOATS(Single); break;
        case FLOAT64: FLOATS(Double); break;
    }
#undef INTEGERS
#undef FLOATS
}
