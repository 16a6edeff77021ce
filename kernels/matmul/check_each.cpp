// Elements of products of floats, each compared with its sum of products, for check_each.py. docs/verification.md has the
// bounds: numbers are rounded as the definition says, and scaled to magnitudes up to 1. What does not fit, and what these
// bounds could hide, has to equal the definition.

#include <cmath>
#include <vector>

#include "check_lines.hpp"

namespace {

constexpr size_t HIGH = 32, WIDE = 128;  // rows and columns that are compared at a time

}  // namespace

// Matrices, whose numbers, rows and matrices are so many numbers apart. `of` has the number of each.
struct Stack {
    const void* numbers;
    int64_t matrix, row;
    const int64_t* of;
};

namespace {

// Wrong elements: matrix, row and column of as many as there is room for.
struct Wrong {
    int64_t* places;
    size_t most, number, matrix;

    void add(size_t row, size_t column) {
        if (number < most) {
            int64_t* const place = places + 3 * number;
            place[0] = static_cast<int64_t>(matrix);
            place[1] = static_cast<int64_t>(row);
            place[2] = static_cast<int64_t>(column);
        }
        ++number;
    }
};

template <class T>
class Matrices {
  public:
    Matrices(size_t inner, size_t columns, const Bounds& bounds, const Definition& definition)
        : inner_(inner), columns_(columns), bounds_(bounds), definition_(definition), of_columns_(columns), line_(inner),
          row_(inner), block_(inner * WIDE), facts_(WIDE) {}

    // The next matrices, whose rows are so many numbers apart.
    void take(const T* a, int64_t a_row, const T* b, int64_t b_row, const T* c, int64_t c_row) {
        a_ = a, b_ = b, c_ = c, a_row_ = a_row, b_row_ = b_row, c_row_ = c_row;
        for (size_t at = 0; at < columns_; at += WIDE) {
            const size_t wide = columns_ - at < WIDE ? columns_ - at : WIDE;
            Line lines[WIDE];
            for (size_t j = 0; j < wide; ++j) lines[j].begin();
            for (size_t k = 0; k < inner_; ++k)
                for (size_t j = 0; j < wide; ++j) lines[j].measure(exactly(this->b(k, at + j)));
            for (size_t j = 0; j < wide; ++j) {
                lines[j].settle(bounds_);
                of_columns_.take(at + j, lines[j]);
            }
        }
        of_columns_.weigh(bounds_.least_scale);
    }
    // Compares some rows with their sums. Raises `share` to what may have gone unnoticed, in units of the root mean square
    // of a row.
    void compare(size_t row, size_t high, double& share, Wrong& wrong) {
        Line of_rows[HIGH];
        double most[HIGH], squares[HIGH];
        for (size_t i = 0; i < high; ++i) {
            of_rows[i].begin();
            most[i] = squares[i] = 0;
            for (size_t k = 0; k < inner_; ++k) of_rows[i].measure(exactly(a(row + i, k)));
            of_rows[i].settle(bounds_);
        }
        for (size_t at = 0; at < columns_; at += WIDE) {
            const size_t wide = columns_ - at < WIDE ? columns_ - at : WIDE;
            add(row, high, at, wide, of_rows);
            has_block_ = false;
            for (size_t i = 0; i < high; ++i)
                compare_row(row + i, of_rows[i], at, wide, sums_[i], most[i], squares[i], wrong);
        }
        for (size_t i = 0; i < high; ++i) {
            const double size = std::sqrt(squares[i] / static_cast<double>(columns_));
            const double own = size > 0 ? 2 * most[i] / size : 0;
            share = share < own ? own : share;
        }
    }

  private:
    T a(size_t i, size_t k) const { return a_[static_cast<int64_t>(i) * a_row_ + static_cast<int64_t>(k)]; }
    T b(size_t k, size_t j) const { return b_[static_cast<int64_t>(k) * b_row_ + static_cast<int64_t>(j)]; }

    // Sums of products, of rounded numbers and as they are, and of their magnitudes.
    struct Sums {
        double rounded[WIDE], rounded_sizes[WIDE], plain[WIDE], sizes[WIDE];
    };
    void add(size_t row, size_t high, size_t at, size_t wide, const Line (&of_rows)[HIGH]) {
        for (size_t i = 0; i < high; ++i)
            for (size_t j = 0; j < wide; ++j)
                sums_[i].rounded[j] = sums_[i].rounded_sizes[j] = sums_[i].plain[j] = sums_[i].sizes[j] = 0;
        double line[WIDE], plain_line[WIDE];
        const double *const first = &of_columns_.first[at], *const second = &of_columns_.second[at];
        const double *const last = &of_columns_.last[at], *const plain = &of_columns_.plain[at];
        for (size_t k = 0; k < inner_; ++k) {
            const T* const from = b_ + static_cast<int64_t>(k) * b_row_ + static_cast<int64_t>(at);
            for (size_t j = 0; j < wide; ++j) {
                const double y = static_cast<double>(number(from[j]));
                line[j] = whole(y * first[j] * second[j]) * last[j];
                plain_line[j] = y * plain[j];
            }
            for (size_t i = 0; i < high; ++i) {
                const Line& own = of_rows[i];
                const double x = exactly(a(row + i, k)), plain_x = x * own.plain;
                const double rounded_x = whole(x * own.first * own.second) * own.last;
                Sums& sums = sums_[i];
                for (size_t j = 0; j < wide; ++j) {
                    const double rounded_term = rounded_x * line[j], term = plain_x * plain_line[j];
                    sums.rounded[j] += rounded_term;
                    sums.rounded_sizes[j] += std::fabs(rounded_term);
                    sums.plain[j] += term;
                    sums.sizes[j] += std::fabs(term);
                }
            }
        }
    }
    // Part of a row: elements have to be near both sums, as one that is uncertain may be near the first by being lost.
    // Whatever is infinite or NaN is never right here.
    void compare_row(size_t row, const Line& line, size_t at, size_t wide, const Sums& sums, double& most,
                     double& squares, Wrong& wrong) {
        const T* const elements = c_ + static_cast<int64_t>(row) * c_row_ + static_cast<int64_t>(at);
        const double *const half = &of_columns_.half[at], *const rest = &of_columns_.rest[at];
        const double* const weight = &of_columns_.weight[at];
        const double least = power_of(bounds_.least - 1 - line.scale), conventional = bounds_.conventional + bounds_.own;
        double largest = 0, total = 0, got[WIDE];
        size_t others_than_right = 0;
        uint8_t right[WIDE];
#pragma omp simd reduction(max : largest) reduction(+ : total, others_than_right)
        for (size_t j = 0; j < wide; ++j) {
            got[j] = static_cast<double>(number(elements[j])) * line.half * half[j] * line.rest * rest[j];
            const double size = std::fabs(got[j]), rounding = bounds_.half * size;
            const double others = least * half[j] * rest[j] + bounds_.underflow;
            const double own = others + bounds_.own * sums.rounded_sizes[j], wide_own = others + conventional * sums.sizes[j];
            const double bound = (rounding + own) * bounds_.upwards, widest = (rounding + wide_own) * bounds_.upwards;
            right[j] = (std::fabs(sums.rounded[j] - got[j]) <= bound) & (std::fabs(sums.plain[j] - got[j]) <= widest) &
                       (bound < INFINITY) & (size > bounds_.small * wide_own);
            const double weighted = right[j] ? got[j] * weight[j] : 0, passed = right[j] ? bound : 0;
            largest = largest < passed ? passed : largest;
            total += weighted * weighted;
            others_than_right += 1 - right[j];
        }
        most = most < largest ? largest : most;
        squares += total;
        bool has_row = false;
        for (size_t j = 0; others_than_right && j < wide; ++j) {
            if (right[j]) continue;
            const bool special = line.special || of_columns_.special[at + j];
            if (!special && !has_block_) convert_block(at, wide);
            if (!special && !has_row) row_facts_ = converted(row, line);
            has_block_ |= !special, has_row |= !special;
            if (special ? !is_right_special(row, at + j, elements[j]) : !is_defined(row, line, at + j, j, elements[j])) {
                wrong.add(row, at + j);
            } else if (std::isfinite(got[j])) {
                squares += got[j] * weight[j] * (got[j] * weight[j]);
            }
        }
    }
    // Of a row and a column with infinities or NaN: those of the terms with infinities or NaN.
    bool is_right_special(size_t i, size_t j, T element) const {
        double terms = 0;
        for (size_t k = 0; k < inner_; ++k) {
            const double x = exactly(a(i, k)), y = exactly(b(k, j));
            if (!std::isfinite(x) || !std::isfinite(y)) terms += x * y;
        }
        const uint64_t nan = definition_.infinity | uint64_t(1) << (definition_.precision - 2);
        return std::isnan(terms) ? bits_of(element) == nan : exactly(element) == terms;
    }
    // Some columns, and a row, as integers.
    void convert_block(size_t at, size_t wide) {
        for (size_t j = 0; j < wide; ++j) {
            if (of_columns_.special[at + j]) continue;
            for (size_t k = 0; k < inner_; ++k) line_[k] = exactly(b(k, at + j));
            facts_[j].begin();
            to_integers(line_.data(), inner_, of_columns_.exponent[at + j], 0, definition_, &block_[j * inner_], facts_[j]);
        }
    }
    Facts converted(size_t i, const Line& line) {
        Facts facts;
        facts.begin();
        for (size_t k = 0; k < inner_; ++k) line_[k] = exactly(a(i, k));
        to_integers(line_.data(), inner_, line.exponent, 0, definition_, row_.data(), facts);
        return facts;
    }
    // Whether an element has the bits of its definition; `place`: its column in the block.
    bool is_defined(size_t i, const Line& line, size_t j, size_t place, T element) const {
        const int64_t exponents = line.exponent + of_columns_.exponent[j];
        Terms terms = {};
        add_integers(row_.data(), &block_[place * inner_], inner_, definition_, terms);
        if (is_certain(terms, row_facts_, facts_[place], static_cast<int64_t>(inner_), definition_))
            return bits_of(element) == rounded(terms, exponents - 2 * definition_.kept, definition_);
        const double sum = in_order(i, 1, j, 1);
        if (std::isfinite(sum)) return bits_of(element) == rounded(sum, 0, definition_);
        const double of_row = power_of(definition_.half_way - line.exponent);
        const double of_column = power_of(definition_.half_way - of_columns_.exponent[j]);
        return bits_of(element) == rounded(in_order(i, of_row, j, of_column), exponents - 2 * definition_.half_way, definition_);
    }
    double in_order(size_t i, double of_row, size_t j, double of_column) const {
        double sum = 0;
        for (size_t k = 0; k < inner_; ++k) sum += exactly(a(i, k)) * of_row * (exactly(b(k, j)) * of_column);
        return sum;
    }

    const T *a_, *b_, *c_;
    int64_t a_row_, b_row_, c_row_;
    const size_t inner_, columns_;
    const Bounds bounds_;
    const Definition definition_;
    Columns of_columns_;
    Sums sums_[HIGH];
    std::vector<double> line_;
    std::vector<int64_t> row_, block_;  // integers of a row, and of the columns that are compared
    std::vector<Facts> facts_;
    Facts row_facts_;
    bool has_block_;
};

template <class T>
size_t compare_all(const Stack& a, const Stack& b, const Stack& c, size_t matrices, size_t rows, size_t inner,
                   size_t columns, const Bounds& bounds, const Definition& definition, double& share, int64_t* places,
                   size_t most) {
    Matrices<T> own(inner, columns, bounds, definition);
    Wrong wrong{places, most, 0, 0};
    for (size_t m = 0; m < matrices; ++m) {
        const auto at = [m](const Stack& stack) {
            return static_cast<const T*>(stack.numbers) + stack.of[m] * stack.matrix;
        };
        own.take(at(a), a.row, at(b), b.row, at(c), c.row);
        wrong.matrix = m;
        for (size_t i = 0; i < rows; i += HIGH) own.compare(i, rows - i < HIGH ? rows - i : HIGH, share, wrong);
    }
    return wrong.number;
}

}  // namespace

// Numbered as in check_lines.py.
enum Type { FLOAT16, FLOAT32, FLOAT64 };

// Matrices of C, whole rows of them, against those of A and B: how many elements are wrong, and the places of the first
// ones, each a matrix, a row and a column. `share` is raised to the largest error of others that may
// have gone unnoticed, in units of the root mean square of a row.
extern "C" size_t compare(int type, const Stack* a, const Stack* b, const Stack* c, size_t matrices, size_t rows,
                          size_t inner, size_t columns, const Bounds* bounds, const Definition* definition, double* share,
                          int64_t* places, size_t most) {
    switch (type) {
        case FLOAT16:
            return compare_all<Half>(*a, *b, *c, matrices, rows, inner, columns, *bounds, *definition, *share, places, most);
        case FLOAT32:
            return compare_all<float>(*a, *b, *c, matrices, rows, inner, columns, *bounds, *definition, *share, places, most);
        default:
            return compare_all<double>(*a, *b, *c, matrices, rows, inner, columns, *bounds, *definition, *share, places, most);
    }
}
