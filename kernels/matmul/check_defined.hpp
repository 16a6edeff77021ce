// Elements of products of floats by their definition, to the last bit: for check_defined.cpp and check_each.cpp.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

// As in check_defined.py: what formats.py says of a dtype, and its infinity and its sign as bits.
struct Definition {
    int64_t precision, least, kept, bits, lost, half_way;
    double share;  // of a sum of magnitudes that an element may be off by, in units of 2**-precision
    uint64_t infinity, sign;
};

// Of the numbers of a row or a column, or of some of them.
struct Facts {
    int64_t moved;        // the least power of two above what rounding has moved any, in units of the integers
    int64_t first, last;  // places of the first and the last that is not zero
    int64_t size;         // sum of the leading bits of all, each rounded up

    void begin() { moved = INT64_MIN, first = INT64_MAX, last = -1, size = 0; }
};

// A sum of products of integers, ((high * 2**32 + upper) * 2**32 + middle) * 2**32 + low, and the sum of those of their
// leading bits.
struct Terms {
    int64_t high, upper, middle, low, leading;
};

namespace {

constexpr int64_t WORD = int64_t(1) << 32;
constexpr size_t MOST_TERMS = size_t(1) << 16;  // whose products 128 bits can add up

inline double power_of(int64_t exponent) {
    if (exponent < -1022 || exponent > 1023) return std::ldexp(1.0, static_cast<int>(exponent));
    const uint64_t bits = static_cast<uint64_t>(exponent + 1023) << 52;
    double power;
    std::memcpy(&power, &bits, sizeof power);
    return power;
}

// Numbers of a line whose magnitudes are below 2**exponent, from this place on, as integers.
inline void to_integers(const double* x, size_t n, int64_t exponent, int64_t place, const Definition& of, int64_t* out,
                        Facts& facts) {
    const int64_t shift = of.kept - exponent, leading = of.kept - of.bits;
    const double first = power_of(shift / 2), second = power_of(shift - shift / 2);
    double most = 0;
    int64_t size = 0, nonzero = 0, lost = 0;
#pragma omp simd reduction(max : most) reduction(+ : size, nonzero, lost)
    for (size_t k = 0; k < n; ++k) {
        const double scaled = x[k] * first * second, whole = std::rint(scaled), moved = std::fabs(scaled - whole);
        const double own = whole != 0 ? moved : 0;
        const int64_t integer = static_cast<int64_t>(whole);
        out[k] = integer;
        most = most < own ? own : most;
        size += (integer < 0 ? -integer : integer) >> leading;
        nonzero += x[k] != 0;
        lost += (x[k] != 0) & (whole == 0);
    }
    if (!nonzero) return;
    facts.size += size + nonzero;
    size_t at = 0;
    while (x[at] == 0) ++at;
    facts.first = facts.first < place + static_cast<int64_t>(at) ? facts.first : place + static_cast<int64_t>(at);
    for (at = n - 1; x[at] == 0;) --at;
    facts.last = place + static_cast<int64_t>(at);
    const auto moved_below = [&facts](int64_t power) { facts.moved = facts.moved < power ? power : facts.moved; };
    int own;
    if (most > 0) std::frexp(most, &own), moved_below(own);
    for (size_t k = 0; lost && k < n; ++k) {  // scaled, these may have underflowed
        if (out[k] || x[k] == 0) continue;
        std::frexp(x[k], &own);
        moved_below(own + shift);
        --lost;
    }
}

// Adds at most MOST_TERMS products of integers up to 2**55.
inline void add_integers(const int64_t* x, const int64_t* y, size_t n, const Definition& of, Terms& terms) {
    const int64_t shift = of.kept - of.bits;
    __int128 sum = 0;
    int64_t leading = 0;
    for (size_t k = 0; k < n; ++k) sum += static_cast<__int128>(x[k]) * y[k];
    for (size_t k = 0; k < n; ++k) leading += (std::abs(x[k]) >> shift) * (std::abs(y[k]) >> shift);
    const auto word = [sum](int bits) { return static_cast<int64_t>(static_cast<uint32_t>(sum >> bits)); };
    terms.high += static_cast<int64_t>(sum >> 96);
    terms.upper += word(64), terms.middle += word(32), terms.low += word(0);
    terms.leading += leading;
}

// Whether the integers are close enough to the numbers that they are rounded from. By definition the sum of leading bits
// saturates; from there on every element is certain.
inline bool is_certain(const Terms& terms, const Facts& row, const Facts& column, int64_t inner, const Definition& of) {
    const bool of_row = row.moved != INT64_MIN, of_column = column.moved != INT64_MIN;
    if ((row.first < column.first ? column.first : row.first) > (row.last < column.last ? row.last : column.last)) return true;
    const auto loss = [&of](int64_t moved) {
        const int64_t own = moved - of.kept + of.bits, least = 1 - of.lost;
        return own < least ? least : own;
    };
    double bound = of_row ? static_cast<double>(column.size) * power_of(loss(row.moved) + of.precision) : 0;
    bound += of_column ? static_cast<double>(row.size) * power_of(loss(column.moved) + of.precision) : 0;
    if (of_row && of_column)
        bound += static_cast<double>(inner) * power_of(loss(row.moved) + loss(column.moved) + of.precision);
    return bound <= static_cast<double>(terms.leading) * of.share;
}

// The bits of a sum times a power of two, rounded once.
inline uint64_t rounded(const Terms& terms, int64_t exponent, const Definition& of) {
    typedef unsigned __int128 Wide;
    const __int128 lower = static_cast<__int128>(terms.middle) * WORD + terms.low;
    __int128 upper = static_cast<__int128>(terms.high) * WORD + terms.upper + (lower >> 64);
    uint64_t rest = static_cast<uint64_t>(lower);  // below 2**64; above that `upper`
    const bool negative = upper < 0;
    if (negative) {
        rest = ~rest + 1;
        upper = -upper - (rest != 0);
    }
    const Wide most = static_cast<Wide>(upper);
    if (!most && !rest) return 0;
    const uint64_t top = static_cast<uint64_t>(most >> 64), second = static_cast<uint64_t>(most), leading = top ? top : second ? second : rest;
    const int64_t length = (top ? 192 : second ? 128 : 64) - __builtin_clzll(leading);
    const int64_t normal = length + exponent - of.precision, quantum = normal < of.least ? of.least : normal;
    const int64_t dropped = quantum - exponent;  // bits
    Wide kept = 0;
    if (dropped <= 0) {
        kept = static_cast<Wide>(rest) << -dropped;  // all are below 2**precision
    } else if (dropped <= length) {
        // What is kept, and one bit more.
        const int64_t below = dropped - 1;
        kept = below < 64 ? most << (64 - below) | rest >> below : most >> (below - 64);
        const bool half = kept & 1;
        kept >>= 1;
        const bool more = below < 64 ? rest & ((uint64_t(1) << below) - 1) : rest || (most & ((Wide(1) << (below - 64)) - 1));
        kept += half && (more || (kept & 1));
    }
    uint64_t bits = static_cast<uint64_t>(kept);
    if (kept) {
        const uint64_t step = static_cast<uint64_t>(quantum - of.least), most_steps = of.infinity >> (of.precision - 1);
        bits = step < most_steps ? bits + (step << (of.precision - 1)) : of.infinity;
        bits = bits < of.infinity ? bits : of.infinity;
    }
    return negative ? bits | of.sign : bits;
}

// The same of a finite number.
inline uint64_t rounded(double x, int64_t exponent, const Definition& of) {
    int own;
    const int64_t integer = static_cast<int64_t>(std::frexp(x, &own) * 0x1p53);
    return rounded(Terms{0, 0, integer >> 32, integer & 0xffffffff, 0}, own - 53 + exponent, of);
}

}  // namespace
