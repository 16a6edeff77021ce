// Which sums of windows are right: what check.py calls.
//
// The exact sum of a window is an integer: what comes in is added, and what goes out taken away. Of floats it counts units
// that all samples of a block are multiples of. A float64 that was found is not computed again but held against the
// definition of rounding to nearest: the sum lies no further from it than half a step, and at exactly half a step only if
// it is even. Blocks whose samples are too far apart for integers of 128 bits are left to others.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;
__extension__ typedef __int128 int128;

constexpr size_t STEP = 16384;  // sums of a block, at least: its samples stay in the cache

size_t least(size_t a, size_t b) { return a < b ? a : b; }
size_t largest(size_t a, size_t b) { return a > b ? a : b; }

// --- integers ---------------------------------------------------------------------------------------------------------

template <class Sum, class Sample, class Found>
void right_integers(const Sample* x, const Found* found, size_t length, size_t width, bool* right) {
    Sum sum = 0;
    for (size_t i = 0; i < width - 1; ++i) sum += x[i];
    for (size_t i = 0; i < length; ++i) {
        sum += x[i + width - 1];
        right[i] = sum == static_cast<Sum>(found[i]);
        sum -= x[i];
    }
}

// --- floats -----------------------------------------------------------------------------------------------------------

// IEEE 754: bits of the fraction, bits in all, what exponents are moved by.
template <class Word, int FRACTION, int BIAS>
struct Format {
    typedef Word Bits;
    static constexpr Word HIDDEN = Word(1) << FRACTION, SIGN = Word(1) << (8 * sizeof(Word) - 1);
    static constexpr int SPECIAL = (SIGN - 1) >> FRACTION;  // exponent of infinities and NaN
    static constexpr int WIDTH = FRACTION + 1;              // bits of an integer

    static int exponent(Word bits) { return static_cast<int>((bits & (SIGN - 1)) >> FRACTION); }
    static bool finite(Word bits) { return exponent(bits) != SPECIAL; }
    static bool nan(Word bits) { return (bits & (SIGN - 1)) > (SIGN - HIDDEN); }
    // A finite number is such an integer times 2**place.
    static Word integer(Word bits) { return (bits & (HIDDEN - 1)) | (exponent(bits) ? HIDDEN : 0); }
    static int place(Word bits) { return (exponent(bits) ? exponent(bits) : 1) - BIAS - FRACTION; }
};

typedef Format<uint16_t, 10, 15> Half;
typedef Format<uint32_t, 23, 127> Single;
typedef Format<uint64_t, 52, 1023> Double;

// Whether a finite float64 is `sum` times 2**place, rounded. Sums are below 2**(MOST - 1).
template <class Sum>
bool rounded(Sum sum, uint64_t found, int place) {
    constexpr int MOST = 8 * sizeof(Sum) - 2;
    if (!sum) return !found;
    const Sum integer = static_cast<Sum>(Double::integer(found));
    const int shift = Double::place(found) - place;
    if (found & Double::SIGN) sum = -sum;
    if (shift <= 0) {  // its steps are no more than a unit: nothing was rounded
        if (shift < -Double::WIDTH) return false;
        return sum == integer >> -shift && integer >> -shift << -shift == integer;
    }
    if (shift > MOST - Double::WIDTH) return false;
    const Sum away = sum - (integer << shift), half = Sum(1) << (shift - 1);
    const bool even = !(integer & 1);
    if (away >= 0) return away < half || (away == half && even);
    // Towards zero, steps below a power of two are half as long; a quarter of two units is less than any difference.
    const Sum below = integer == static_cast<Sum>(Double::HIDDEN) ? half / 2 : half;
    return -away < below || (-away == below && even);
}

// Windows that slide over a block of samples that are multiples of 2**place.
template <class Sum, class Kind>
struct Window {
    typedef typename Kind::Bits Bits;
    int place;
    Sum sum = 0;
    size_t nan = 0, above = 0, below = 0;  // of which there are so many in the window

    void take(Bits bits, int sign) {
        if (__builtin_expect(Kind::finite(bits), 1)) {
            const Sum term = Kind::integer(bits) ? static_cast<Sum>(Kind::integer(bits)) << (Kind::place(bits) - place) : 0;
            sum += (bits & Kind::SIGN ? -term : term) * sign;
        } else {
            (Kind::nan(bits) ? nan : bits & Kind::SIGN ? below : above) += sign;
        }
    }

    bool is(uint64_t found) const {
        if (__builtin_expect(nan || above || below, 0)) {
            if (nan || (above && below)) return Double::nan(found);
            return found == (Double::SIGN - Double::HIDDEN) + (below ? Double::SIGN : 0);
        }
        return Double::finite(found) && rounded(sum, found, place);
    }
};

template <class Sum, class Kind>
void slide(const typename Kind::Bits* x, const uint64_t* found, size_t length, size_t width, int place, bool* right) {
    Window<Sum, Kind> window{place};
    for (size_t i = 0; i < width - 1; ++i) window.take(x[i], 1);
    for (size_t i = 0; i < length; ++i) {
        window.take(x[i + width - 1], 1);
        right[i] = window.is(found[i]);
        window.take(x[i], -1);
    }
}

template <class Kind>
void right_floats(const typename Kind::Bits* x, const uint64_t* found, size_t length, size_t width, bool* right) {
    typedef typename Kind::Bits Bits;
    Bits small = Kind::SIGN - Kind::HIDDEN, large = 0;  // magnitudes of finite samples but zeros
    for (size_t i = 0; i < length + width - 1; ++i) {
        const Bits size = x[i] & (Kind::SIGN - 1);
        const bool counts = size && size < Bits(Kind::SIGN - Kind::HIDDEN);
        small = counts && size < small ? size : small;
        large = counts && size > large ? size : large;
    }
    const int place = large ? Kind::place(small) : 0;
    // Bits of a sum, with its sign, and two to spare: for numbers found that are larger.
    const int bits = (large ? Kind::place(large) - place : 0) + Kind::WIDTH + 64 - __builtin_clzll(width) + 3;
    if (bits <= 64)
        slide<int64_t, Kind>(x, found, length, width, place, right);
    else if (bits <= 128)
        slide<int128, Kind>(x, found, length, width, place, right);
    else
        std::memset(right, 0, length);
}

// `check(first sample, first sum, number of sums, answers)` of blocks of each row.
template <class Sample, class Found, class Check>
void in_blocks(const void* samples, const void* sums, size_t rows, size_t length, size_t width, bool* right, Check check) {
    const size_t step = largest(STEP, 2 * width);
    const Sample* x = static_cast<const Sample*>(samples);
    const Found* found = static_cast<const Found*>(sums);
    for (size_t row = 0; row < rows; ++row, x += length + width - 1, found += length, right += length)
        for (size_t start = 0; start < length; start += step)
            check(x + start, found + start, least(step, length - start), width, right + start);
}

}  // namespace

// Types of samples are numbered as in check.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

// Of rows of `length` sums of windows of `width` samples each, whether they are right, or not surely so.
extern "C" void right_sums(int type, const void* x, const void* found, size_t rows, size_t length, size_t width,
                           bool* right) {
#define INTEGERS(SUM, SAMPLE, FOUND) \
    in_blocks<SAMPLE, FOUND>(x, found, rows, length, width, right, right_integers<SUM, SAMPLE, FOUND>)
#define FLOATS(KIND) in_blocks<KIND::Bits, uint64_t>(x, found, rows, length, width, right, right_floats<KIND>)
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
