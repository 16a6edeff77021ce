// Products of float16 and float32 on the CPU: sums in float64, their rounding, and elements computed exactly.

#include "cpu_sums.hpp"

namespace {

constexpr size_t COLUMNS = 16;  // of B that are converted at a time: a cache line of floats

constexpr size_t PADDING = 8;   // numbers: lines a power of two apart would evict each other from the cache
constexpr double MOST = 0x1p31;  // magnitude of a factor's integers

inline uint32_t bits(float x) {
    uint32_t word;
    std::memcpy(&word, &x, sizeof word);
    return word;
}

// A number times a power of two, rounded to nearest, ties to even; 0 for an infinity or NaN, which no element asks for.
inline int64_t whole(float x, double power) {
    const double y = __builtin_rint(static_cast<double>(x) * power);
    return y <= MOST && y >= -MOST ? static_cast<int64_t>(y) : 0;
}

}  // namespace

// Numbers that `add_products` needs memory for, to add up so many products at a time.
extern "C" size_t memory_numbers(size_t summed) { return summed * (BLOCK + ACROSS); }

// Adds the products of A and B to sums, so many at a time, and the squares of their rounded numbers, by row and by column.
// `begin`: sums are anything before. The memory begins with a cache line.
extern "C" void add_products(const float* a, size_t a_stride, const double* of_rows, double* row_squares,
                             const float* b, size_t b_stride, const double* of_columns, double* column_squares,
                             size_t rows, size_t inner, size_t columns, size_t summed, int begin, double* sums,
                             double* memory) {
    add_all({a, a_stride, of_rows, row_squares}, {b, b_stride, of_columns, column_squares}, rows, inner, columns, summed,
            begin, sums, memory);
}

// Sums rounded to floats. Marks those that are not certain: less and more of_rows times of_columns is another float.
extern "C" void round_sums(const double* sums, size_t rows, size_t columns, const double* of_rows,
                             const double* of_columns, float* out, uint8_t* open) {
    for (size_t i = 0; i < rows; ++i, sums += columns, out += columns, open += columns)
        for (size_t j = 0; j < columns; ++j) {
            const double off = of_rows[i] * of_columns[j];
            const float low = static_cast<float>(sums[j] - off), high = static_cast<float>(sums[j] + off);
            out[j] = high;
            open[j] = bits(low) != bits(high);
        }
}

// Adds to some elements of a product, sorted by column, the products of integers: numbers times powers of two, of each
// row and column, rounded to nearest, ties to even. Sums are words, the lower one first. `memory` holds COLUMNS + 1
// times `inner` + PADDING numbers.
extern "C" void add_dots(const float* a, size_t a_stride, const double* of_rows, const float* b, size_t b_stride,
                         const double* of_columns, size_t columns, size_t inner, const int64_t* rows,
                         const int64_t* places, size_t number, int64_t* memory, uint64_t* sums) {
    const size_t length = inner + PADDING;
    int64_t* const line = memory + COLUMNS * length;
    size_t first = 0, converted = 0;  // columns in memory
    int64_t row = -1;
    for (size_t n = 0; n < number; ++n) {
        const size_t column = static_cast<size_t>(places[n]);
        if (column >= first + converted) {
            first = column / COLUMNS * COLUMNS;
            converted = columns - first < COLUMNS ? columns - first : COLUMNS;
            for (size_t k = 0; k < inner; ++k)
                for (size_t j = 0; j < converted; ++j)
                    memory[j * length + k] = whole(b[k * b_stride + first + j], of_columns[first + j]);
        }
        if (rows[n] != row) {
            row = rows[n];
            const float* x = a + static_cast<size_t>(row) * a_stride;
            for (size_t k = 0; k < inner; ++k) line[k] = whole(x[k], of_rows[row]);
        }
        const int64_t* y = memory + (column - first) * length;
        __int128 sum = 0;
        for (size_t k = 0; k < inner; ++k) sum += line[k] * y[k];
        unsigned __int128 total = static_cast<unsigned __int128>(sums[2 * n + 1]) << 64 | sums[2 * n];
        total += static_cast<unsigned __int128>(sum);
        sums[2 * n] = static_cast<uint64_t>(total);
        sums[2 * n + 1] = static_cast<uint64_t>(total >> 64);
    }
}
