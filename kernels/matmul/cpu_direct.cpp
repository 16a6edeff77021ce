// Elements of products by their definition, docs/matmul.md, for cpu_direct.py: where sums are short, or lines are few.
//
// Numbers of a tile of C become integers of 64 bits, in blocks of DEPTH products. Sums of their products have 128 bits and
// are rounded once. Whatever is not certain of this is said to be so: then none of it counts.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

using std::size_t;
using Wide = __int128;

constexpr size_t SIDE = 64, DEPTH = 256;  // rows and columns of a tile; products of a sum at a time
constexpr size_t LENGTH = DEPTH + 8;      // lines a power of two apart would evict each other from the cache

// As in numbers.cuh.
constexpr int BITS = 7, LOST = 512, HALF_WAY = 497;
constexpr double MOST_TOTAL = 0x1p32 - 1;

constexpr double MOST = 0x1p55, LEAST = 0x1p-1022;  // magnitude of an integer; of a normal number

// Numbered as in cpu_direct.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64 };

}  // namespace

// Rows of a stack of matrices, whose numbers follow one another. `of` has the number of the matrix for each product.
struct Stack {
    const void* numbers;
    int64_t type, matrix, row;  // numbers from one matrix, or row, to the next
    const int32_t* of;
};

struct Format {
    int64_t precision, least, kept, top;  // as in formats.py
    double share;
    uint64_t infinity, sign;  // bits
};

namespace {

template <class T, class To>
void copy(const void* numbers, int64_t at, size_t n, To* to) {
    const T* from = static_cast<const T*>(numbers) + at;
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

// Some numbers that follow one another; integers from 2**63 on become negative.
template <class To>
void load(const Stack& stack, int64_t at, size_t n, To* to) {
    switch (stack.type) {
        case INT8: copy<int8_t>(stack.numbers, at, n, to); break;
        case UINT8: copy<uint8_t>(stack.numbers, at, n, to); break;
        case INT16: copy<int16_t>(stack.numbers, at, n, to); break;
        case UINT16: copy<uint16_t>(stack.numbers, at, n, to); break;
        case INT32: copy<int32_t>(stack.numbers, at, n, to); break;
        case UINT32: copy<uint32_t>(stack.numbers, at, n, to); break;
        case INT64:
        case UINT64: copy<int64_t>(stack.numbers, at, n, to); break;
        case FLOAT32: copy<float>(stack.numbers, at, n, to); break;
        case FLOAT64: copy<double>(stack.numbers, at, n, to); break;
    }
}

// Of an exponent that normal numbers have.
inline double power_of_two(int64_t exponent) {
    const uint64_t bits = static_cast<uint64_t>(exponent + 1023) << 52;
    double power;
    std::memcpy(&power, &bits, sizeof power);
    return power;
}

// The exponent of the least power of two above a magnitude; 0 for zero.
inline int64_t exponent_above(double x) {
    int exponent;
    std::frexp(x, &exponent);
    return exponent;
}

inline int leading_zeros(uint64_t word) { return __builtin_clzll(word); }

// The bits of an integer times a power of two, rounded to nearest, ties to even; infinity if too large.
inline uint64_t rounded(Wide sum, int64_t exponent, const Format& format) {
    if (sum == 0) return 0;
    const Wide sign = sum >> 127;
    const unsigned __int128 magnitude = static_cast<unsigned __int128>((sum ^ sign) - sign);
    const uint64_t high = static_cast<uint64_t>(magnitude >> 64), low = static_cast<uint64_t>(magnitude);
    const int zeros = high ? leading_zeros(high) : 64 + leading_zeros(low);
    const unsigned __int128 shifted = magnitude << zeros;
    // 63 bits from the first one on, the last of which says whether any bit below is set; times 2**last.
    const uint64_t top = static_cast<uint64_t>(shifted >> 64);
    const uint64_t head = top >> 1 | (top & 1) | (static_cast<uint64_t>(shifted) != 0);
    const int64_t last = 65 - zeros + exponent, normal = last + 63 - format.precision;
    const int64_t quantum = normal > format.least ? normal : format.least, dropped = quantum - last;  // at least 10
    uint64_t kept = 0;
    if (dropped < 64) kept = (head + (uint64_t(1) << (dropped - 1)) - 1 + (head >> dropped & 1)) >> dropped;
    uint64_t bits = (static_cast<uint64_t>(quantum - format.least) << (format.precision - 1)) + kept;
    if (last + 63 > format.top || bits > format.infinity) bits = format.infinity;
    return bits | (static_cast<uint64_t>(sign) & format.sign);
}

// A finite number times a power of two, likewise; +0 for a zero of either sign.
uint64_t rounded(double x, int64_t exponent, const Format& format) {
    int own;
    const double fraction = std::frexp(x, &own);
    return rounded(static_cast<Wide>(fraction * 0x1p53), exponent + own - 53, format);
}

// Rows of A or columns of B.
struct Lines {
    double largest[SIDE];  // of the finite magnitudes
    uint8_t special[SIDE];  // have infinities or NaN
    int64_t exponent[SIDE];
    double first[SIDE], second[SIDE];  // powers of two that scale a line; one might overflow
    double lost[SIDE];                 // the farthest that rounding moved a number
    double size[SIDE], loss[SIDE];     // N of docs/matmul.md, and 2**(l + p) or 0

    void begin(size_t number) {
        for (size_t i = 0; i < number; ++i) largest[i] = lost[i] = size[i] = special[i] = 0;
    }
    void settle(size_t number, int64_t kept) {
        for (size_t i = 0; i < number; ++i) {
            const int64_t shift = kept - (exponent[i] = exponent_above(largest[i]));
            first[i] = power_of_two(shift / 2), second[i] = power_of_two(shift - shift / 2);
        }
    }
    void finish(size_t number, const Format& format) {
        for (size_t i = 0; i < number; ++i) {
            const int64_t own = exponent_above(lost[i]) - format.kept + BITS, least = 1 - LOST;
            loss[i] = lost[i] == 0 ? 0 : power_of_two((own < least ? least : own) + format.precision);
        }
    }
};

inline void measure(double x, double& largest, uint8_t& special) {
    const double magnitude = std::fabs(x), finite = magnitude < INFINITY ? magnitude : 0;
    special |= !(magnitude < INFINITY);
    largest = largest < finite ? finite : largest;
}

// The integer of a number, and its top bits; of infinities and NaN, whose lines are not multiplied, 0.
inline int64_t taken(double x, double first, double second, int64_t kept, double& lost, double& size, int32_t& top) {
    const double scaled = x * first * second, nearest = __builtin_rint(scaled);
    const double whole = std::fabs(nearest) <= MOST ? nearest : 0;
    double moved = std::fabs(scaled - whole);
    moved = x != 0 && whole == 0 && moved < LEAST ? LEAST : moved;  // scaling may lose it
    lost = lost < moved ? moved : lost;
    const int64_t integer = static_cast<int64_t>(whole);
    top = static_cast<int32_t>((integer < 0 ? -integer : integer) >> (kept - BITS));
    size += top + (x != 0);
    return integer;
}

// A tile: rows of A and columns of B, and what their products add up to.
class Tile {
  public:
    Tile(const Stack& a, const Stack& b, size_t inner, const Format& format)
        : a_(a), b_(b), inner_(inner), format_(format), whole_(SIDE * LENGTH), tops_(SIDE * DEPTH),
          sums_(SIDE * SIDE), totals_(SIDE * SIDE) {}

    // Adds up the products of rows of A and columns of B, whose first numbers are these; false if one does not fit.
    bool add(int64_t rows_at, size_t rows, int64_t columns_at, size_t columns) {
        rows_ = rows, columns_ = columns, rows_at_ = rows_at, columns_at_ = columns_at;
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
    uint64_t element(size_t i, size_t j, uint64_t& uncertain) const {
        if (of_rows_.special[i] || of_columns_.special[j]) return of_specials(i, j);
        const int64_t of_row = of_rows_.exponent[i], of_column = of_columns_.exponent[j];
        if (certain(i, j)) return rounded(sum(i, j), of_row + of_column - 2 * format_.kept, format_);
        ++uncertain;
        const double total = in_order(i, j, 1, 1);
        if (std::isfinite(total)) return rounded(total, 0, format_);
        const double power_a = power_of_two(HALF_WAY - of_row), power_b = power_of_two(HALF_WAY - of_column);
        return rounded(in_order(i, j, power_a, power_b), of_row + of_column - 2 * HALF_WAY, format_);
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
                row[j] = taken(line[j], of_columns.first[j], of_columns.second[j], format_.kept, of_columns.lost[j],
                               of_columns.size[j], to[j]);
            for (size_t j = 0; j < columns_; ++j) whole_[j * LENGTH + l] = row[j];
        }
        for (size_t i = 0; i < rows_; ++i) {
            load(a_, row_at(i, k), depth, line);
            double lost = of_rows.lost[i], size = 0;
            const double first = of_rows.first[i], second = of_rows.second[i];
#pragma omp simd reduction(max : lost) reduction(+ : size)
            for (size_t l = 0; l < depth; ++l)
                row[l] = taken(line[l], first, second, format_.kept, lost, size, tops[l]);
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
    bool certain(size_t i, size_t j) const {
        const double of_row = of_rows_.loss[i], of_column = of_columns_.loss[j], total = totals_[i * SIDE + j];
        double moved = of_row * of_columns_.size[j];
        moved += of_column * of_rows_.size[i];
        moved += of_row * (of_column * both_) * static_cast<double>(inner_);
        return moved <= (total < MOST_TOTAL ? total : MOST_TOTAL) * format_.share || is_empty(i, j);
    }
    // Whether all numbers of a row that are not zero come before or after those of a column.
    bool is_empty(size_t i, size_t j) const {
        size_t begin[2] = {inner_, inner_}, end[2] = {};
        for (size_t k = 0; k < inner_; ++k) {
            const bool some[2] = {of_row(i, k) != 0, of_column(k, j) != 0};
            for (size_t n = 0; n < 2; ++n)
                if (some[n]) begin[n] = end[n] ? begin[n] : k, end[n] = k + 1;
        }
        return begin[0] >= end[1] || begin[1] >= end[0];
    }
    double of_row(size_t i, size_t k) const { return number(a_, row_at(i, k)); }
    double of_column(size_t k, size_t j) const { return number(b_, column_at(k, j)); }
    static double number(const Stack& stack, int64_t at) {
        double x;
        load(stack, at, 1, &x);
        return x;
    }
    // The sum of products, each rounded, of numbers times these powers of two, rounded after each addition.
    double in_order(size_t i, size_t j, double power_a, double power_b) const {
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
    std::vector<int64_t> whole_;  // columns, one after the other
    std::vector<int32_t> tops_;   // rows of B, one after the other
    std::vector<Wide> sums_;
    std::vector<double> totals_;  // L of docs/matmul.md
    Lines of_rows_, of_columns_;
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
