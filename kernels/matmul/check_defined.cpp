// Elements of products of floats by their definition, for check_defined.py: some of their terms at a time.

#include "check_bits.hpp"
#include "check_defined.hpp"

namespace {

struct Half {
    uint16_t bits;
};

inline double number_of(double x) { return x; }
inline double number_of(float x) { return x; }
inline double number_of(Half x) {  // a finite one
    const uint32_t magnitude = (x.bits & 0x7fffu) << 13;
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    return static_cast<double>(x.bits & 0x8000u ? -value : value) * 0x1p112;
}

constexpr size_t SIDE = 64;  // of squares that are transposed, which fit into the cache

template <class T>
void gather_lines(const T* numbers, size_t line, size_t step, const int64_t* which, size_t number, size_t length,
                  double* out) {
    for (size_t n = 0; n < number; n += SIDE)
        for (size_t k = 0; k < length; k += SIDE)
            for (size_t i = n; i < number && i < n + SIDE; ++i) {
                const T* const from = numbers + static_cast<size_t>(which[i]) * line;
                for (size_t l = k; l < length && l < k + SIDE; ++l) out[i * length + l] = static_cast<double>(number_of(from[l * step]));
            }
}

}  // namespace

// Numbered as in check_lines.py.
enum Type { FLOAT16, FLOAT32, FLOAT64 };

// Some lines of a matrix, whose lines, and numbers of a line, are so many numbers apart.
extern "C" void gather(int type, const void* numbers, size_t line, size_t step, const int64_t* which, size_t number,
                       size_t length, double* out) {
    if (type == FLOAT16) gather_lines(static_cast<const Half*>(numbers), line, step, which, number, length, out);
    if (type == FLOAT32) gather_lines(static_cast<const float*>(numbers), line, step, which, number, length, out);
    if (type == FLOAT64) gather_lines(static_cast<const double*>(numbers), line, step, which, number, length, out);
}

// Numbers of lines, `length` of each, from a place in the line on, as integers.
extern "C" void integers(const double* lines, size_t number, size_t length, const int64_t* exponents, int64_t place,
                         const Definition* of, int64_t* out, Facts* facts) {
    for (size_t n = 0; n < number; ++n)
        to_integers(lines + n * length, length, exponents[n], place, *of, out + n * length, facts[n]);
}

// To the sums of places, each a row and a column, adds some products.
extern "C" void add(const int64_t* rows, const int64_t* columns, size_t length, const int32_t* places, size_t number,
                    const Definition* of, Terms* terms) {
    for (size_t n = 0; n < number; ++n, places += 2) {
        const int64_t *row = rows + static_cast<size_t>(places[0]) * length;
        const int64_t *column = columns + static_cast<size_t>(places[1]) * length;
        for (size_t k = 0; k < length; k += MOST_TERMS)
            add_integers(row + k, column + k, length - k < MOST_TERMS ? length - k : MOST_TERMS, *of, terms[n]);
    }
}

// The same, of numbers, in order; each product and each sum is rounded. Some places side by side, as each sum waits for
// the one before it.
extern "C" void add_in_order(const double* rows, const double* columns, size_t length, const int32_t* places,
                             size_t number, double* sums) {
    constexpr size_t BESIDE = 8;
    for (size_t n = 0; n < number; n += BESIDE) {
        const double *row[BESIDE], *column[BESIDE];
        double own[BESIDE];
        const size_t some = number - n < BESIDE ? number - n : BESIDE;
        for (size_t i = 0; i < BESIDE; ++i) {
            const size_t at = n + (i < some ? i : 0);
            row[i] = rows + static_cast<size_t>(places[2 * at]) * length;
            column[i] = columns + static_cast<size_t>(places[2 * at + 1]) * length;
            own[i] = sums[at];
        }
        for (size_t k = 0; k < length; ++k)
#pragma GCC unroll 8
            for (size_t i = 0; i < BESIDE; ++i) own[i] += row[i][k] * column[i][k];
        for (size_t i = 0; i < some; ++i) sums[n + i] = own[i];
    }
}

// The same in any order, and sums of magnitudes: two for each place.
extern "C" void add_with_sizes(const double* rows, const double* columns, size_t length, const int32_t* places,
                               size_t number, double* sums) {
    for (size_t n = 0; n < number; ++n, places += 2) {
        const double *row = rows + static_cast<size_t>(places[0]) * length;
        const double *column = columns + static_cast<size_t>(places[1]) * length;
        double sum = 0, sizes = 0;
#pragma omp simd reduction(+ : sum, sizes)
        for (size_t k = 0; k < length; ++k) {
            const double term = row[k] * column[k];
            sum += term;
            sizes += std::fabs(term);
        }
        sums[2 * n] += sum;
        sums[2 * n + 1] += sizes;
    }
}

// The bits of elements, and whether they are certain.
extern "C" void settle(const Terms* terms, const Facts* of_rows, const Facts* of_columns, const int64_t* row_exponents,
                       const int64_t* column_exponents, const int32_t* places, size_t number, int64_t inner,
                       const Definition* of, uint64_t* bits, uint8_t* certain) {
    for (size_t n = 0; n < number; ++n, places += 2) {
        const size_t i = static_cast<size_t>(places[0]), j = static_cast<size_t>(places[1]);
        bits[n] = rounded(terms[n], row_exponents[i] + column_exponents[j] - 2 * of->kept, *of);
        certain[n] = is_certain(terms[n], of_rows[i], of_columns[j], inner, *of);
    }
}

// Of elements that are marked, leaves the marks of those whose row and column of bits have none in common.
extern "C" void disjoint(const uint64_t* rows, const uint64_t* columns, size_t number, size_t wide, size_t words,
                         uint8_t* marks) {
    for (size_t i = 0; i < number; ++i)
        for (size_t j = 0; j < wide; ++j)
            if (marks[i * wide + j]) marks[i * wide + j] = !meet(rows + i * words, columns + j * words, words);
}
