// Elements of a product that are examined one by one, for check_sums.cpp: which, and what they should be.

#pragma once

#include <cmath>
#include <vector>

#include "check_bits.hpp"
#include "check_tile.hpp"

namespace {

constexpr size_t HEIGHT = 128;  // rows of a tile of A or C, at most; as in check_sums.py

constexpr float SMALL = 1.5f;   // of limits: with the other sign, an element above that is off by three of them

// Of every round, for each column: the sum that it belongs to, and its sign.
struct Rounds {
    const int32_t* sums;
    const double* signs;
    size_t number, sums_of_all;
};

// Elements of C whose error, as the mean of their sums shows it, is above the limit of that mean, and those below SMALL
// times it. The limit of the sum of all sums is a share of the root of the sum of squares of theirs.
template <class T, class Real>
void find_suspects(const Matrix& m, const Rounds& rounds, const void* all_differences, const void* all_limits,
                   double share, void* memory, int32_t* places, size_t most, size_t& number) {
    constexpr size_t ROWS = Of<Real>::ROWS;
    const Vector<Real> none = {};
    const Real squared = static_cast<Real>(share * share), of_size = static_cast<Real>(rounds.number) / SMALL;
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
        load<T, Real, OF_BOTH>(m, row, 0, m.columns, false, nullptr, nullptr, nullptr, buffer);
        for (size_t j = 0; j < m.columns; ++j) {
            Vector<Real> error = none, limit = none;
            for (size_t round = 0; round < rounds.number; ++round) {
                const size_t at = round * m.columns + j;
                const Vector<Real>* of_sum = &of_sums[2 * static_cast<size_t>(rounds.sums[at])];
                error = multiply_add(of_sum[0], static_cast<Real>(rounds.signs[at]), error);
                limit += of_sum[1];
            }
            auto suspicious = error * error > limit;
            const Vector<Real> size = loaded(buffer + j * ROWS) * of_size;
            suspicious |= size * size < limit;
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

template <class T>
void find_small(const Matrix& m, const Rounds& rounds, const double* by_column, const double* largest,
                const double* limits, const uint64_t* row_bits, const uint64_t* column_bits, size_t words,
                int32_t* places, size_t most, int64_t* counts) {
    int64_t found = 0, zeros = 0;
    for (size_t row = 0; row < m.rows; ++row, limits += rounds.sums_of_all) {
        const T* const x = static_cast<const T*>(m.numbers) + row * m.stride;
        const double limit = largest[row];
        int64_t any = 0;
#pragma omp simd reduction(+ : any)
        for (size_t j = 0; j < m.columns; ++j) any += std::fabs(static_cast<double>(number(x[j]))) * by_column[j] <= limit;
        for (size_t j = 0; any && j < m.columns; ++j) {
            const double scaled = static_cast<double>(number(x[j])) * by_column[j], size = std::fabs(scaled);
            if (!(size <= limit)) continue;
            --any;
            double own = -1;
            for (size_t round = 0; round < rounds.number; ++round) {
                const double of_sum = limits[rounds.sums[round * m.columns + j]];
                own = own < of_sum ? of_sum : own;
            }
            if (!(size <= own)) continue;
            const bool zero = number(x[j]) == 0 && !std::signbit(number(x[j]));
            if (zero && row_bits && !meet(row_bits + row * words, column_bits + j * words, words)) continue;
            zeros += zero;
            if (static_cast<size_t>(found++) >= most) continue;
            *places++ = static_cast<int32_t>(row);
            *places++ = static_cast<int32_t>(j);
        }
    }
    counts[0] = found, counts[1] = zeros;
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
