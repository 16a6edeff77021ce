// Sums of groups of columns, with signs, and products with such sums, for check_sums.py: a tile of a matrix at a time.

#include "check_compared.hpp"
#include "check_examined.hpp"
#include "check_tile.hpp"

namespace {

// As in check_sums.py and check_lines.py.
constexpr size_t INNER = 128;  // products that are added up before they are added to a sum

template <class T, class Real>
void add_groups(const Matrix& m, bool sizes, const Groups& groups, double* column_squares, void* memory, void* to,
                size_t stride) {
    Real *buffer = static_cast<Real*>(memory), *out = static_cast<Real*>(to);
    std::vector<Total<Real>> sums(groups.sums);
    for (size_t row = 0; row < m.rows; row += Of<Real>::ROWS) {
        std::fill(sums.begin(), sums.end(), Total<Real>{});
        const int32_t* starts = groups.starts;
        for (size_t at = 0, block = 1; at < m.columns; at += groups.width, ++block, ++starts) {
            const size_t width = m.columns - at < groups.width ? m.columns - at : groups.width;
            const bool last = at + width == m.columns;
            load<T, Real, OF_COLUMNS>(m, row, at, width, sizes, nullptr, nullptr, column_squares, buffer);
            for (size_t s = 0; s < groups.sums; ++s, starts += 2) {
                const int32_t* columns = groups.columns;
                Vector<Real> parts[LANES] = {};
                add<false>(buffer, columns + starts[0], columns + starts[1], parts);
                if (sizes)
                    add<false>(buffer, columns + starts[1], columns + starts[2], parts);
                else
                    add<true>(buffer, columns + starts[1], columns + starts[2], parts);
                sums[s].add(total<Real>(parts), block, last);
            }
        }
        for (size_t s = 0; s < groups.sums; ++s) store(out + s * stride + row, sums[s].sum);
    }
}

// Adds parts of sums to totals in double precision.
template <class Real>
inline void add_to(double* totals, Vector<Real> parts) {
    for (size_t i = 0; i < Of<Real>::ROWS; ++i) totals[i] += static_cast<double>(parts[i]);
}

// Adds to SUMS sums of each row the products with as many vectors, at most INNER products of each.
template <size_t SUMS, class Real>
void multiply(const Real* a, size_t inner, const Real* v, size_t stride, double* out) {
    constexpr size_t ROWS = Of<Real>::ROWS;
    for (size_t row = 0; row < HEIGHT; row += 2 * ROWS, a += 2 * ROWS * INNER, out += 2 * ROWS) {
        Vector<Real> one[SUMS] = {}, two[SUMS] = {};
        for (size_t k = 0; k < inner; ++k) {
            const Vector<Real> x = loaded(a + k * ROWS), y = loaded(a + (INNER + k) * ROWS);
#pragma GCC unroll 8
            for (size_t s = 0; s < SUMS; ++s) {
                one[s] = multiply_add(x, v[s * stride + k], one[s]);
                two[s] = multiply_add(y, v[s * stride + k], two[s]);
            }
        }
#pragma GCC unroll 8
        for (size_t s = 0; s < SUMS; ++s) {
            add_to<Real>(out + s * HEIGHT, one[s]);
            add_to<Real>(out + s * HEIGHT + ROWS, two[s]);
        }
    }
}

template <class T, class Real>
void add_products(const Matrix& a, bool sizes, const void* vectors, size_t stride, size_t sums, double* row_squares,
                  double* out) {
    const Real* v = static_cast<const Real*>(vectors);
    constexpr size_t ROWS = Of<Real>::ROWS;
#if defined(__AVX512F__)
    constexpr size_t SUMS = 8;  // two registers for each, of 32
#else
    constexpr size_t SUMS = 4;  // of 16
#endif
    alignas(64) Real lines[HEIGHT * INNER];
    std::memset(lines, 0, sizeof lines);
    for (size_t k = 0; k < a.columns; k += INNER) {
        const size_t inner = a.columns - k < INNER ? a.columns - k : INNER;
        for (size_t row = 0; row < a.rows; row += ROWS)
            load<T, Real, OF_ROWS>(a, row, k, inner, sizes, nullptr, row_squares, nullptr, lines + row * INNER);
        size_t s = 0;
        for (; s + SUMS <= sums; s += SUMS)
            multiply<SUMS>(lines, inner, v + s * stride + k, stride, out + s * HEIGHT);
        for (; s + 4 <= sums; s += 4) multiply<4>(lines, inner, v + s * stride + k, stride, out + s * HEIGHT);
        for (; s < sums; ++s) multiply<1>(lines, inner, v + s * stride + k, stride, out + s * HEIGHT);
    }
}

// Largest finite magnitudes, and whether there are infinities or NaN, of rows or of columns. As integers magnitudes have
// the same order.
template <class Bits, Bits INFINITE>
void measure_lines(const void* numbers, size_t rows, size_t columns, size_t stride, bool by_row, void* to,
                   uint8_t* nonfinite) {
    constexpr Bits SIGN = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    Bits* largest = static_cast<Bits*>(to);
    for (size_t row = 0; row < rows; ++row) {
        const Bits* line = static_cast<const Bits*>(numbers) + row * stride;
        if (by_row) {
            Bits most = 0, every = 0;
#pragma omp simd reduction(max : most, every)
            for (size_t j = 0; j < columns; ++j) {
                const Bits magnitude = line[j] & static_cast<Bits>(~SIGN), finite = magnitude < INFINITE ? magnitude : 0;
                most = most < finite ? finite : most;
                every = every < magnitude ? magnitude : every;
            }
            largest[row] = most;
            nonfinite[row] = every >= INFINITE;
        } else {
            for (size_t j = 0; j < columns; ++j) {
                const Bits magnitude = line[j] & static_cast<Bits>(~SIGN), finite = magnitude < INFINITE ? magnitude : 0;
                largest[j] = largest[j] < finite ? finite : largest[j];
            }
            for (size_t j = 0; j < columns; ++j) nonfinite[j] |= (line[j] & static_cast<Bits>(~SIGN)) >= INFINITE;
        }
    }
}

}  // namespace

// Numbered as in check_sums.py. Numbers of 16 bits are computed with as floats, others as doubles.
enum Type { FLOAT16, FLOAT32, FLOAT64 };

#define CALL(FUNCTION, ...)                                         \
    switch (type) {                                                 \
        case FLOAT16: FUNCTION<Half, float>(__VA_ARGS__); break;    \
        case FLOAT32: FUNCTION<float, double>(__VA_ARGS__); break;  \
        case FLOAT64: FUNCTION<double, double>(__VA_ARGS__); break; \
    }

// A matrix as it is: writes the largest finite magnitude of each row or column, and whether it has infinities or NaN; both
// are zero before.
extern "C" void measure(int type, const void* numbers, size_t rows, size_t columns, size_t stride, int by_row,
                        void* largest, uint8_t* nonfinite) {
    switch (type) {
        case FLOAT16:
            measure_lines<uint16_t, 0x7c00>(numbers, rows, columns, stride, by_row, largest, nonfinite);
            break;
        case FLOAT32:
            measure_lines<uint32_t, 0x7f800000>(numbers, rows, columns, stride, by_row, largest, nonfinite);
            break;
        case FLOAT64:
            measure_lines<uint64_t, 0x7ff0000000000000>(numbers, rows, columns, stride, by_row, largest, nonfinite);
            break;
    }
}

// Rows of B, rounded: sums of groups of columns, out[sum][row], and squares of columns. With `sizes`, of magnitudes.
// The buffer holds one vector for each column of a block.
extern "C" void group_sums(int type, const Matrix* b, int sizes, const Groups* groups, double* column_squares,
                           void* buffer, void* out, size_t stride) {
    CALL(add_groups, *b, sizes, *groups, column_squares, buffer, out, stride)
}

// Rows of A, rounded: adds products with vectors v[sum][column] to out[sum][HEIGHT], and squares of rows.
extern "C" void products(int type, const Matrix* a, int sizes, const void* v, size_t stride, size_t sums,
                         double* row_squares, double* out) {
    CALL(add_products, *a, sizes, v, stride, sums, row_squares, out)
}

// Rows of C: products[sum][HEIGHT] less sums of groups of columns; from where on these differences are not likely, the
// most that they are of right sums; and squares of rows, whose columns have weights.
extern "C" void compare(int type, const Matrix* c, const Groups* groups, const void* limits, const void* weights,
                        const double* products, double* row_squares, void* buffer, void* differences, void* likely,
                        void* most) {
    CALL(compare_groups, *c, *groups, limits, weights, products, row_squares, buffer, differences, likely, most)
}

// What `compare` wrote of so many rows: returns how many sums differ more than is likely.
extern "C" size_t judge(int type, size_t rows, size_t sums, const void* differences, const void* likely,
                        const void* most, const double* sizes, const uint8_t* elsewhere, double* admitted) {
    size_t off = 0;
    if (type == FLOAT16)
        judge_sums<float>(rows, sums, differences, likely, most, sizes, elsewhere, admitted, off);
    else
        judge_sums<double>(rows, sums, differences, likely, most, sizes, elsewhere, admitted, off);
    return off;
}

// Rows of C: writes the row and the column of suspects, at most so many of them, and returns how many there are.
extern "C" size_t suspects(int type, const Matrix* c, const Rounds* rounds, const void* differences,
                           const void* limits, double share, void* buffer, int32_t* places,
                           size_t most) {
    size_t number = 0;
    CALL(find_suspects, *c, *rounds, differences, limits, share, buffer, places, most, number)
    return number;
}

// Rows of A and of B: adds to out, for each place, a row and a column, the sum of its products, all in double precision.
extern "C" void dots(int type, const Matrix* a, const Matrix* b, const int32_t* places, size_t number, void* memory,
                     double* out) {
    if (type == FLOAT16) add_dots<Half, double>(*a, *b, places, number, memory, out);
    if (type == FLOAT32) add_dots<float, double>(*a, *b, places, number, memory, out);
    if (type == FLOAT64) add_dots<double, double>(*a, *b, places, number, memory, out);
}

// Rows of C: writes the row and the column of elements up to the largest limit of their sums, at most so many of them; by
// row, the largest limits, and those of all sums; columns are scaled. With bits of the numbers that are not zero, elements
// that are +0 and have no terms do not count. Writes how many there are, and how many of them are +0.
extern "C" void small(int type, const Matrix* c, const Rounds* rounds, const double* by_column, const double* largest,
                      const double* limits, const uint64_t* row_bits, const uint64_t* column_bits, size_t words,
                      int32_t* places, size_t most, int64_t* counts) {
    const auto find = [&](auto of) {
        find_small<decltype(of)>(*c, *rounds, by_column, largest, limits, row_bits, column_bits, words, places, most, counts);
    };
    if (type == FLOAT16) find(Half{});
    if (type == FLOAT32) find(float{});
    if (type == FLOAT64) find(double{});
}
