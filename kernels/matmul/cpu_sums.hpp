// Sums of products of two matrices of float32, in float64, for cpu_narrow.cpp.
//
// Numbers are first rounded to multiples of the spacing of float64 at a power of two, one for each row of A and each
// column of B, as docs/matmul.md defines. Parts of both factors are packed in the order in which they are used: `summed`
// rows of B, of which a panel stays in the first-level cache while it is multiplied by BLOCK rows of A, which stay in the
// second-level cache. The sums of a tile, HIGH rows and WIDE columns, are in registers meanwhile.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;

#if defined(__AVX512F__)
constexpr size_t BYTES = 64, HIGH = 8;  // 24 sums in 32 registers
#elif defined(__AVX__)
constexpr size_t BYTES = 32, HIGH = 4;  // 12 sums in 16 registers
#else
constexpr size_t BYTES = 16, HIGH = 4;
#endif
typedef double Vector __attribute__((vector_size(BYTES)));

constexpr size_t LANES = BYTES / sizeof(double), VECTORS = 3, WIDE = VECTORS * LANES;
constexpr size_t BLOCK = 64, ACROSS = 32 * WIDE;  // rows and columns that are packed at a time

inline Vector loaded(const double* from) {
    Vector vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}

inline Vector multiply_add(Vector a, double b, Vector c) {
#if defined(__FP_FAST_FMA)
    for (size_t i = 0; i < LANES; ++i) c[i] = __builtin_fma(a[i], b, c[i]);
    return c;
#else
    return a * b + c;
#endif
}

inline double rounded(float x, double grid) { return (static_cast<double>(x) + grid) - grid; }

inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Panels of WIDE columns, row after row; columns that are missing in the last one are zeros. Adds up squares.
void pack_columns(const float* b, size_t stride, size_t inner, size_t columns, const double* grids, double* squares,
                  double* to) {
    for (size_t column = 0; column < columns; column += WIDE) {
        const size_t wide = least(WIDE, columns - column);
        double grid[WIDE] = {}, sum[WIDE] = {};
        for (size_t j = 0; j < wide; ++j) grid[j] = grids[column + j];
        for (size_t k = 0; k < inner; ++k, to += WIDE) {
            const float* from = b + k * stride + column;
            float line[WIDE] = {};
            if (wide == WIDE) std::memcpy(line, from, sizeof line);
            else std::memcpy(line, from, wide * sizeof(float));
            for (size_t j = 0; j < WIDE; ++j) {
                to[j] = rounded(line[j], grid[j]);
                sum[j] += to[j] * to[j];
            }
        }
        for (size_t j = 0; j < wide; ++j) squares[column + j] += sum[j];
    }
}

// Panels of HIGH rows, column after column, likewise; without `squares` none are added up.
void pack_rows(const float* a, size_t stride, size_t rows, size_t inner, const double* grids, double* squares,
               double* to) {
    for (size_t row = 0; row < rows; row += HIGH, to += HIGH * inner)
        for (size_t i = 0; i < HIGH; ++i) {
            if (row + i >= rows) {
                for (size_t k = 0; k < inner; ++k) to[k * HIGH + i] = 0;
                continue;
            }
            const float* from = a + (row + i) * stride;
            const double grid = grids[row + i];
            double sums[LANES] = {};
            size_t k = 0;
            for (; k + LANES <= inner; k += LANES)
                for (size_t l = 0; l < LANES; ++l) {
                    const double x = rounded(from[k + l], grid);
                    to[(k + l) * HIGH + i] = x;
                    sums[l] += x * x;
                }
            for (; k < inner; ++k) {
                const double x = rounded(from[k], grid);
                to[k * HIGH + i] = x;
                sums[0] += x * x;
            }
            if (squares)
                for (size_t l = 0; l < LANES; ++l) squares[row + i] += sums[l];
        }
}

// Adds the products of a panel of A and one of B to `high` rows and `wide` columns of sums; `first`: there is nothing yet.
void add_tile(const double* a, const double* b, size_t inner, size_t high, size_t wide, bool first, double* sums,
              size_t stride) {
    Vector sum[HIGH][VECTORS] = {};
    for (size_t k = 0; k < inner; ++k, a += HIGH, b += WIDE) {
        Vector line[VECTORS];
#pragma GCC unroll 8
        for (size_t j = 0; j < VECTORS; ++j) {
            line[j] = loaded(b + j * LANES);
#if defined(__AVX__) && !defined(__AVX512F__)
            asm("" : "+x"(line[j]));  // else GCC loads it again for each row, which takes a quarter longer
#endif
        }
#pragma GCC unroll 8
        for (size_t i = 0; i < HIGH; ++i)
#pragma GCC unroll 8
            for (size_t j = 0; j < VECTORS; ++j) sum[i][j] = multiply_add(line[j], a[i], sum[i][j]);
    }
    if (high == HIGH && wide == WIDE) {
#pragma GCC unroll 8
        for (size_t i = 0; i < HIGH; ++i)
#pragma GCC unroll 8
            for (size_t j = 0; j < VECTORS; ++j) {
                double* to = sums + i * stride + j * LANES;
                const Vector total = first ? sum[i][j] : loaded(to) + sum[i][j];
                std::memcpy(to, &total, sizeof total);
            }
        return;
    }
    double all[HIGH * WIDE];
    std::memcpy(all, sum, sizeof all);
    for (size_t i = 0; i < high; ++i)
        for (size_t j = 0; j < wide; ++j) {
            double* to = sums + i * stride + j;
            *to = first ? all[i * WIDE + j] : *to + all[i * WIDE + j];
        }
}

// A factor: rows so many numbers apart, a power of two for each row of A or column of B, and where to add squares.
struct Factor {
    const float* numbers;
    size_t stride;
    const double* grids;
    double* squares;
};

// As `add_products` of cpu_narrow.cpp.
void add_all(const Factor& a, const Factor& b, size_t rows, size_t inner, size_t columns, size_t summed, bool begin,
             double* sums, double* memory) {
    double* const of_b = memory + summed * BLOCK;
    for (size_t column = 0; column < columns; column += ACROSS) {
        const size_t width = least(ACROSS, columns - column);
        for (size_t k = 0; k < inner; k += summed) {
            const size_t depth = least(summed, inner - k);
            pack_columns(b.numbers + k * b.stride + column, b.stride, depth, width, b.grids + column,
                         b.squares + column, of_b);
            for (size_t row = 0; row < rows; row += BLOCK) {
                const size_t height = least(BLOCK, rows - row);
                pack_rows(a.numbers + row * a.stride + k, a.stride, height, depth, a.grids + row,
                          column ? nullptr : a.squares + row, memory);
                for (size_t j = 0; j < width; j += WIDE)
                    for (size_t i = 0; i < height; i += HIGH)
                        add_tile(memory + i * depth, of_b + j * depth, depth, least(HIGH, height - i),
                                 least(WIDE, width - j), begin && !k, sums + (row + i) * columns + column + j, columns);
            }
        }
    }
}

}  // namespace
