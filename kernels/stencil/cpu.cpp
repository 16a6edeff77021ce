// Sums of windows of floats on the CPU, exact and rounded once, for cpu.py: the method of cpu_exact.py.
//
// Samples are cut at a grid of powers of two into integers. One cut is enough for nearly all inputs: then the sum of a
// window is a 64-bit integer, and converting it to float64 is the only rounding. Otherwise there are two cuts, the
// upper one so short that its sums are exact in float64, and adding the lower one is the only rounding. Rows that take
// more cuts, or that have infinities or NaN, are reported as not done.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;

constexpr size_t STEP = 16384;  // sums per block, at least: its samples stay in the cache
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

template <class Sample>
bool block(const Sample* x, size_t length, size_t width, double* sums) {
    const uint64_t most = largest_of(x, length + width - 1);
    const int top = most ? static_cast<int>(most >> 53) - 1022 : 0;  // all are below 2**top, unless one is not finite
    if (!(-800 < top && top < 900)) return false;
    const int log_width = width > 1 ? 64 - __builtin_clzll(width - 1) : 0;  // log2 of the width, rounded up
    const int bits = least(BITS, 62 - log_width), upper = top - least(BITS, 52 - log_width);
    return one_cut(x, length, width, top - bits, sums) || two_cuts(x, length, width, upper, upper - 1 - bits, sums);
}

template <class Sample>
void sum_rows(const void* samples, size_t rows, size_t length, size_t width, double* sums, bool* done) {
    const size_t step = largest(STEP, 2 * width);
    const Sample* x = static_cast<const Sample*>(samples);
    for (size_t row = 0; row < rows; ++row, x += length + width - 1, sums += length) {
        done[row] = true;
        for (size_t start = 0; start < length && done[row]; start += step)
            done[row] = block(x + start, least(step, length - start), width, sums + start);
    }
}

}  // namespace

// `length` sums of each row, of windows of `width` samples, at most 2**31; and which rows are done.
extern "C" void sum_float32(const void* x, size_t rows, size_t length, size_t width, double* sums, bool* done) {
    sum_rows<float>(x, rows, length, width, sums, done);
}

extern "C" void sum_float64(const void* x, size_t rows, size_t length, size_t width, double* sums, bool* done) {
    sum_rows<double>(x, rows, length, width, sums, done);
}
