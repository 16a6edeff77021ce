// Elements of a product that are examined one by one, for check_sums.cpp: which, and what they should be.

#pragma once

#include <vector>

#include "check_tile.hpp"

namespace {

constexpr size_t HEIGHT = 128;  // rows of a tile of A or C, at most; as in check_sums.py

// Of every round, for each column: the sum that it belongs to, and its sign.
struct Rounds {
    const int32_t* sums;
    const double* signs;
    size_t number, sums_of_all;
};

// Elements of C whose error, as the mean of their sums shows it, is above the limit of that mean; with `small` also those
// below half of it. The limit of the sum of all sums is a share of the root of the sum of squares of theirs.
template <class T, class Real>
void find_suspects(const Matrix& m, const Rounds& rounds, const void* all_differences, const void* all_limits,
                   double share, bool small, void* memory, int32_t* places, size_t most, size_t& number) {
    constexpr size_t ROWS = Of<Real>::ROWS;
    const Vector<Real> none = {};
    const Real squared = static_cast<Real>(share * share);
    const Real *differences = static_cast<const Real*>(all_differences), *limits = static_cast<const Real*>(all_limits);
    Real* buffer = static_cast<Real*>(memory);
    // Of these rows, beside one another: what sums are off by, and the squares of their limits.
    std::vector<Vector<Real>> of_sums(2 * rounds.sums_of_all);
    for (size_t row = 0; row < m.rows; row += ROWS) {
        for (size_t sum = 0; sum < rounds.sums_of_all; ++sum) {
            const Vector<Real> limit = loaded(limits + sum * HEIGHT + row);
            of_sums[2 * sum] = loaded(differences + sum * HEIGHT + row);
            of_sums[2 * sum + 1] = limit * limit * squared;
        }
        if (small) load<T, Real, OF_BOTH>(m, row, 0, m.columns, false, nullptr, nullptr, nullptr, buffer);
        for (size_t j = 0; j < m.columns; ++j) {
            Vector<Real> error = none, limit = none;
            for (size_t round = 0; round < rounds.number; ++round) {
                const size_t at = round * m.columns + j;
                const Vector<Real>* of_sum = &of_sums[2 * static_cast<size_t>(rounds.sums[at])];
                error = multiply_add(of_sum[0], static_cast<Real>(rounds.signs[at]), error);
                limit += of_sum[1];
            }
            auto suspicious = error * error > limit;
            if (small) {
                const Vector<Real> twice = loaded(buffer + j * ROWS) * static_cast<Real>(2 * rounds.number);
                suspicious |= twice * twice < limit;
            }
            uint64_t words[BYTES / 8], any = 0;
            std::memcpy(words, &suspicious, sizeof words);
            for (uint64_t word : words) any |= word;
            if (!any) continue;
            for (size_t i = 0; i < ROWS && row + i < m.rows; ++i)
                if (suspicious[i] && number++ < most) {
                    *places++ = static_cast<int32_t>(row + i);
                    *places++ = static_cast<int32_t>(j);
                }
        }
    }
}

// Adds to some elements of a product, given by row and column, the products of INNER numbers at most. They are added up
// in vectors first.
template <class T, class Real>
void add_dots(const Matrix& a, const Matrix& b, const int32_t* places, size_t number, void* memory, double* out) {
    constexpr size_t ROWS = Of<Real>::ROWS;
    const size_t vectors = (b.rows + ROWS - 1) / ROWS, length = vectors * ROWS;
    Real *columns = static_cast<Real*>(memory), *lines = columns + length * b.columns;
    for (size_t k = 0; k < b.rows; k += ROWS)
        load<T, Real, OF_COLUMNS>(b, k, 0, b.columns, false, nullptr, nullptr, nullptr, columns + k * b.columns);
    for (size_t i = 0; i < a.rows; ++i) {
        const Real* const none[3] = {};
        Real by_row[3];
        for (size_t k = 0; k < 3; ++k) by_row[k] = static_cast<const Real*>(a.by_row[k])[i];
        const T* x = static_cast<const T*>(a.numbers) + i * a.stride;
        convert<T, Real, OF_ROWS>(x, a.columns, by_row, none, 0, lines + i * length);
        for (size_t k = a.columns; k < length; ++k) lines[i * length + k] = 0;
    }
    for (size_t n = 0; n < number; ++n, places += 2) {
        const Real *line = lines + static_cast<size_t>(places[0]) * length;
        const Real *column = columns + static_cast<size_t>(places[1]) * ROWS;
        Vector<Real> sum = {};
        for (size_t k = 0; k < vectors; ++k)
            sum += loaded(line + k * ROWS) * loaded(column + k * ROWS * b.columns);
        Real parts[ROWS];
        store(parts, sum);
#pragma GCC unroll 4
        for (size_t half = ROWS / 2; half; half /= 2)
#pragma GCC unroll 8
            for (size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
        out[n] += static_cast<double>(parts[0]);
    }
}

}  // namespace
