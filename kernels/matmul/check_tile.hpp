// Tiles of matrices of floats, scaled and rounded as the definition of a product says, as vectors: for check_sums.cpp.
//
// A vector holds a column of some rows. Then sums along the rows, in any order, need neither shuffles nor gathers.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace {

using std::size_t;

#if defined(__AVX512F__)
constexpr size_t BYTES = 64;
#elif defined(__AVX__)
constexpr size_t BYTES = 32;
#else
constexpr size_t BYTES = 16;
#endif
constexpr size_t BLOCK = 64;  // columns that are converted at a time

template <size_t>
struct Integer;
template <>
struct Integer<4> {
    using Type = int32_t;
};
template <>
struct Integer<8> {
    using Type = int64_t;
};

template <class Real>
struct Of {
    typedef Real Vector __attribute__((vector_size(BYTES)));
    typedef typename Integer<sizeof(Real)>::Type Lanes __attribute__((vector_size(BYTES)));
    typedef uint64_t Words __attribute__((vector_size(BYTES)));
    static constexpr size_t ROWS = BYTES / sizeof(Real);
};
template <class Real>
using Vector = typename Of<Real>::Vector;

template <class Real>
inline Vector<Real> loaded(const Real* from) {
    Vector<Real> vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}

template <class Real>
inline void store(Real* to, Vector<Real> vector) {
    std::memcpy(to, &vector, sizeof vector);
}

template <class Real>
inline Vector<Real> masked(Vector<Real> vector, uint64_t mask) {
    typename Of<Real>::Words words;
    std::memcpy(&words, &vector, sizeof words);
    words &= mask;
    std::memcpy(&vector, &words, sizeof words);
    return vector;
}

// The powers of two at or below magnitudes; zero of subnormal numbers.
inline Vector<double> powers(Vector<double> x) { return masked<double>(x, 0x7ff0000000000000); }
inline Vector<float> powers(Vector<float> x) { return masked<float>(x, 0x7f8000007f800000); }

inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

template <class Real>
inline Vector<Real> multiply_add(Vector<Real> a, Real b, Vector<Real> c) {
#if defined(__FP_FAST_FMA) && defined(__FP_FAST_FMAF)
    for (size_t i = 0; i < Of<Real>::ROWS; ++i) c[i] = fused(a[i], b, c[i]);
    return c;
#else
    return a * b + c;
#endif
}

struct Half {
    uint16_t bits;
};

inline double number(double x) { return x; }
inline double number(float x) { return x; }
inline float number(Half x) {  // NaN of an infinity
    const uint32_t magnitude = (x.bits & 0x7fffu) << 13, sign = (x.bits & 0x8000u) << 16;
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    value = magnitude < 0x7c00u << 13 ? value * 0x1p112f : __builtin_nanf("");
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits |= sign;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline double root(double x) { return __builtin_sqrt(x); }
inline float root(float x) { return __builtin_sqrtf(x); }

inline double whole(double x) { return __builtin_rint(x); }
inline float whole(float x) { return __builtin_rintf(x); }

// Of two rows of blocks of HALF × HALF numbers, exchanges the second of one with the first of the other.
template <class Real, size_t HALF, size_t... LANE>
inline void exchange(Vector<Real>& one, Vector<Real>& two, std::index_sequence<LANE...>) {
    constexpr size_t N = sizeof...(LANE);
#ifdef __clang__
    const Vector<Real> first = __builtin_shufflevector(one, two, (LANE & HALF ? N + LANE - HALF : LANE)...);
    two = __builtin_shufflevector(one, two, (LANE & HALF ? N + LANE : LANE + HALF)...);
#else
    using Lanes = typename Of<Real>::Lanes;
    const Vector<Real> first = __builtin_shuffle(one, two, Lanes{(LANE & HALF ? N + LANE - HALF : LANE)...});
    two = __builtin_shuffle(one, two, Lanes{(LANE & HALF ? N + LANE : LANE + HALF)...});
#endif
    one = first;
}

// Rows to columns.
template <class Real, size_t HALF = Of<Real>::ROWS / 2>
inline void transpose(Vector<Real> (&rows)[Of<Real>::ROWS]) {
    constexpr size_t ROWS = Of<Real>::ROWS;
#pragma GCC unroll 16
    for (size_t i = 0; i < ROWS; ++i)
        if (!(i & HALF)) exchange<Real, HALF>(rows[i], rows[i + HALF], std::make_index_sequence<ROWS>());
    if constexpr (HALF > 1) transpose<Real, HALF / 2>(rows);
}

// How the numbers of a matrix are scaled: rounded to integers by row or by column, or not rounded, by both.
enum Kind { OF_ROWS, OF_COLUMNS, OF_BOTH };

// Powers of two to multiply by: two before numbers are rounded, so that neither overflows, and one after that.
struct Matrix {
    const void* numbers;
    size_t rows, columns, stride;
    const void *by_row[3], *by_column[3];
};

template <class T, class Real, Kind KIND>
void convert(const T* x, size_t n, const Real (&by_row)[3], const Real* const (&by_column)[3], size_t at, Real* y) {
    for (size_t j = 0; j < n; ++j) {
        Real value = static_cast<Real>(number(x[j]));
        if (KIND == OF_ROWS) value = whole(value * by_row[0] * by_row[1]) * by_row[2];
        if (KIND == OF_COLUMNS)
            value = whole(value * by_column[0][at + j] * by_column[1][at + j]) * by_column[2][at + j];
        if (KIND == OF_BOTH) value = value * by_row[0] * by_column[0][at + j] * by_row[1] * by_column[1][at + j];
        y[j] = value;
    }
}

// Some rows and columns, scaled, as vectors; zeros beyond the last row. Adds up squares by row or by column.
template <class T, class Real, Kind KIND>
void load(const Matrix& m, size_t row, size_t column, size_t columns, bool sizes, const Real* weights,
          double* row_squares, double* column_squares, Real* out) {
    constexpr size_t ROWS = Of<Real>::ROWS;
    const size_t rows = m.rows - row < ROWS ? m.rows - row : ROWS;
    alignas(64) Real block[ROWS][BLOCK];
    if (rows < ROWS) std::memset(block, 0, sizeof block);
    const Real* by_column[3];
    for (size_t i = 0; i < 3; ++i) by_column[i] = static_cast<const Real*>(m.by_column[i]);
    for (size_t at = column; at < column + columns; at += BLOCK) {
        const size_t n = column + columns - at < BLOCK ? column + columns - at : BLOCK;
        for (size_t i = 0; i < rows; ++i) {
            Real by_row[3] = {};
            for (size_t k = 0; k < 3; ++k)
                if (m.by_row[k]) by_row[k] = static_cast<const Real*>(m.by_row[k])[row + i];
            const T* x = static_cast<const T*>(m.numbers) + (row + i) * m.stride + at;
            convert<T, Real, KIND>(x, n, by_row, by_column, at, block[i]);
            if (column_squares)
                for (size_t j = 0; j < n; ++j) column_squares[at + j] += static_cast<double>(block[i][j]) * block[i][j];
            if (sizes)
                for (size_t j = 0; j < n; ++j) block[i][j] = block[i][j] < 0 ? -block[i][j] : block[i][j];
        }
        Real* to = out + (at - column) * ROWS;
        size_t done = 0;
        for (; done + ROWS <= n; done += ROWS) {
            Vector<Real> lines[ROWS];
#pragma GCC unroll 16
            for (size_t i = 0; i < ROWS; ++i) lines[i] = loaded(block[i] + done);
            transpose<Real>(lines);
#pragma GCC unroll 16
            for (size_t i = 0; i < ROWS; ++i) store(to + (done + i) * ROWS, lines[i]);
        }
        for (; done < n; ++done)
            for (size_t i = 0; i < ROWS; ++i) to[done * ROWS + i] = block[i][done];
        if (row_squares) {
            Vector<Real> squares = {};
            for (size_t j = 0; j < n; ++j) {
                Vector<Real> x = loaded(to + j * ROWS);
                if (weights) x *= weights[at + j];
                squares += x * x;
            }
            for (size_t i = 0; i < rows; ++i) row_squares[row + i] += static_cast<double>(squares[i]);
        }
    }
}

}  // namespace
