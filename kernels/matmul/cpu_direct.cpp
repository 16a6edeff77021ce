// Elements of products by their definition, docs/matmul.md, for cpu_direct.py: where sums are short, or lines are few.
//
// Numbers of a tile of C become integers of 64 bits, in blocks of DEPTH products. Sums of their products have 128 bits and
// are rounded once. Whatever is not certain of this is said to be so: then none of it counts.

#include "cpu_direct.hpp"

namespace {

// A tile: rows of A and columns of B, and what their products add up to.
class Tile {
  public:
    Tile(const Stack& a, const Stack& b, size_t inner, const Format& format)
        : a_(a), b_(b), inner_(inner), format_(format), whole_(SIDE * LENGTH), tops_(SIDE * DEPTH),
          sums_(SIDE * SIDE), totals_(SIDE * SIDE) {}

    // Adds up the products of rows of A and columns of B, whose first numbers are these; false if one does not fit.
    bool add(int64_t rows_at, size_t rows, int64_t columns_at, size_t columns) {
        rows_ = rows, columns_ = columns, rows_at_ = rows_at, columns_at_ = columns_at;
        ordered_ = SIDE, ends_known_ = false;
        const bool floats = a_.type >= FLOAT32;
        if (floats) measure_lines();
        bool fits = true;
        for (size_t k = 0; k < inner_ || !k; k += DEPTH) {
            const size_t depth = inner_ - k < DEPTH ? inner_ - k : DEPTH;
            fits &= floats ? add_floats(k, depth) : add_integers(k, depth);
        }
        if (floats) {
            of_rows_.finish(rows_, format_);
            of_columns_.finish(columns_, format_);
        }
        return fits;
    }
    // Bits of an element; counts it if it is computed term by term.
    uint64_t element(size_t i, size_t j, uint64_t& uncertain) {
        if (of_rows_.special[i] || of_columns_.special[j]) return of_specials(i, j);
        const int64_t of_row = of_rows_.exponent[i], of_column = of_columns_.exponent[j];
        if (certain(i, j)) return rounded(sum(i, j), of_row + of_column - 2 * format_.kept, format_);
        ++uncertain;
        if (ordered_ != i) add_in_order(i);
        const double total = in_order_[j];
        if (std::isfinite(total)) return rounded(total, 0, format_);
        const double power_a = power_of_two(format_.half_way - of_row), power_b = power_of_two(format_.half_way - of_column);
        return rounded(scaled_in_order(i, j, power_a, power_b), of_row + of_column - 2 * format_.half_way, format_);
    }
    Wide sum(size_t i, size_t j) const { return sums_[i * SIDE + j]; }

  private:
    int64_t row_at(size_t i, size_t k) const {
        return rows_at_ + static_cast<int64_t>(i) * a_.row + static_cast<int64_t>(k);
    }
    int64_t column_at(size_t k, size_t j) const {
        return columns_at_ + static_cast<int64_t>(k) * b_.row + static_cast<int64_t>(j);
    }
    void measure_lines() {
        double line[DEPTH];
        of_rows_.begin(rows_);
        of_columns_.begin(columns_);
        for (size_t i = 0; i < rows_; ++i)
            for (size_t k = 0; k < inner_; k += DEPTH) {
                const size_t depth = inner_ - k < DEPTH ? inner_ - k : DEPTH;
                load(a_, row_at(i, k), depth, line);
                double largest = of_rows_.largest[i];
                uint8_t special = of_rows_.special[i];
#pragma omp simd reduction(max : largest) reduction(| : special)
                for (size_t l = 0; l < depth; ++l) measure(line[l], largest, special);
                of_rows_.largest[i] = largest;
                of_rows_.special[i] = special;
            }
        for (size_t k = 0; k < inner_; ++k) {
            load(b_, column_at(k, 0), columns_, line);
#pragma omp simd
            for (size_t j = 0; j < columns_; ++j) measure(line[j], of_columns_.largest[j], of_columns_.special[j]);
        }
        of_rows_.settle(rows_, format_.kept);
        of_columns_.settle(columns_, format_.kept);
    }
    // Products of sums from the k-th on.
    bool add_floats(size_t k, size_t depth) {
        double line[DEPTH];
        int64_t row[DEPTH];
        int32_t tops[DEPTH];
        Lines &of_rows = of_rows_, &of_columns = of_columns_;
        for (size_t l = 0; l < depth; ++l) {
            load(b_, column_at(k + l, 0), columns_, line);
            int32_t* const to = &tops_[l * SIDE];
#pragma omp simd
            for (size_t j = 0; j < columns_; ++j)
                row[j] = taken(line[j], of_columns.first[j], of_columns.second[j], below_, of_columns.lost[j],
                               of_columns.size[j], to[j]);
            for (size_t j = 0; j < columns_; ++j) whole_[j * LENGTH + l] = row[j];
        }
        for (size_t i = 0; i < rows_; ++i) {
            load(a_, row_at(i, k), depth, line);
            double lost = of_rows.lost[i], size = 0;
            const double first = of_rows.first[i], second = of_rows.second[i];
#pragma omp simd reduction(max : lost) reduction(+ : size)
            for (size_t l = 0; l < depth; ++l)
                row[l] = taken(line[l], first, second, below_, lost, size, tops[l]);
            of_rows.lost[i] = lost;
            of_rows.size[i] += size;
            for (size_t j = 0; j < columns_; ++j) {
                const int64_t* const column = &whole_[j * LENGTH];
                Wide sum = k ? sums_[i * SIDE + j] : 0;
                for (size_t l = 0; l < depth; ++l) sum += static_cast<Wide>(row[l]) * column[l];
                sums_[i * SIDE + j] = sum;
            }
            uint32_t totals[SIDE] = {};  // below 2**22
            for (size_t l = 0; l < depth; ++l)
                for (size_t j = 0; j < columns_; ++j) totals[j] += static_cast<uint32_t>(tops[l] * tops_[l * SIDE + j]);
            for (size_t j = 0; j < columns_; ++j)
                totals_[i * SIDE + j] = (k ? totals_[i * SIDE + j] : 0) + static_cast<double>(totals[j]);
        }
        return true;
    }
    bool add_integers(size_t k, size_t depth) {
        int64_t row[DEPTH];
        bool large = false;
        for (size_t l = 0; l < depth; ++l) {
            load(b_, column_at(k + l, 0), columns_, row);
            for (size_t j = 0; j < columns_; ++j) {
                large |= b_.type == UINT64 && row[j] < 0;
                whole_[j * LENGTH + l] = row[j];
            }
        }
        for (size_t i = 0; i < rows_; ++i) {
            load(a_, row_at(i, k), depth, row);
            for (size_t l = 0; l < depth; ++l) large |= a_.type == UINT64 && row[l] < 0;
            for (size_t j = 0; j < columns_; ++j) {
                const int64_t* const column = &whole_[j * LENGTH];
                Wide sum = k ? sums_[i * SIDE + j] : 0;
                for (size_t l = 0; l < depth; ++l)
                    large |= __builtin_add_overflow(sum, static_cast<Wide>(row[l]) * column[l], &sum);
                sums_[i * SIDE + j] = sum;
            }
        }
        return !large;
    }
    bool certain(size_t i, size_t j) {
        const double of_row = of_rows_.loss[i], of_column = of_columns_.loss[j], total = totals_[i * SIDE + j];
        double moved = of_row * of_columns_.size[j];
        moved += of_column * of_rows_.size[i];
        moved += of_row * (of_column * both_) * static_cast<double>(inner_);
        return moved <= (total < format_.most_total ? total : format_.most_total) * format_.share || is_empty(i, j);
    }
    // Whether all numbers of a row that are not zero come before or after those of a column.
    bool is_empty(size_t i, size_t j) {
        if (!ends_known_) find_ends();
        return begin_[0][i] >= end_[1][j] || begin_[1][j] >= end_[0][i];
    }
    // Of each row and column, the place of its first number that is not zero, and the one after its last.
    void find_ends() {
        ends_known_ = true;
        for (size_t n = 0; n < 2; ++n)
            for (size_t line = 0; line < (n ? columns_ : rows_); ++line) {
                size_t begin = inner_, end = 0;
                for (size_t k = 0; k < inner_; ++k)
                    if ((n ? of_column(k, line) : of_row(line, k)) != 0) begin = end ? begin : k, end = k + 1;
                begin_[n][line] = begin, end_[n][line] = end;
            }
    }
    double of_row(size_t i, size_t k) const { return number(a_, row_at(i, k)); }
    double of_column(size_t k, size_t j) const { return number(b_, column_at(k, j)); }
    static double number(const Stack& stack, int64_t at) {
        double x;
        load(stack, at, 1, &x);
        return x;
    }
    // Of a row, all sums of products, each rounded, rounded after each addition: side by side they take hardly longer
    // than the one that is asked for, and its neighbours mostly follow.
    void add_in_order(size_t i) {
        double row[DEPTH], line[DEPTH];
        ordered_ = i;
        for (size_t j = 0; j < columns_; ++j) in_order_[j] = 0;
        for (size_t k = 0; k < inner_; k += DEPTH) {
            const size_t depth = inner_ - k < DEPTH ? inner_ - k : DEPTH;
            load(a_, row_at(i, k), depth, row);
            for (size_t l = 0; l < depth; ++l) {
                load(b_, column_at(k + l, 0), columns_, line);
#pragma omp simd
                for (size_t j = 0; j < columns_; ++j) in_order_[j] += row[l] * line[j];
            }
        }
    }
    // One of them, of numbers times these powers of two.
    double scaled_in_order(size_t i, size_t j, double power_a, double power_b) const {
        double sum = 0;
        for (size_t k = 0; k < inner_; ++k) sum += (of_row(i, k) * power_a) * (of_column(k, j) * power_b);
        return sum;
    }
    // The infinity or NaN that the terms with infinities and NaN add up to; NaN with the bits of NumPy's.
    uint64_t of_specials(size_t i, size_t j) const {
        double sum = 0;
        for (size_t k = 0; k < inner_; ++k) {
            const double x = of_row(i, k), y = of_column(k, j);
            if (!std::isfinite(x) || !std::isfinite(y)) sum += x * y;
        }
        if (std::isnan(sum)) return format_.infinity | uint64_t(1) << (format_.precision - 2);
        return sum < 0 ? format_.infinity | format_.sign : format_.infinity;
    }

    const Stack &a_, &b_;
    const size_t inner_;
    const Format format_;
    const double both_ = power_of_two(-format_.precision);
    const int64_t below_ = format_.kept - format_.bits;  // bits of an integer below its top ones
    std::vector<int64_t> whole_;  // columns, one after the other
    std::vector<int32_t> tops_;   // rows of B, one after the other
    std::vector<Wide> sums_;
    std::vector<double> totals_;  // L of docs/matmul.md
    Lines of_rows_, of_columns_;
    double in_order_[SIDE];
    size_t ordered_ = SIDE;  // of which row they are
    bool ends_known_ = false;
    size_t begin_[2][SIDE], end_[2][SIDE];
    size_t rows_ = 0, columns_ = 0;
    int64_t rows_at_ = 0, columns_at_ = 0;
};

template <class T>
void write(void* out, int64_t at, uint64_t bits) {
    static_cast<T*>(out)[at] = static_cast<T>(bits);
}

}  // namespace

// Some matrices, rows and columns of a product, whose rows, and matrices, are so many elements apart. Adds to `uncertain`
// how many elements are computed term by term. Without a format, of integers. Returns whether all fits.
extern "C" int multiply(const Stack* a, const Stack* b, size_t matrices, size_t rows, size_t inner, size_t columns,
                        const Format* format, size_t itemsize, void* out, int64_t matrix, int64_t row,
                        uint64_t* uncertain) {
    const Format none{};
    Tile tile(*a, *b, inner, format ? *format : none);
    bool fits = true;
    for (size_t m = 0; m < matrices; ++m)
        for (size_t j = 0; j < columns; j += SIDE)
            for (size_t i = 0; i < rows; i += SIDE) {
                const size_t high = rows - i < SIDE ? rows - i : SIDE, wide = columns - j < SIDE ? columns - j : SIDE;
                fits &= tile.add(a->of[m] * a->matrix + static_cast<int64_t>(i) * a->row, high,
                                 b->of[m] * b->matrix + static_cast<int64_t>(j), wide);
                for (size_t y = 0; y < high; ++y)
                    for (size_t x = 0; x < wide; ++x) {
                        const int64_t at = static_cast<int64_t>(m) * matrix + static_cast<int64_t>(i + y) * row +
                                           static_cast<int64_t>(j + x);
                        uint64_t bits;
                        if (format) {
                            bits = tile.element(y, x, *uncertain);
                        } else {
                            const Wide sum = tile.sum(y, x);
                            bits = static_cast<uint64_t>(sum);
                            fits &= itemsize == 8 ? sum == static_cast<int64_t>(sum) : sum == static_cast<int32_t>(sum);
                        }
                        switch (itemsize) {
                            case 2: write<uint16_t>(out, at, bits); break;
                            case 4: write<uint32_t>(out, at, bits); break;
                            default: write<uint64_t>(out, at, bits);
                        }
                    }
            }
    return fits;
}
