// The partial being filled: sums as digits, and extremes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;
typedef unsigned __int128 u128;

constexpr size_t BLOCK = 4096;

// Places in a partial, as in partial.py.
enum { NAN_COUNT = 3, POSITIVE, NEGATIVE, FIRST_NAN, MIN_AT, MAX_AT, MIN_KEY, MAX_KEY, SUM_AT };
enum { SUM = 1, SQUARES = 2, EXTREMES = 4 };
constexpr int SUM_WORDS = 34, SQUARE_WORDS = 67, SUM_BITS = 1088, SQUARE_BITS = 2176;

template <class To, class From>
To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// A fixed-point number: 32-bit digits, lowest first, held in 64-bit integers; `words` propagates the carries.
template <int WORDS, int BITS>
struct Accumulator {
    int64_t digits[2 * WORDS] = {};

    // Adds value * 2**exponent, negated if `negative`.
    void add(u128 value, int exponent, bool negative) {
        int place = exponent + BITS, shift = place & 31;
        int64_t* digit = digits + (place >> 5);
        int64_t flip = -static_cast<int64_t>(negative);
        uint64_t low = static_cast<uint64_t>(value), high = static_cast<uint64_t>(value >> 64);
        u128 first = static_cast<u128>(low) << shift, second = static_cast<u128>(high) << shift;
        add_digit(digit, static_cast<uint32_t>(first), flip);
        add_digit(digit + 1, static_cast<uint32_t>(first >> 32), flip);
        add_digit(digit + 2, static_cast<uint32_t>(first >> 64), flip);
        if (high) {
            add_digit(digit + 2, static_cast<uint32_t>(second), flip);
            add_digit(digit + 3, static_cast<uint32_t>(second >> 32), flip);
            add_digit(digit + 4, static_cast<uint32_t>(second >> 64), flip);
        }
    }

    // Adds value * 2**unit.
    void add(double value, int unit = 0) {
        uint64_t bits = bits_as<uint64_t>(value), mantissa = bits & ((uint64_t(1) << 52) - 1);
        int exponent = static_cast<int>(bits >> 52 & 0x7ff);
        if (!(bits << 1)) return;
        if (exponent) mantissa |= uint64_t(1) << 52;
        exponent = (exponent ? exponent : 1) - 1075 + unit;
        int below = -BITS - exponent;  // these bits are zero: the number is a multiple of 2**-BITS
        add(below > 0 ? mantissa >> below : mantissa, below > 0 ? -BITS : exponent, bits >> 63);
    }

    void add_square(double value) {
        uint64_t bits = bits_as<uint64_t>(value), mantissa = bits & ((uint64_t(1) << 52) - 1);
        int exponent = static_cast<int>(bits >> 52 & 0x7ff);
        if (exponent) mantissa |= uint64_t(1) << 52;
        add(static_cast<u128>(mantissa) * mantissa, 2 * ((exponent ? exponent : 1) - 1075), false);
    }

    // Two's complement, the lowest word first.
    void words(int64_t* out) const {
        int64_t carry = 0;
        for (int i = 0; i < WORDS; ++i) {
            int64_t low = digits[2 * i] + carry;
            int64_t high = digits[2 * i + 1] + (low >> 32);
            carry = high >> 32;
            out[i] = static_cast<int64_t>(static_cast<uint64_t>(high) << 32 | (static_cast<uint64_t>(low) & 0xffffffff));
        }
    }

private:
    static void add_digit(int64_t* digit, uint32_t value, int64_t flip) { *digit += (int64_t(value) ^ flip) - flip; }
};

struct Result {
    int64_t* partial;
    int parts;
    Accumulator<SUM_WORDS, SUM_BITS> sum;
    Accumulator<SQUARE_WORDS, SQUARE_BITS> squares;

    void finish() {
        if (parts & SUM) sum.words(partial + SUM_AT);
        if (parts & SQUARES) squares.words(partial + SUM_AT + SUM_WORDS);
    }
};

template <class T>
size_t first_equal(const T* samples, size_t n, T value) {
    constexpr size_t STEP = 64;
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        bool equal = false;
        for (size_t j = 0; j < STEP; ++j) equal |= samples[i + j] == value;
        if (equal) break;
    }
    while (i < n && !(samples[i] == value)) ++i;
    return i;
}

// Extremes so far; the first of equal samples is kept.
template <class T>
struct Extremes {
    bool known = false;
    T least = 0, greatest = 0;
    size_t least_at = 0, greatest_at = 0;

    void meet(const T* samples, size_t n, size_t start, T lower, T upper) {
        if (!known || lower < least) least_at = start + first_equal(samples, n, least = lower);
        if (!known || upper > greatest) greatest_at = start + first_equal(samples, n, greatest = upper);
        known = true;
    }
};

}  // namespace
