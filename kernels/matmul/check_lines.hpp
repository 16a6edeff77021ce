// Rows and columns of floats, and what scales them, for check_each.cpp.

#pragma once

#include <cmath>
#include <vector>

#include "check_defined.hpp"
#include "check_tile.hpp"

struct Bounds {
    int64_t kept, least, least_scale;  // of formats.py, and check_lines.py
    // 2**-p, shares of sums of magnitudes, more than all underflows; elements up to so many bounds are computed.
    double half, own, conventional, underflow, upwards, small;
};

namespace {

// Of infinities, which `number` of float16 takes for NaN, too.
inline double exactly(double x) { return x; }
inline double exactly(float x) { return static_cast<double>(x); }
inline double exactly(Half x) {
    if ((x.bits & 0x7fffu) == 0x7c00u) return x.bits & 0x8000u ? -INFINITY : INFINITY;
    return static_cast<double>(number(x));
}

inline uint64_t bits_of(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline uint64_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline uint64_t bits_of(Half x) { return x.bits; }

struct Line {
    double largest;  // finite magnitude
    bool special;    // has infinities or NaN
    int64_t exponent, scale;
    double first, second, last;  // powers of two: two before a number is rounded, as one may overflow, one after it
    double plain;                // that scales a number that is not rounded
    double half, rest;           // that scale elements of C, in turns by row and by column

    void begin() { largest = 0, special = false; }
    void measure(double x) {
        const double magnitude = std::fabs(x), finite = magnitude < INFINITY ? magnitude : 0;
        special |= !(magnitude < INFINITY);
        largest = largest < finite ? finite : largest;
    }
    void settle(const Bounds& bounds) {
        int power_above;
        std::frexp(largest, &power_above);
        exponent = power_above;
        scale = exponent < bounds.least_scale ? bounds.least_scale : exponent;
        const int64_t shift = bounds.kept - exponent;
        first = power_of(shift / 2), second = power_of(shift - shift / 2), last = power_of(-shift - scale), plain = power_of(-scale);
        half = power_of(-(scale / 2)), rest = power_of(scale / 2 - scale);
    }
};

// Columns of B, or of C.
struct Columns {
    std::vector<double> first, second, last, plain, half, rest, weight;
    std::vector<int64_t> exponent, scale;
    std::vector<uint8_t> special;

    explicit Columns(size_t n)
        : first(n), second(n), last(n), plain(n), half(n), rest(n), weight(n), exponent(n), scale(n), special(n) {}
    void take(size_t j, const Line& line) {
        first[j] = line.first, second[j] = line.second, last[j] = line.last, plain[j] = line.plain;
        half[j] = line.half, rest[j] = line.rest, special[j] = line.special;
        exponent[j] = line.exponent, scale[j] = line.scale;
    }
    // Weights of columns in the scale of the largest one.
    void weigh(int64_t least) {
        int64_t most = least;
        for (const int64_t each : scale) most = most < each ? each : most;
        for (size_t j = 0; j < scale.size(); ++j) weight[j] = power_of(scale[j] - most);
    }
};

}  // namespace
