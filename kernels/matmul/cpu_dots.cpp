// Elements of a product of float64 that are dot products by definition: docs/matmul.md, step 5.
//
// Each product and each sum is rounded, from the first term on, so nothing can be added in another order and no
// multiply-add may be fused. Neighbouring elements are computed side by side instead: the sums of a tile, HIGH rows and
// WIDE columns, are in registers while DEPTH terms are added to all of them. A tile is computed as a whole if any of its
// elements is asked for: its other sums mean nothing.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;

#if defined(__AVX512F__)
constexpr size_t BYTES = 64, HIGH = 8;
#elif defined(__AVX__)
constexpr size_t BYTES = 32, HIGH = 4;
#else
constexpr size_t BYTES = 16, HIGH = 4;
#endif
typedef double Vector __attribute__((vector_size(BYTES)));

constexpr size_t LANES = BYTES / sizeof(double), VECTORS = 3, WIDE = VECTORS * LANES;
constexpr size_t BLOCK = 64, ACROSS = 16 * WIDE, DEPTH = 256;  // rows, columns and terms that are packed at a time

inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

struct Matrix {
    const double* numbers;
    size_t stride;
};

// Which elements are asked for.
struct Mask {
    const uint8_t* bytes;
    size_t stride;

    bool any(size_t row, size_t rows, size_t column, size_t columns) const {
        uint8_t some = 0;
        for (size_t i = row; i < row + rows; ++i)
            for (size_t j = column; j < column + columns; ++j) some |= bytes[i * stride + j];
        return some;
    }
};

// Columns of B, row after row, and rows of A, column after column; zeros for those that are missing.
void pack_columns(Matrix b, size_t depth, size_t wide, double* to) {
    for (size_t k = 0; k < depth; ++k, to += WIDE) {
        std::memset(to, 0, WIDE * sizeof(double));
        std::memcpy(to, b.numbers + k * b.stride, wide * sizeof(double));
    }
}

void pack_rows(Matrix a, size_t depth, size_t high, double* to) {
    for (size_t k = 0; k < depth; ++k)
        for (size_t i = 0; i < HIGH; ++i) to[k * HIGH + i] = i < high ? a.numbers[i * a.stride + k] : 0;
}

// Adds terms, in order, to a tile of sums.
void add_terms(const double* a, const double* b, size_t depth, size_t high, size_t wide, double* sums, size_t stride) {
    double all[HIGH * WIDE] = {};
    for (size_t i = 0; i < high; ++i) std::memcpy(all + i * WIDE, sums + i * stride, wide * sizeof(double));
    Vector sum[HIGH][VECTORS];
    std::memcpy(sum, all, sizeof all);
    for (size_t k = 0; k < depth; ++k, a += HIGH, b += WIDE) {
        Vector line[VECTORS];
        std::memcpy(line, b, sizeof line);
#pragma GCC unroll 8
        for (size_t i = 0; i < HIGH; ++i)
#pragma GCC unroll 8
            for (size_t j = 0; j < VECTORS; ++j) sum[i][j] += line[j] * a[i];
    }
    std::memcpy(all, sum, sizeof all);
    for (size_t i = 0; i < high; ++i) std::memcpy(sums + i * stride, all + i * WIDE, wide * sizeof(double));
}

}  // namespace

// Numbers that `add_in_order` needs memory for.
extern "C" size_t dots_memory() { return DEPTH * (BLOCK + ACROSS); }

// Adds the products of rows of A and columns of B, the next `inner` ones, to the sums of those elements whose byte in
// `which` is not zero; those of others may be anything afterwards. Strides of `which` and of `sums` are the same.
extern "C" void add_in_order(const double* a, size_t a_stride, const double* b, size_t b_stride, size_t rows,
                             size_t inner, size_t columns, const uint8_t* which, double* sums, size_t stride,
                             double* memory) {
    const Mask mask{which, stride};
    double* const of_b = memory + DEPTH * BLOCK;
    for (size_t column = 0; column < columns; column += ACROSS) {
        const size_t width = least(ACROSS, columns - column);
        for (size_t k = 0; k < inner; k += DEPTH) {
            const size_t depth = least(DEPTH, inner - k);
            for (size_t j = 0; j < width; j += WIDE) {
                const size_t wide = least(WIDE, width - j);
                if (mask.any(0, rows, column + j, wide))
                    pack_columns({b + k * b_stride + column + j, b_stride}, depth, wide, of_b + j * DEPTH);
            }
            for (size_t row = 0; row < rows; row += BLOCK) {
                const size_t height = least(BLOCK, rows - row);
                if (!mask.any(row, height, column, width)) continue;
                for (size_t i = 0; i < height; i += HIGH)
                    pack_rows({a + (row + i) * a_stride + k, a_stride}, depth, least(HIGH, height - i),
                              memory + i * DEPTH);
                for (size_t j = 0; j < width; j += WIDE)
                    for (size_t i = 0; i < height; i += HIGH) {
                        const size_t high = least(HIGH, height - i), wide = least(WIDE, width - j);
                        if (mask.any(row + i, high, column + j, wide))
                            add_terms(memory + i * DEPTH, of_b + j * DEPTH, depth, high, wide,
                                      sums + (row + i) * stride + column + j, stride);
                    }
            }
        }
    }
}
