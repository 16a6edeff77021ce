// Sums of groups of columns of C, compared with those of the exact product, for check_sums.cpp.

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "check_examined.hpp"
#include "check_tile.hpp"

namespace {

constexpr size_t LANES = 4;   // terms of a group that are added up side by side
constexpr size_t JOINED = 8;  // blocks whose parts of a sum are added up before they are added to it

// In blocks of so many columns, which fit the cache: the columns that each sum adds, from starts[2 s] on, and those that it
// subtracts, from starts[2 s + 1] on. Each block has starts of its own.
struct Groups {
    const int32_t *columns, *starts;
    size_t sums, width;
};

template <class Real>
struct Total {
    Vector<Real> sum, parts;

    // The number of the block counts from 1; `last`: there is no other one.
    void add(Vector<Real> part, size_t block, bool last) {
        parts += part;
        if (block % JOINED && !last) return;
        sum += parts;
        parts = Vector<Real>{};
    }
};

template <class Real>
inline Vector<Real> total(const Vector<Real> (&parts)[LANES]) {
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// Calls `each(column, lane)` for some columns of a group, whose lanes take turns.
template <class Each>
inline void in_lanes(const int32_t* from, const int32_t* to, Each each) {
    for (; from + LANES <= to; from += LANES)
#pragma GCC unroll 4
        for (size_t i = 0; i < LANES; ++i) each(from[i], i);
#pragma GCC unroll 3
    for (size_t i = 0; i + 1 < LANES; ++i)
        if (from + i < to) each(from[i], i);
}

// Adds columns to parts of a sum, or subtracts them.
template <bool SUBTRACTED, class Real>
inline void add(const Real* numbers, const int32_t* from, const int32_t* to, Vector<Real> (&parts)[LANES]) {
    in_lanes(from, to, [&](int32_t column, size_t i) {
        const Vector<Real> number = loaded(numbers + column * Of<Real>::ROWS);
        parts[i] = SUBTRACTED ? parts[i] - number : parts[i] + number;
    });
}

// The same, and sums of the powers of two below magnitudes, and of their squares.
template <bool SUBTRACTED, class Real>
inline void add_with_powers(const Real* numbers, const int32_t* from, const int32_t* to,
                            Vector<Real> (&parts)[LANES], Vector<Real> (&sums)[2], Vector<Real> (&squares)[2]) {
    in_lanes(from, to, [&](int32_t column, size_t i) {
        const Vector<Real> number = loaded(numbers + column * Of<Real>::ROWS), power = powers(number);
        parts[i] = SUBTRACTED ? parts[i] - number : parts[i] + number;
        sums[i % 2] += power;
        squares[i % 2] += power * power;
    });
}

// What the bounds of sums are made of, as in check_limits.py.
template <class Real>
struct Limits {
    const Real *norms, *halves;            // by row
    const Real *own, *likely, *of_halves;  // by sum
    const Real* own_bounds;                // [sum][HEIGHT], instead of norms * own; or none
    double powers, roundings, underflow, upwards;
};

template <class T, class Real>
void compare_groups(const Matrix& m, const Groups& groups, const void* of_limits, const void* weights,
                    const double* products, double* row_squares, void* memory, void* to, void* to_likely,
                    void* to_most) {
    const Limits<Real>& limits = *static_cast<const Limits<Real>*>(of_limits);
    Real* buffer = static_cast<Real*>(memory);
    struct Sums {
        Total<Real> total;
        Vector<Real> powers, squares;
    };
    std::vector<Sums> sums(groups.sums);
    for (size_t row = 0; row < m.rows; row += Of<Real>::ROWS) {
        std::fill(sums.begin(), sums.end(), Sums{});
        const int32_t* starts = groups.starts;
        for (size_t at = 0, block = 1; at < m.columns; at += groups.width, ++block, ++starts) {
            const size_t width = m.columns - at < groups.width ? m.columns - at : groups.width;
            const bool last = at + width == m.columns;
            load<T, Real, OF_BOTH>(m, row, at, width, false, static_cast<const Real*>(weights), row_squares, nullptr,
                                   buffer);
            for (size_t s = 0; s < groups.sums; ++s, starts += 2) {
                const int32_t* columns = groups.columns;
                Vector<Real> parts[LANES] = {}, powers[2] = {}, squares[2] = {};
                add_with_powers<false>(buffer, columns + starts[0], columns + starts[1], parts, powers, squares);
                add_with_powers<true>(buffer, columns + starts[1], columns + starts[2], parts, powers, squares);
                sums[s].total.add(total<Real>(parts), block, last);
                sums[s].powers += powers[0] + powers[1];
                sums[s].squares += squares[0] + squares[1];
            }
        }
        const Vector<Real> norms = loaded(limits.norms + row), halves = loaded(limits.halves + row);
        for (size_t s = 0; s < groups.sums; ++s) {
            const size_t at = s * HEIGHT + row;
            Vector<Real> product;
            for (size_t i = 0; i < Of<Real>::ROWS; ++i) product[i] = static_cast<Real>(products[at + i]);
            store(static_cast<Real*>(to) + at, product - sums[s].total.sum);
            const Vector<Real> others = halves * limits.of_halves[s] + static_cast<Real>(limits.underflow);
            const Vector<Real> own = limits.own_bounds ? loaded(limits.own_bounds + at) : norms * limits.own[s];
            const Vector<Real> most = (others + own + sums[s].powers * static_cast<Real>(limits.powers)) *
                                      static_cast<Real>(limits.upwards);
            Vector<Real> likely = others + norms * limits.likely[s];
            for (size_t i = 0; i < Of<Real>::ROWS; ++i)
                likely[i] += root(sums[s].squares[i]) * static_cast<Real>(limits.roundings);
            store(static_cast<Real*>(to_likely) + at, likely < most ? likely : most);
            store(static_cast<Real*>(to_most) + at, most);
        }
    }
}

// Sums that differ more than is likely, but for rows that are compared elsewhere. In units of the size of a row, if it has
// one, writes the largest errors that may hide in sums that do not, and in those that differ by no more than right ones.
template <class Real>
void judge_sums(size_t rows, size_t sums, const void* of_differences, const void* of_likely, const void* of_most,
                const double* sizes, const uint8_t* elsewhere, double* admitted, size_t& off) {
    const Real* differences = static_cast<const Real*>(of_differences);
    const Real *likely = static_cast<const Real*>(of_likely), *most = static_cast<const Real*>(of_most);
    Real passing[HEIGHT] = {}, right[HEIGHT] = {};
    unsigned outside[HEIGHT] = {};
    for (size_t s = 0; s < sums; ++s, differences += HEIGHT, likely += HEIGHT, most += HEIGHT)
        for (size_t row = 0; row < rows; ++row) {
            const Real size = differences[row] < 0 ? -differences[row] : differences[row];
            const Real both = likely[row] + most[row], twice = 2 * most[row];
            outside[row] += !((size <= likely[row]) & (size < INFINITY));  // scaling may overflow
            passing[row] = passing[row] < both ? both : passing[row];
            right[row] = right[row] < twice ? twice : right[row];
        }
    for (size_t row = 0; row < rows; ++row) {
        if (!elsewhere[row]) off += outside[row];
        if (!(sizes[row] > 0)) continue;
        const double shares[2] = {passing[row] / sizes[row], right[row] / sizes[row]};
        for (size_t i = 0; i < 2; ++i) admitted[i] = admitted[i] < shares[i] ? shares[i] : admitted[i];
    }
}

}  // namespace
