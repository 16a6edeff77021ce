// Sums of windows of floats on the CPU, exact and rounded once, for cpu.py: the method of cpu_exact.py.
//
// Samples are cut at a grid of powers of two into integers. One cut is enough for nearly all inputs: then the sum of a
// window is a 64-bit integer, and converting it to float64 is the only rounding. Otherwise there are two cuts, the
// upper one so short that its sums are exact in float64, and adding the lower one is the only rounding. Where numbers are
// further apart, or are infinite or NaN, sums are kept in limbs, of short blocks, so that few others share the slower way.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace {

using std::size_t;

constexpr size_t STEP = 16384;  // sums per block, at least: its samples stay in the cache
constexpr size_t SHORT = 256;   // the same of blocks for which two cuts are not enough
constexpr int BITS = 51;        // bits of a sample that one cut takes, at most

size_t least(size_t a, size_t b) { return a < b ? a : b; }
size_t largest(size_t a, size_t b) { return a > b ? a : b; }
int least(int a, int b) { return a < b ? a : b; }

// 2**exponent, a normal number.
double power(int exponent) {
    const uint64_t bits = static_cast<uint64_t>(exponent + 1023) << 52;
    double result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

uint64_t bits_of(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

// Numbers are below 2**(grid + 51), and the spacing of float64 on both sides of `large` is 2**grid: the addition rounds
// to a multiple of the grid, and the bits of the result count multiples.
struct Cut {
    double large;
    explicit Cut(int grid) : large(1.5 * power(grid + 52)) {}
    int64_t count(double x) const { return static_cast<int64_t>(bits_of(x + large) - bits_of(large)); }
    double rest(double x) const { return x - ((x + large) - large); }
};

// Twice the bits of the largest magnitude.
template <class Sample>
uint64_t largest_of(const Sample* x, size_t n) {
    uint64_t most = 0;
    for (size_t i = 0; i < n; ++i) {
        const uint64_t size = bits_of(static_cast<double>(x[i])) << 1;
        most = size > most ? size : most;
    }
    return most;
}

template <class Sample>
bool one_cut(const Sample* x, size_t length, size_t width, int grid, double* sums) {
    const Cut cut(grid);
    uint64_t left = 0;
    for (size_t i = 0; i < length + width - 1; ++i) left |= bits_of(cut.rest(x[i])) << 1;
    if (left) return false;
    const double unit = power(grid);
    int64_t sum = 0;
    for (size_t i = 0; i < width - 1; ++i) sum += cut.count(x[i]);
    for (size_t i = 0; i < length; ++i) {
        sum += cut.count(x[i + width - 1]);
        sums[i] = static_cast<double>(sum) * unit;
        sum -= cut.count(x[i]);
    }
    return true;
}

template <class Sample>
bool two_cuts(const Sample* x, size_t length, size_t width, int upper, int lower, double* sums) {
    const Cut first(upper), second(lower);
    uint64_t left = 0;
    for (size_t i = 0; i < length + width - 1; ++i) left |= bits_of(second.rest(first.rest(x[i]))) << 1;
    if (left) return false;
    const int shift = upper - lower;
    const double scale = power(shift), unit = power(lower);
    int64_t high = 0, low = 0;
    auto take = [&](double sample, int64_t sign) {
        high += sign * first.count(sample);
        low += sign * second.count(first.rest(sample));
    };
    for (size_t i = 0; i < width - 1; ++i) take(x[i], 1);
    for (size_t i = 0; i < length; ++i) {
        take(x[i + width - 1], 1);
        const int64_t carried = high + (low >> shift), rest = low & ((int64_t(1) << shift) - 1);
        // The only rounding: both terms are exact.
        sums[i] = (static_cast<double>(carried) * scale + static_cast<double>(rest)) * unit;
        take(x[i], -1);
    }
    return true;
}

// A sum of any samples, in units of 2**-1074: 32-bit limbs, each the sum of those of the samples with their signs, so that
// nothing is carried before it is rounded. The limbs of 2**31 samples fit.
struct Limbs {
    static constexpr int MOST = 68;  // 2098 bits of a sample, and 31 of their number
    int64_t limb[MOST] = {};
    int least = MOST, end = 0;  // all others are 0
    size_t nan = 0, above = 0, below = 0;

    void take(double sample, int sign) {
        const uint64_t bits = bits_of(sample), fraction = bits << 12 >> 12;
        const int exponent = static_cast<int>(bits << 1 >> 53), negative = static_cast<int>(bits >> 63);
        if (exponent == 2047) {
            (fraction ? nan : negative ? below : above) += static_cast<size_t>(sign);
            return;
        }
        if (negative) sign = -sign;
        const int place = exponent ? exponent - 1 : 0, low = place % 32;
        const uint64_t significand = fraction | uint64_t(exponent > 0) << 52, upper = (significand >> 32) << low;
        const uint64_t lower = (significand & UINT32_MAX) << low, middle = lower >> 32 | (upper & UINT32_MAX);
        int64_t* const to = limb + place / 32;
        to[0] += sign * static_cast<int64_t>(lower & UINT32_MAX);
        to[1] += sign * static_cast<int64_t>(middle);
        to[2] += sign * static_cast<int64_t>(upper >> 32);
    }

    // Takes note of the limbs of a sample.
    void reach(double sample) {
        const int exponent = static_cast<int>(bits_of(sample) << 1 >> 53), first = (exponent ? exponent - 1 : 0) / 32;
        if (exponent == 2047 || sample == 0) return;
        least = ::least(least, first);
        end = first + 3 > end ? first + 3 : end;
    }

    // What is carried out of the last limb, with digits behind it: the sum, or its negative.
    int64_t carried(int64_t sign, uint32_t* digits) const {
        int64_t carry = 0;
        for (int i = least; i < end; ++i) {
            carry += sign * limb[i];
            digits[i] = static_cast<uint32_t>(carry);
            carry >>= 32;
        }
        return carry;
    }

    double rounded() const {
        if (nan || (above && below)) return std::numeric_limits<double>::quiet_NaN();
        if (above || below) return above ? HUGE_VAL : -HUGE_VAL;
        uint32_t storage[MOST + 3], *const digits = storage + 2;
        digits[least - 1] = digits[least - 2] = 0;
        int64_t top = carried(1, digits);
        const bool negative = top < 0;
        if (negative) top = carried(-1, digits);
        digits[end] = static_cast<uint32_t>(top);
        int first = end;
        while (first >= least && !digits[first]) --first;
        if (first < least) return 0;
        // The highest 64 bits from the first one on; the last is set if there are any below, so rounding sees them.
        const int zeros = __builtin_clz(digits[first]);
        const uint64_t pair = uint64_t(digits[first]) << 32 | digits[first - 1];
        const uint64_t next = uint64_t(digits[first - 2]) << zeros;
        uint64_t bits = pair << zeros | next >> 32;
        bool more = static_cast<uint32_t>(next);
        for (int i = first - 3; !more && i >= least; --i) more = digits[i];
        bits |= more;
        const double size = std::ldexp(static_cast<double>(bits), 32 * first - 32 - zeros - 1074);
        return negative ? -size : size;
    }
};

template <class Sample>
void in_limbs(const Sample* x, size_t length, size_t width, double* sums) {
    Limbs sum;
    for (size_t i = 0; i < length + width - 1; ++i) sum.reach(x[i]);
    if (!sum.end) sum.least = 0;
    for (size_t i = 0; i < width - 1; ++i) sum.take(x[i], 1);
    for (size_t i = 0; i < length; ++i) {
        sum.take(x[i + width - 1], 1);
        sums[i] = sum.rounded();
        sum.take(x[i], -1);
    }
}

// Returns whether two cuts are enough.
template <class Sample>
bool in_cuts(const Sample* x, size_t length, size_t width, double* sums) {
    const uint64_t most = largest_of(x, length + width - 1);
    const int top = most ? static_cast<int>(most >> 53) - 1022 : 0;  // all are below 2**top, unless one is not finite
    if (!(-800 < top && top < 900)) return false;
    const int log_width = 63 - __builtin_clzll(2 * width - 1);  // log2 of the width, rounded up
    const int bits = least(BITS, 62 - log_width), upper = top - least(BITS, 52 - log_width);
    return one_cut(x, length, width, top - bits, sums) || two_cuts(x, length, width, upper, upper - 1 - bits, sums);
}

// Calls `sum(samples, number of sums, sums)` for blocks of a row.
template <class Sample, class Sum>
void in_blocks(const Sample* x, size_t length, size_t step, double* sums, Sum sum) {
    for (size_t start = 0; start < length; start += step) sum(x + start, least(step, length - start), sums + start);
}

template <class Sample>
void sum_rows(const void* samples, size_t rows, size_t length, size_t width, double* sums) {
    const auto shorter = [=](const Sample* x, size_t n, double* out) {
        if (!in_cuts(x, n, width, out)) in_limbs(x, n, width, out);
    };
    const auto longer = [=](const Sample* x, size_t n, double* out) {
        if (!in_cuts(x, n, width, out)) in_blocks(x, n, largest(SHORT, 2 * width), out, shorter);
    };
    const Sample* x = static_cast<const Sample*>(samples);
    for (size_t row = 0; row < rows; ++row, x += length + width - 1, sums += length)
        in_blocks(x, length, largest(STEP, 2 * width), sums, longer);
}

}  // namespace

// `length` sums of each row, of windows of `width` samples, at most 2**31.
extern "C" void sum_float32(const void* x, size_t rows, size_t length, size_t width, double* sums) {
    sum_rows<float>(x, rows, length, width, sums);
}

extern "C" void sum_float64(const void* x, size_t rows, size_t length, size_t width, double* sums) {
    sum_rows<double>(x, rows, length, width, sums);
}
