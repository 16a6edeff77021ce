// Elements of products of floats by their definition, for check_defined.py: some of their terms at a time.

#include "check_defined.hpp"

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

// The same, of numbers, in order; each product and each sum is rounded.
extern "C" void add_in_order(const double* rows, const double* columns, size_t length, const int32_t* places,
                             size_t number, double* sums) {
    for (size_t n = 0; n < number; ++n, places += 2) {
        const double *row = rows + static_cast<size_t>(places[0]) * length;
        const double *column = columns + static_cast<size_t>(places[1]) * length;
        double sum = sums[n];
        for (size_t k = 0; k < length; ++k) sum += row[k] * column[k];
        sums[n] = sum;
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
