// Which sums of windows are right, for check.py.
//
// The exact sum of a window is an integer, updated as elements enter and leave; for floats it counts a unit that all
// samples of a block are multiples of. A float64 result is not recomputed but held against the definition of rounding
// to nearest: the exact sum lies no further from it than half a step, and at exactly half a step only if the result is
// even. Blocks whose exponents are too far apart for 128-bit integers are divided, and those that still are take wider ones.

#include <cstddef>
#include <cstdint>

namespace {

using std::size_t;
__extension__ typedef __int128 int128;

constexpr size_t STEP = 16384;  // sums per block, at least: its samples stay in the cache
constexpr size_t SHORT = 256;   // the same of blocks that take more than 128 bits

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

constexpr uint64_t NOT_A_NUMBER = 0x7ff8000000000000;  // the one of all results

// Adds integer * 2**shift.
template <class Sum>
void add(Sum& sum, uint64_t integer, int shift, bool negative) {
    const Sum term = static_cast<Sum>(integer) << shift;
    sum += negative ? -term : term;
}

// Whether a float64 is `sum` * 2**place, rounded. Sums are below 2**(MOST - 1), or 2**1023.
template <class Sum>
bool rounded(Sum sum, uint64_t result, int place) {
    constexpr int MOST = 8 * sizeof(Sum) - 2;
    if (!Double::finite(result)) return false;
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

// An integer of any sum of floats, in units of which half a step is two at least: in two's complement.
struct Wide {
    static constexpr int LIMBS = 34, UNIT = -1076;  // above 2**1024 there is room for the sum of 2**63
    uint64_t limb[LIMBS] = {};

    int sign() const {
        if (limb[LIMBS - 1] >> 63) return -1;
        for (int i = LIMBS - 1; i >= 0; --i)
            if (limb[i]) return 1;
        return 0;
    }
};

void add(Wide& sum, uint64_t integer, int shift, bool negative) {
    uint64_t* to = sum.limb + shift / 64;
    const uint64_t parts[] = {integer << shift % 64, integer >> 1 >> (63 - shift % 64)};
    bool carry = false;
    for (const uint64_t part : parts) {
        const uint64_t before = *to, with = part + carry;  // not both are the greatest
        *to = negative ? before - with : before + with;
        carry = negative ? *to > before : *to < before;
        ++to;
    }
    for (; carry && to < sum.limb + Wide::LIMBS; ++to) carry = negative ? (*to)-- == 0 : ++*to == 0;
}

bool rounded(Wide& sum, uint64_t result, int) {
    if (Double::nan(result)) return false;
    if (!Double::integer(result) && Double::finite(result)) return !result && !sum.sign();
    // An infinity stands for 2**1024 and all beyond.
    const bool infinite = !Double::finite(result), negative = result & Double::SIGN;
    const uint64_t integer = infinite ? Double::HIDDEN : Double::integer(result);
    const int place = (infinite ? 972 : Double::place(result)) - Wide::UNIT;
    const auto too_far = [&](int half, bool below) {
        add(sum, 1, half, !below);
        const int sign = below ? -sum.sign() : sum.sign();
        add(sum, 1, half, below);
        return sign > 0 || (!sign && integer & 1);
    };
    add(sum, integer, place, !negative);
    const bool right = (infinite || !too_far(place - 1, negative)) &&
                       !too_far(integer == Double::HIDDEN ? place - 2 : place - 1, !negative);
    add(sum, integer, place, negative);
    return right;
}

// A window sliding over a block of samples that are multiples of 2**place.
template <class Sum, class Kind>
struct Window {
    typedef typename Kind::Bits Bits;
    int place;
    Sum sum = {};
    size_t nan = 0, above = 0, below = 0;  // numbers of NaN and infinities in the window

    void take(Bits bits, int sign) {
        if (__builtin_expect(Kind::finite(bits), 1)) {
            const bool negative = (bits & Kind::SIGN) != 0;
            if (Kind::integer(bits)) add(sum, Kind::integer(bits), Kind::place(bits) - place, negative != (sign < 0));
        } else {
            (Kind::nan(bits) ? nan : bits & Kind::SIGN ? below : above) += sign;
        }
    }

    bool is(uint64_t result) {
        if (__builtin_expect(nan || above || below, 0)) {
            if (nan || (above && below)) return result == NOT_A_NUMBER;
            return result == (Double::SIGN - Double::HIDDEN) + (below ? Double::SIGN : 0);
        }
        return rounded(sum, result, place);
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

// Calls `check(samples, sums, number of sums, width, answers)` for blocks of a row.
template <class Sample, class Result, class Check>
void in_blocks(const Sample* x, const Result* results, size_t length, size_t width, size_t step, bool* right, Check check) {
    for (size_t start = 0; start < length; start += step)
        check(x + start, results + start, least(step, length - start), width, right + start);
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
    // Bits of a sum with its sign, and two to spare for results that are larger; such sums may be infinite.
    const int bits = (large ? Kind::place(large) - place : 0) + Kind::WIDTH + 64 - __builtin_clzll(width) + 3;
    const bool finite = place + bits < 1024 + 3;
    if (bits <= 64 && finite)
        slide<int64_t, Kind>(x, results, length, width, place, right);
    else if (bits <= 128 && finite)
        slide<int128, Kind>(x, results, length, width, place, right);
    else if (length > largest(SHORT, 2 * width))
        in_blocks(x, results, length, width, largest(SHORT, 2 * width), right, right_floats<Kind>);
    else
        slide<Wide, Kind>(x, results, length, width, Wide::UNIT, right);
}

template <class Sample, class Result, class Check>
void in_rows(const void* samples, const void* sums, size_t rows, size_t length, size_t width, bool* right, Check check) {
    const size_t step = largest(STEP, 2 * width);
    const Sample* x = static_cast<const Sample*>(samples);
    const Result* results = static_cast<const Result*>(sums);
    for (size_t row = 0; row < rows; ++row, x += length + width - 1, results += length, right += length)
        in_blocks(x, results, length, width, step, right, check);
}

}  // namespace

// Types of samples, numbered as in check.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

// For rows of `length` sums of windows of `width` samples: which are right.
extern "C" void right_sums(int type, const void* x, const void* results, size_t rows, size_t length, size_t width,
                           bool* right) {
#define INTEGERS(SUM, SAMPLE, RESULT) \
    in_rows<SAMPLE, RESULT>(x, results, rows, length, width, right, right_integers<SUM, SAMPLE, RESULT>)
#define FLOATS(KIND) in_rows<KIND::Bits, uint64_t>(x, results, rows, length, width, right, right_floats<KIND>)
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
